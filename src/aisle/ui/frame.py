"""What stands around every page: who is looking at it, where they can go from here, and what an error looks like.

Errors of page routes, and addresses that lead nowhere, are pages for a browser and problem+json for a program.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from litestar import Request, Response
from litestar.response import Redirect
from litestar.types import ExceptionHandlersMap, Scope

from aisle.accounts.account import Actor, Role
from aisle.ui.pages import page

AnyRequest = Request[Any, Any, Any]
Recognise = Callable[[Scope], Awaitable[Actor | None]]


class Link(NamedTuple):
    text: str
    path: str


# Who finds what in the navigation. A role's own desk is added here together with its page.
NAVIGATION: dict[str, tuple[Link, ...]] = {
    Role.BUYER: (
        Link("nav.events", "/"),
        Link("nav.bookings", "/bookings"),
        Link("nav.cart", "/cart"),
        Link("nav.account", "/account"),
    ),
    Role.SELLER: (Link("nav.seller", "/seller"), Link("nav.new_event", "/seller/new"), Link("nav.events", "/")),
    Role.DOOR: (Link("nav.door", "/door"), Link("nav.events", "/")),
    Role.OPERATOR: (Link("nav.ops", "/ops"), Link("nav.store", "/ops/store"), Link("nav.events", "/")),
    "anonymous": (Link("nav.events", "/"),),
}


class Frame(NamedTuple):
    actor: Actor | None
    path: str

    @property
    def role(self) -> str:
        return self.actor.role.value if self.actor is not None else "anonymous"

    @property
    def links(self) -> tuple[Link, ...]:
        return NAVIGATION[self.role]

    @property
    def here(self) -> str:
        """Where to come back to after logging in."""
        return quote(self.path, safe="/")


async def frame_of(request: AnyRequest, recognise: Recognise) -> Frame:
    return Frame(await recognise(request.scope), request.scope["path"])


def log_in_first(frame: Frame) -> Redirect:
    return Redirect(f"/login?next={frame.here}", status_code=303)


def page_errors(otherwise: ExceptionHandlersMap) -> ExceptionHandlersMap:
    """The handlers of the API, with pages in front of them for whoever reads HTML."""

    def shown(answer: Callable[[AnyRequest, Any], Response[Any]]) -> Callable[[AnyRequest, Any], Response[Any]]:
        def handle(request: AnyRequest, error: Exception) -> Response[Any]:
            told = answer(request, error)
            return _error_page(request, told) if _reads_html(request) else told

        return handle

    return {kind: shown(answer) for kind, answer in otherwise.items()}


def _reads_html(request: AnyRequest) -> bool:
    path, accepts = request.scope["path"], request.headers.get("accept", "")
    return "text/html" in accepts and not path.startswith(("/api/", "/static/"))


def _error_page(request: AnyRequest, told: Response[Any]) -> Response[str]:
    status = told.status_code or 500
    kind = {404: "not_found", 405: "not_found", 503: "away"}.get(status, "other")
    retry = told.headers.get("retry-after")
    return page(
        "error.html",
        {"kind": kind, "frame": Frame(None, request.scope["path"]), "retry": retry},
        status=status,
        headers={"retry-after": retry} if retry else {},
    )
