"""HTTP routes of accounts: register, log in and out, who am I, tokens for programs.

Bodies are structs that refuse unknown fields, so nobody sets a field we did not mean to offer. The session travels in
a `__Host-` cookie that scripts cannot read; a token is shown once, in the answer that made it.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from litestar import Request, Response, Router, delete, get, post
from litestar.datastructures import Cookie
from litestar.exceptions import NotAuthorizedException
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from aisle.accounts.access import Access, CurrentActor
from aisle.accounts.account import EMAIL_CHARS_MAX, Account, Role
from aisle.accounts.client_address import client_address
from aisle.accounts.cross_site import COOKIE
from aisle.accounts.desk import Desk
from aisle.accounts.login import log_in, prove
from aisle.accounts.register import register
from aisle.accounts.store import Token
from aisle.audit import Deed
from aisle.errors import Problem

Email = Annotated[str, Meta(min_length=3, max_length=EMAIL_CHARS_MAX, examples=["ada@example.com"])]
Password = Annotated[str, Meta(min_length=1, max_length=512, description="8 to 128 characters.")]


class Registration(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    email: Email
    password: Password
    role: Literal["buyer", "seller"]


class LoginRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    email: Email
    password: Password


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """With e-mail and password, or from a logged-in browser without them."""

    name: Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
    days: Annotated[int, Meta(ge=1, le=365, description="How long it is good for.")] = 90
    email: Email | None = None
    password: Password | None = None


class TokenShown(msgspec.Struct, frozen=True):
    """The only answer that holds the token itself."""

    id: UUID
    name: str
    created_at: datetime
    expires_at: datetime
    token: str


class TokenList(msgspec.Struct, frozen=True):
    items: list[Token]


AnyRequest = Request[Any, Any, Any]


def account_routes(desk: Desk, access: Access) -> Router:
    return Router(
        "/api/v1", route_handlers=[*_session_routes(desk, access), *_token_routes(desk, access)], tags=["accounts"]
    )


def _session_routes(desk: Desk, access: Access) -> list[Any]:
    @post("/users", summary="Register as a buyer or a seller")
    async def register_user(request: AnyRequest, data: JSONBody[Registration]) -> Account:
        return await register(
            desk, email=data.email, password=data.password, role=Role(data.role), address=_address(desk, request)
        )

    @post("/sessions", summary="Log in: the session comes as a cookie")
    async def open_session(request: AnyRequest, data: JSONBody[LoginRequest]) -> Response[Account]:
        account, text = await log_in(
            desk,
            email=data.email,
            password=data.password,
            address=_address(desk, request),
            current=await access.recognise(request.scope),
        )
        return Response(account, cookies=[_cookie(text, max_age_s=int(desk.config.session_seconds_max))])

    no_cookie = [_cookie("", max_age_s=0)]

    @delete("/sessions/current", summary="Log out", status_code=204, response_cookies=no_cookie)
    async def end_session(actor: CurrentActor) -> None:
        if actor.session is None:
            raise Problem(404, "no_session", "this request was made with a token; revoke it instead")
        await desk.sessions.end(actor)

    @delete(
        "/sessions",
        summary="Log out everywhere; tokens of programs stay",
        status_code=204,
        response_cookies=no_cookie,
    )
    async def end_all_sessions(actor: CurrentActor) -> None:
        await desk.accounts.note(Deed.LOGGED_OUT_EVERYWHERE, actor.account_id)
        await desk.sessions.end_all(actor.account_id)

    @get("/me", summary="Who am I")
    async def me(actor: CurrentActor) -> Account:
        account = await desk.accounts.find(actor.account_id)
        if account is None:
            raise NotAuthorizedException("this account is gone")
        return account

    return [register_user, open_session, end_session, end_all_sessions, me]


def _token_routes(desk: Desk, access: Access) -> list[Any]:
    @post("/tokens", summary="Make a bearer token for a program; it is shown only now")
    async def make_token(request: AnyRequest, data: JSONBody[TokenRequest]) -> TokenShown:
        account_id = await _owner(desk, access, request, data)
        token, text = await desk.bearers.issue(account_id, data.name, data.days)
        return TokenShown(token.id, token.name, token.created_at, token.expires_at, text)

    @get("/tokens", summary="My tokens, newest first, without their secrets")
    async def list_tokens(actor: CurrentActor) -> TokenList:
        return TokenList(await desk.bearers.live(actor.account_id))

    @delete("/tokens/{token_id:uuid}", summary="Revoke one of my tokens", status_code=204)
    async def revoke_token(actor: CurrentActor, token_id: FromPath[UUID]) -> None:
        if not await desk.bearers.revoke(actor.account_id, token_id):
            raise Problem(404, "not_found", "you have no such token")

    return [make_token, list_tokens, revoke_token]


async def _owner(desk: Desk, access: Access, request: AnyRequest, data: TokenRequest) -> UUID:
    if data.email is not None and data.password is not None:
        account = await prove(desk, email=data.email, password=data.password, address=_address(desk, request))
        return account.id
    if data.email is not None or data.password is not None:
        raise Problem(422, "incomplete_credentials", "give both e-mail and password, or neither and a session")
    actor = await access.recognise(request.scope)
    if actor is None:
        raise NotAuthorizedException("give e-mail and password, or log in first")
    if actor.session is None:
        # A stolen token must not be able to make itself another one that outlives it.
        raise Problem(403, "session_required", "a token cannot make tokens; log in")
    return actor.account_id


def _address(desk: Desk, request: AnyRequest) -> str:
    client = request.scope["client"]
    return client_address(client[0] if client else None, request.scope["headers"], desk.proxies)


def _cookie(text: str, *, max_age_s: int) -> Cookie:
    return Cookie(
        key=COOKIE.decode(), value=text, path="/", max_age=max_age_s, secure=True, httponly=True, samesite="lax"
    )
