"""`aisle doctor`: looks at every part of an installation from outside, whether its processes run or not. Reads only.

A part that does not answer is a finding, and the others are looked at all the same.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import asyncpg

from aisle.config import Config
from aisle.db import connect
from aisle.dead_letters import count_dead_letters
from aisle.errors import AisleError, StartupError
from aisle.log_address import LogAddress, log_address
from aisle.log_lag import count_unread
from aisle.metrics import Metrics
from aisle.migrate import pending_migrations
from aisle.ops import store as ops_store
from aisle.ops.check_up import (
    UNREAD_SECONDS_MAX,
    Check,
    judge_clocks,
    judge_database,
    judge_disk,
    judge_log,
    judge_notes,
    judge_sections,
    judge_store,
)
from aisle.ops.notes import read_notes
from aisle.ops_bridges import look_at_store
from aisle.reservation.generation import Gate
from aisle.reservation.keys import Place, subsection_keys
from aisle.store import Store, open_store

ON_SALE = """
    select s.event_id, s.section, s.subsection from ticketing.subsections s
    join ticketing.events e on e.id = s.event_id where e.state = 'on_sale' order by 1, 2, 3 limit 20000
"""

Look = Callable[[], Awaitable[list[Check]]]
AWAY = (AisleError, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


async def examine(config: Config) -> list[Check]:
    """Every check that could be made. Raises StartupError if no part answers at all."""
    checks: list[Check] = []
    async with _database(config, checks) as connection, _store(config, checks) as store:
        if connection is None and store is None:
            raise StartupError("; ".join(check.detail for check in checks))
        ready = connection is not None and await _look_at_schema(connection, checks)
        clocks: dict[str, float] = {}
        if connection is not None:
            clocks["database"] = await _apart(
                lambda: connection.fetchval("select extract(epoch from clock_timestamp())")
            )
        if connection is not None and ready:
            checks += judge_database(await ops_store.look(connection, datetime.now(UTC)))
            checks.append(await _look_at_ticket_keys(connection, config))
        if store is not None:
            clocks["store"] = await _apart(lambda: _time_of(store))
            checks += await _look_into_store(store, connection if ready else None)
    checks += await _looked("log", config.kafka, lambda: _look_at_log(log_address(config)))
    checks.append(judge_clocks(clocks))
    checks.append(_look_at_disk(config))
    return checks


@asynccontextmanager
async def _database(config: Config, checks: list[Check]) -> AsyncIterator[asyncpg.Connection | None]:
    try:
        connection = await connect(config)
    except StartupError as error:
        checks.append(Check("database", False, str(error), "start PostgreSQL, or check AISLE_DATABASE_URL"))
        yield None
        return
    try:
        checks.append(Check("database", True, f"PostgreSQL {await connection.fetchval('show server_version')}"))
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _store(config: Config, checks: list[Check]) -> AsyncIterator[Store | None]:
    opened = open_store(config, Metrics())
    try:
        store = await opened.__aenter__()
    except AWAY as error:
        checks.append(Check("store", False, str(error), "start the store, or check AISLE_STORE_URL"))
        yield None
        return
    try:
        yield store
    finally:
        await opened.__aexit__(None, None, None)


async def _look_at_schema(connection: asyncpg.Connection, checks: list[Check]) -> bool:
    pending = await pending_migrations(connection)
    said = f"{len(pending)} migrations are missing ({pending[0]} ...)" if pending else "up to date"
    checks.append(Check("schema", not pending, said, "aisle migrate" if pending else ""))
    return not pending


async def _look_into_store(store: Store, connection: asyncpg.Connection | None) -> list[Check]:
    async def look() -> list[Check]:
        id = await connection.fetchval("select id from public.installation") if connection else ""
        view = await look_at_store(store, Gate(store, str(id)))
        checks = [one for one in judge_store(view) if connection or one.name != "generation"]
        if connection is not None:
            checks.append(judge_sections(await _closed(store, connection)))
        return [*checks, *judge_notes(await read_notes(store), datetime.now(UTC))]

    return await _looked("store", "it", look)


async def _closed(store: Store, connection: asyncpg.Connection) -> list[str]:
    """Subsections of events on sale that the store does not sell from."""
    places = [Place(row["event_id"], row["section"], row["subsection"]) for row in await connection.fetch(ON_SALE)]
    closed = []
    for start in range(0, len(places), 500):
        some = places[start : start + 500]
        states = await store.call_many([("HGET", subsection_keys(store.prefix, place)[1], "state") for place in some])
        closed += [str(place) for place, state in zip(some, states, strict=True) if state != b"open"]
    return closed


async def _look_at_log(address: LogAddress) -> list[Check]:
    dead, unread = await asyncio.gather(
        asyncio.to_thread(count_dead_letters, address), asyncio.to_thread(count_unread, address)
    )
    behind = {name: count for name, count in unread.items() if count}
    if behind:
        # What is on its way is no finding; what is still there after a while is.
        await asyncio.sleep(UNREAD_SECONDS_MAX)
        again = await asyncio.to_thread(count_unread, address)
        behind = {name: again[name] for name in behind if again.get(name)}
    return [Check("log", True, f"Kafka at {address}"), *judge_log(behind, dead)]


async def _look_at_ticket_keys(connection: asyncpg.Connection, config: Config) -> Check:
    row = await connection.fetchrow(
        "select count(*) filter (where revoked_at is null) as usable,"
        " count(*) filter (where revoked_at is null and sealed_with = '') as unsealed from ticketing.ticket_keys"
    )
    if not row["usable"]:
        return Check("ticket keys", True, "none yet: the first ticket makes one")
    if config.secret_key and row["unsealed"]:
        return Check(
            "ticket keys", False, f"{row['unsealed']} lie unsealed in the database", "aisle ticket-keys rotate"
        )
    return Check("ticket keys", True, f"{row['usable']}, {'unsealed' if row['unsealed'] else 'sealed'}")


def _look_at_disk(config: Config) -> Check:
    where = Path(config.data_dir)
    while not where.exists() and where != where.parent:
        where = where.parent
    usage = shutil.disk_usage(where)
    return judge_disk(config.data_dir, usage.free, usage.total)


async def _apart(ask: Callable[[], Awaitable[object]]) -> float:
    """How far a server's clock is ahead of ours, allowing for the time the question took."""
    before = time.time()
    theirs = float(str(await ask()))
    after = time.time()
    return theirs - after if theirs > after else min(0.0, theirs - before)


async def _time_of(store: Store) -> float:
    seconds, microseconds = await store.call("TIME")
    return int(seconds) + int(microseconds) / 1e6


async def _looked(name: str, is_set: str, look: Look) -> list[Check]:
    if not is_set:
        return [Check(name, False, "its address is not set", "set AISLE_KAFKA")]
    try:
        return await look()
    except AWAY as error:
        return [Check(name, False, str(error) or type(error).__name__, "start it, or check its address")]
