"""Faults of PostgreSQL: stopped at once, backends killed, locks held, connections used up, disk full."""

import asyncio
import os
import random
import signal
import time
from contextlib import suppress

import asyncpg

from aisle.embedded.supervisor import PostgresServer
from tests.chaos.soak.nemesis import Nemesis, fault

GONE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
BUSY_BACKENDS = """
    select count(*) from pg_stat_activity
    where backend_type = 'client backend' and pid <> pg_backend_pid()
      and (state <> 'idle' or state_change > now() - interval '300 ms')
"""


def _is_busy(nemesis: Nemesis) -> bool:
    return any(link.was_busy(0.3) for link in nemesis.world.postgres_links())


async def _connect(nemesis: Nemesis) -> asyncpg.Connection:
    return await asyncpg.connect(nemesis.world.config.database_url, timeout=5)


@fault("F9", "PostgreSQL is killed or stopped at once", takes="postgres")
async def postgres_killed(nemesis: Nemesis, chance: random.Random) -> int:
    bit, postgres = _is_busy(nemesis), nemesis.world.postgres
    how = chance.choice(("kill", "immediate", "fast"))
    if how == "kill":
        await asyncio.to_thread(postgres.kill)
    elif how == "immediate":
        with suppress(ProcessLookupError):
            os.kill(postgres.pid, signal.SIGQUIT)
        await _until_ended(postgres)
        await asyncio.to_thread(postgres.kill)
    else:
        await asyncio.to_thread(postgres.stop)
    await asyncio.sleep(chance.uniform(0, 2))
    await nemesis.world.start_again(postgres)
    return int(bit)


async def _until_ended(postgres: PostgresServer) -> None:
    for _ in range(100):
        if not postgres.running:
            return
        await asyncio.sleep(0.1)


@fault("F9", "backends of PostgreSQL are terminated", takes="postgres-backends", weight=2)
async def backends_terminated(nemesis: Nemesis, chance: random.Random) -> int:
    connection = await _connect(nemesis)
    try:
        busy = await connection.fetchval(BUSY_BACKENDS)
        await connection.execute(
            """select pg_terminate_backend(pid) from pg_stat_activity
               where backend_type = 'client backend' and pid <> pg_backend_pid() and random() < $1""",
            chance.choice((0.3, 0.7, 1.0)),
        )
        return int(busy > 0)
    finally:
        await connection.close()


@fault("F10", "rows and tables of PostgreSQL are locked", takes="postgres-backends", weight=2)
async def locks_held(nemesis: Nemesis, chance: random.Random) -> int:
    """Longer than the product waits, for some; then its statement is cancelled and it has to come back."""
    table = chance.choice(
        ("booking.bookings", "ticketing.tickets", "booking.purchases", "payment.payments", "booking.outbox")
    )
    connection = await _connect(nemesis)
    try:
        async with connection.transaction():
            await connection.execute("set local lock_timeout = '3s'")
            await connection.execute(f"lock table {table} in share row exclusive mode")
            waited = 0
            for _ in range(chance.choice((3, 8, 30))):
                await asyncio.sleep(0.2)
                waited = max(waited, await _waiters(nemesis))
            return int(waited > 0)
    finally:
        await connection.close()


@fault("F10", "transactions of PostgreSQL get into deadlocks", takes="postgres-backends", weight=2)
async def deadlocks(nemesis: Nemesis, chance: random.Random) -> int:
    """We lock some tickets, the product waits for one, and then we want what it has: somebody has to give up."""
    connection, met = await _connect(nemesis), 0
    try:
        await connection.execute("set deadlock_timeout = '10s'")  # so that it is the product that is told
        for _ in range(6):
            with suppress(asyncpg.PostgresError):
                met += await _cross(nemesis, connection, chance)
        return int(met > 0)
    finally:
        await connection.close()


async def _cross(nemesis: Nemesis, connection: asyncpg.Connection, chance: random.Random) -> int:
    event = chance.choice(nemesis.sale.events[-3:])
    async with connection.transaction():
        await connection.execute("set local lock_timeout = '2s'")
        wants = "select 1 from ticketing.tickets where event_id = $1 and (seat % 2 = $2) for update"
        await connection.fetch(wants, event, chance.randrange(2))
        await asyncio.sleep(0.3)
        waiters = await _waiters(nemesis)
        await connection.fetch("select 1 from booking.bookings where event_id = $1 for update", event)
    return waiters


async def _waiters(nemesis: Nemesis) -> int:
    other = await _connect(nemesis)
    try:
        return int(await other.fetchval("select count(*) from pg_stat_activity where wait_event_type = 'Lock'"))
    finally:
        await other.close()


@fault("F11", "the connections of PostgreSQL are used up", takes="postgres-backends")
async def connections_used_up(nemesis: Nemesis, chance: random.Random) -> int:
    since = time.monotonic()
    taken: list[asyncpg.Connection] = []
    try:
        first = await _connect(nemesis)
        taken.append(first)
        await first.execute(
            """select pg_terminate_backend(pid) from pg_stat_activity
               where backend_type = 'client backend' and pid <> pg_backend_pid()"""
        )
        deadline = time.monotonic() + chance.uniform(2, 5)
        full = False
        while time.monotonic() < deadline:
            try:
                taken.append(await _connect(nemesis))
            except GONE:
                full = True
                await asyncio.sleep(0.05)
        return int(full and nemesis.troubled(since) > 0)
    finally:
        for connection in taken:
            with suppress(*GONE):
                await connection.close(timeout=2)


@fault("F20", "the disk of PostgreSQL is full", takes="postgres postgres-backends")
async def postgres_disk_full(nemesis: Nemesis, chance: random.Random) -> int:
    world, since = nemesis.world, time.monotonic()
    if not world.has_disks:
        return 0
    filler = world.fill("postgres")
    await asyncio.sleep(chance.uniform(1.5, 4))
    troubled = nemesis.troubled(since)
    filler.unlink()
    await asyncio.sleep(1)
    if not world.postgres.running:
        nemesis.sale.note("PostgreSQL died of its full disk")
        await world.start_again(world.postgres)
    return int(troubled > 0)
