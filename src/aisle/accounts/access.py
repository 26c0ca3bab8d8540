"""Who may call what. One table, default deny: a route without a row is closed to everybody.

Installed around every route, `@asgi` handlers included, before its body is read. `docs/reference/roles.md` is drawn
from the table, and a test walks every route with every role against it. Whether an object belongs to the one who asks
is decided by the SQL of its slice, not here.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from litestar import Request
from litestar.di import NamedDependency
from litestar.exceptions import NotAuthorizedException
from litestar.types import ASGIApp, Receive, Scope, Send

from aisle.accounts.account import Actor, Role
from aisle.accounts.cross_site import (
    BODY_METHODS,
    SAFE_METHODS,
    Credentials,
    Headers,
    is_cross_site,
    is_json,
    read_credentials,
)
from aisle.accounts.desk import Desk
from aisle.errors import Problem
from aisle.hot_route import hot_answer

ANONYMOUS = "anonymous"

Callers = frozenset[str]

NOBODY: Callers = frozenset()
ANYONE_LOGGED_IN: Callers = frozenset(Role)
PUBLIC: Callers = frozenset({ANONYMOUS, *Role})

ACCESS: Mapping[tuple[str, str], Callers] = {
    ("GET", "/livez"): PUBLIC,
    ("GET", "/readyz"): PUBLIC,
    ("GET", "/version"): PUBLIC,
    ("GET", "/metrics"): PUBLIC,
    ("GET", "/docs/api"): PUBLIC,
    # Pages show what everybody may see; what is somebody's own they fetch from the API, which asks who it is.
    ("GET", "/"): PUBLIC,
    ("GET", "/events/{event_id}"): PUBLIC,
    ("GET", "/login"): PUBLIC,
    ("GET", "/register"): PUBLIC,
    ("GET", "/account"): PUBLIC,
    ("GET", "/cart"): PUBLIC,
    ("GET", "/bookings"): PUBLIC,
    ("GET", "/bookings/{booking_id}"): PUBLIC,
    ("GET", "/door"): PUBLIC,
    ("GET", "/door-worker.js"): PUBLIC,
    ("GET", "/ops"): PUBLIC,
    ("GET", "/ops/store"): PUBLIC,
    ("GET", "/seller"): PUBLIC,
    ("GET", "/seller/new"): PUBLIC,
    ("GET", "/seller/events/{event_id}"): PUBLIC,
    ("GET", "/api/v1/openapi.json"): PUBLIC,
    ("GET", "/static/{file_path}"): PUBLIC,
    ("HEAD", "/static/{file_path}"): PUBLIC,
    # The framework's own document pages; ours are /docs/api and /api/v1/openapi.json.
    ("GET", "/docs/litestar"): NOBODY,
    ("GET", "/docs/litestar/openapi.json"): NOBODY,
    ("GET", "/docs/litestar/{path}"): NOBODY,
    ("POST", "/api/v1/users"): PUBLIC,
    ("POST", "/api/v1/sessions"): PUBLIC,
    ("DELETE", "/api/v1/sessions"): ANYONE_LOGGED_IN,
    ("DELETE", "/api/v1/sessions/current"): ANYONE_LOGGED_IN,
    ("GET", "/api/v1/me"): ANYONE_LOGGED_IN,
    ("GET", "/api/v1/me/data"): frozenset({Role.BUYER}),
    ("POST", "/api/v1/me/erase"): frozenset({Role.BUYER}),
    # Public because e-mail and password in the body are proof enough; without them it asks for a session.
    ("POST", "/api/v1/tokens"): PUBLIC,
    ("GET", "/api/v1/tokens"): ANYONE_LOGGED_IN,
    ("DELETE", "/api/v1/tokens/{token_id}"): ANYONE_LOGGED_IN,
    ("GET", "/api/v1/events"): PUBLIC,
    ("GET", "/api/v1/events/{event_id}"): PUBLIC,
    ("GET", "/api/v1/events/{event_id}/sections"): PUBLIC,
    ("GET", "/api/v1/events/{event_id}/sections/{section}"): PUBLIC,
    ("GET", "/api/v1/events/{event_id}/hall"): PUBLIC,
    ("GET", "/api/v1/events/{event_id}/seatmap"): PUBLIC,
    ("GET", "/api/v1/events/{event_id}/updates"): PUBLIC,
    ("POST", "/api/v1/events"): frozenset({Role.SELLER}),
    ("PATCH", "/api/v1/events/{event_id}"): frozenset({Role.SELLER}),
    ("POST", "/api/v1/events/{event_id}/open"): frozenset({Role.SELLER}),
    ("POST", "/api/v1/events/{event_id}/close"): frozenset({Role.SELLER}),
    ("GET", "/api/v1/seller/events"): frozenset({Role.SELLER}),
    ("GET", "/api/v1/seller/events/{event_id}"): frozenset({Role.SELLER}),
    ("POST", "/api/v1/events/{event_id}/holds"): frozenset({Role.BUYER}),
    ("POST", "/api/v1/events/{event_id}/holds/{hold_id}/extend"): frozenset({Role.BUYER}),
    ("DELETE", "/api/v1/events/{event_id}/holds/{hold_id}"): frozenset({Role.BUYER}),
    ("GET", "/api/v1/cart"): frozenset({Role.BUYER}),
    ("DELETE", "/api/v1/cart"): frozenset({Role.BUYER}),
    ("POST", "/api/v1/cart/checkout"): frozenset({Role.BUYER}),
    ("POST", "/api/v1/bookings"): frozenset({Role.BUYER}),
    ("GET", "/api/v1/bookings"): frozenset({Role.BUYER}),
    ("GET", "/api/v1/bookings/updates"): frozenset({Role.BUYER}),
    ("GET", "/api/v1/bookings/{booking_id}"): frozenset({Role.BUYER}),
    ("POST", "/api/v1/bookings/{booking_id}/cancel"): frozenset({Role.BUYER}),
    ("GET", "/api/v1/bookings/{booking_id}/tickets"): frozenset({Role.BUYER}),
    ("GET", "/api/v1/bookings/{booking_id}/tickets.pdf"): frozenset({Role.BUYER}),
    ("POST", "/api/v1/bookings/{booking_id}/tickets/{ticket_id}/reissue"): frozenset({Role.BUYER}),
    ("GET", "/api/v1/ticket-keys"): PUBLIC,
    ("POST", "/api/v1/check-ins"): frozenset({Role.DOOR}),
    ("POST", "/api/v1/check-ins/merge"): frozenset({Role.DOOR}),
    ("GET", "/api/v1/events/{event_id}/scans"): frozenset({Role.DOOR, Role.SELLER}),
    ("GET", "/api/v1/events/{event_id}/voided-codes"): frozenset({Role.DOOR, Role.SELLER}),
    ("GET", "/api/v1/events/{event_id}/sales"): frozenset({Role.SELLER}),
    ("GET", "/api/v1/events/{event_id}/sales.csv"): frozenset({Role.SELLER}),
    ("GET", "/api/v1/events/{event_id}/sales/updates"): frozenset({Role.SELLER}),
    ("GET", "/api/v1/events/{event_id}/sales/bookings"): frozenset({Role.SELLER}),
    ("PUT", "/api/v1/events/{event_id}/door-staff"): frozenset({Role.SELLER}),
    ("GET", "/api/v1/events/{event_id}/door-staff"): frozenset({Role.SELLER}),
    ("DELETE", "/api/v1/events/{event_id}/door-staff/{account_id}"): frozenset({Role.SELLER}),
    ("POST", "/api/v1/bookings/{booking_id}/payments"): frozenset({Role.BUYER}),
    ("GET", "/api/v1/bookings/{booking_id}/payments"): frozenset({Role.BUYER}),
    ("POST", "/api/v1/bookings/{booking_id}/payments/{payment_id}/confirm"): frozenset({Role.BUYER}),
    ("POST", "/api/v1/bookings/{booking_id}/refund"): frozenset({Role.BUYER}),
    ("POST", "/api/v1/seller/bookings/{booking_id}/refund"): frozenset({Role.SELLER}),
    ("GET", "/api/v1/payments/review"): frozenset({Role.OPERATOR, Role.SELLER}),
    ("POST", "/api/v1/payments/{payment_id}/decision"): frozenset({Role.OPERATOR, Role.SELLER}),
    ("GET", "/api/v1/ops"): frozenset({Role.OPERATOR}),
    ("GET", "/api/v1/ops/audit"): frozenset({Role.OPERATOR}),
    ("GET", "/api/v1/ops/store/events/{event_id}"): frozenset({Role.OPERATOR}),
    ("GET", "/api/v1/ops/store/holds"): frozenset({Role.OPERATOR}),
    ("GET", "/api/v1/ops/store/seats"): frozenset({Role.OPERATOR}),
    ("GET", "/api/v1/ops/store/keys"): frozenset({Role.OPERATOR}),
    # Public because the signature over the body is the proof.
    ("POST", "/api/v1/payments/webhooks/{provider}"): PUBLIC,
}


def actor_in(scope: Scope) -> Actor:
    """Who is asking, for `@asgi` handlers. Only on routes whose row names roles: elsewhere nobody was looked up."""
    actor = scope.get("user")
    assert isinstance(actor, Actor), "this route is public: nobody was asked who they are"
    return actor


def actor_of(request: Request[Any, Any, Any]) -> Actor:
    """The same as a dependency named `actor`: a route handler that takes `actor: CurrentActor` gets it."""
    return actor_in(request.scope)


CurrentActor = NamedDependency[Actor]


class Access:
    def __init__(self, desk: Desk, table: Mapping[tuple[str, str], Callers] = ACCESS) -> None:
        self._sessions = desk.sessions
        self._bearers = desk.bearers
        self._table = table

    def around(self, app: ASGIApp) -> ASGIApp:
        """Litestar calls this once per route. Plain ASGI: a guard would copy the route handler for every request."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            await self.admit(scope)
            await (hot_answer(scope) or app)(scope, receive, send)

        return guarded

    async def admit(self, scope: Scope) -> None:
        """Return if the request may go on, with its actor in the scope; raise 401, 403, 415 or 503 otherwise."""
        method = str(scope.get("method"))  # a web socket has none, and no row
        callers = self._table.get((method, scope["path_template"]), NOBODY)
        if not callers:
            raise Problem(403, "forbidden", "nobody may do this")
        headers = dict(scope["headers"])
        credentials = read_credentials(headers)
        if method not in SAFE_METHODS:
            _require_own_site(method, headers, credentials)
        if ANONYMOUS in callers:
            return
        actor = await self._find(credentials)
        if actor is None:
            raise NotAuthorizedException("log in first", headers={"www-authenticate": "Bearer"})
        if actor.role not in callers:
            raise Problem(403, "forbidden", f"this is not open to the role {actor.role}")
        scope["user"] = actor

    async def recognise(self, scope: Scope) -> Actor | None:
        """Who is asking on a public route, if somebody we know."""
        return await self._find(read_credentials(dict(scope["headers"])))

    async def still_valid(self, actors: Sequence[Actor]) -> list[bool]:
        """Whether each would still be admitted, for streams that stay open. To be asked does not prolong a session."""
        sessions = {a.session for a in actors if a.session is not None}
        tokens = {a.token_id for a in actors if a.token_id is not None}
        valid: set[bytes | UUID] = {*await self._sessions.still_open(sessions), *await self._bearers.unrevoked(tokens)}
        return [a.session in valid or a.token_id in valid for a in actors]

    async def _find(self, credentials: Credentials) -> Actor | None:
        if credentials.authorization is not None:
            scheme, _, text = credentials.authorization.partition(b" ")
            return await self._bearers.find(text.strip()) if scheme.lower() == b"bearer" else None
        if credentials.cookie is not None:
            return await self._sessions.find(credentials.cookie)
        return None


def _require_own_site(method: str, headers: Headers, credentials: Credentials) -> None:
    if is_cross_site(headers, credentials):
        raise Problem(403, "cross_site_request", "the request does not come from this site")
    if method in BODY_METHODS and credentials.authorization is None and not is_json(headers):
        raise Problem(415, "unsupported_media_type", "send application/json")
