"""HTTP routes of a buyer's own data: all of it as a file, and its end.

Both are asked for with a session, never with a program's token: whoever steals a token must not get a person's data, or
end an account, with it. Erasing asks for the password once more.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import asyncpg
import msgspec
from litestar import Request, Response, Router, get, post
from litestar.exceptions import NotAuthorizedException
from litestar.params import JSONBody
from msgspec import Meta

from aisle.accounts.access import CurrentActor
from aisle.accounts.account import Actor
from aisle.accounts.client_address import client_address
from aisle.accounts.desk import Desk
from aisle.accounts.login import prove
from aisle.audit import Deed
from aisle.errors import Problem
from aisle.privacy import store


class Erasure(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    password: Annotated[str, Meta(min_length=1, max_length=512, description="Of the account that is to be erased.")]


@dataclass(frozen=True, slots=True)
class PrivacyDesk:
    database: asyncpg.Pool
    accounts: Desk
    empty_cart: Callable[[UUID], Awaitable[None]]


def privacy_routes(desk: PrivacyDesk) -> Router:
    @get("/me/data", summary="Everything that is kept about me, as one file")
    async def export_data(actor: CurrentActor) -> Response[bytes]:
        _require_session(actor)
        await desk.accounts.accounts.note(Deed.DATA_EXPORTED, actor.account_id)
        async with desk.database.acquire() as connection:
            found = await store.export(connection, actor.account_id)
        return Response(
            msgspec.json.format(msgspec.json.encode(found, enc_hook=str)),
            media_type="application/json",
            headers={"content-disposition": 'attachment; filename="my-data.json"'},
        )

    @post("/me/erase", status_code=204, summary="Erase my account; what I bought stays on the books without me")
    async def erase_account(actor: CurrentActor, data: JSONBody[Erasure], request: Request[Any, Any, Any]) -> None:
        _require_session(actor)
        account = await desk.accounts.accounts.find(actor.account_id)
        if account is None:
            raise NotAuthorizedException("this account is gone")
        client = request.scope["client"]
        address = client_address(client[0] if client else None, request.scope["headers"], desk.accounts.proxies)
        await prove(desk.accounts, email=account.email, password=data.password, address=address)
        await desk.empty_cart(account.id)
        async with desk.database.acquire() as connection:
            if not await store.erase(connection, account.id):
                raise Problem(409, "bookings_under_way", "pay for your bookings or cancel them first")
        await desk.accounts.sessions.end_all(account.id)

    return Router("/api/v1", route_handlers=[export_data, erase_account], tags=["privacy"])


def _require_session(actor: Actor) -> None:
    if actor.session is None:
        raise Problem(403, "session_required", "a token cannot do this; log in")
