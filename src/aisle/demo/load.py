"""Load the demonstration once: its accounts, its events, on sale. To repeat it changes nothing.

Accounts go through the accounts slice, since nobody can register door staff over HTTP; everything else is what a
seller does over HTTP. An advisory lock makes two loaders take turns, so a second one sees what the first has made.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg

from aisle.accounts.desk import Desk, open_desk
from aisle.accounts.register import create_account
from aisle.config import Config
from aisle.db import open_database
from aisle.demo.conversation import Answer, Person
from aisle.demo.season import DOOR, LOGINS, season
from aisle.errors import Problem, StartupError
from aisle.metrics import Metrics
from aisle.store import open_store

READY_SECONDS_MAX = 60
LOCK = 0x61_69_73_6C_65  # "aisle"

FIND_EVENT = """
    select id, state from ticketing.events where seller = $1 and name = $2 and starts_at > now() order by id limit 1
"""


async def load_demo(config: Config, address: str) -> list[int]:
    """The ids of the demonstration's events, all of them on sale."""
    async with desk_of(config) as (database, desk), database.acquire() as connection:
        await connection.execute("select pg_advisory_lock($1)", LOCK)
        try:
            seller = await _accounts(database, desk)
            issued = await desk.bearers.issue(seller, "demonstration", 1)
            try:
                person = Person(address, issued.text)
                events = [await _event(connection, person, seller, show) for show in season(datetime.now(UTC))]
                for event in events:
                    granted = await person.put(f"/events/{event}/door-staff", {"email": DOOR.email})
                    _expect(granted, f"the door of event {event}")
                return events
            finally:
                await desk.bearers.revoke(seller, issued.token.id)
        finally:
            await connection.execute("select pg_advisory_unlock($1)", LOCK)


@asynccontextmanager
async def desk_of(config: Config) -> AsyncIterator[tuple[asyncpg.Pool, Desk]]:
    async with (
        open_database(config) as database,
        open_store(config, Metrics()) as store,
        open_desk(config, database, store) as desk,
    ):
        yield database, desk


async def _accounts(database: asyncpg.Pool, desk: Desk) -> UUID:
    """Make the logins that are missing; returns the seller's id."""
    now = datetime.now(UTC)
    known = await database.fetch("select email from accounts.accounts where email = any($1)", [x.email for x in LOGINS])
    missing = [login for login in LOGINS if login.email not in {row["email"] for row in known}]
    for login in missing:
        try:
            await create_account(
                desk.accounts, desk.passwords, email=login.email, password=login.password, role=login.role, now=now
            )
        except Problem as problem:
            raise StartupError(f"{login.email}: {problem.detail}") from None
    seller: UUID = await database.fetchval("select id from accounts.accounts where email = $1", LOGINS[0].email)
    return seller


async def _event(connection: asyncpg.Connection, seller: Person, seller_id: UUID, show: dict[str, Any]) -> int:
    found = await connection.fetchrow(FIND_EVENT, seller_id, show["name"])
    event = found["id"] if found else _expect(await seller.post("/events", show), show["name"])["id"]
    if found and found["state"] in ("on_sale", "closed"):  # a sale that somebody closed stays closed
        return int(event)
    deadline = asyncio.get_running_loop().time() + READY_SECONDS_MAX
    while (opened := await seller.post(f"/events/{event}/open", {})).status == 409:
        if asyncio.get_running_loop().time() > deadline:
            raise StartupError(f"{show['name']} was not ready after {READY_SECONDS_MAX} s; do the workers run?")
        await asyncio.sleep(0.1)
    return int(_expect(opened, show["name"])["id"])


def _expect(answer: Answer, what: str) -> Any:
    if not 200 <= answer.status < 300:
        raise StartupError(f"{what}: {answer.status} {answer.body}")
    return answer.body
