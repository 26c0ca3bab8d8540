"""Forget what is old: bookings that failed or were cancelled and never saw money, and tokens that have ended.

Paid bookings, payments and the ledger stay: bookkeeping decides about them, not we. Any number of processes may do
this at the same time; rows are shared by SKIP LOCKED.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import asyncpg
import structlog

from aisle.ids import first_id
from aisle.privacy import store

INTERVAL_SECONDS = 3600.0
PAUSE_SECONDS = 0.2

log = structlog.get_logger()


async def forget_for_ever(database: asyncpg.Pool, *, days: int, clock: Callable[[], datetime]) -> None:
    while True:
        try:
            forgotten = await forget_old(database, days=days, now=clock())
            if forgotten:
                log.info("old_bookings_forgotten", bookings=forgotten)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("forgetting_waits", reason=str(error))
        await asyncio.sleep(INTERVAL_SECONDS)


async def forget_old(database: asyncpg.Pool, *, days: int, now: datetime) -> int:
    """A few hundred at a time, with pauses: nobody who buys is to notice."""
    before = now - timedelta(days=days)
    forgotten = 0
    while True:
        async with database.acquire() as connection:
            gone = await store.forget(connection, ended_before=before, placed_before=first_id(before), now=now)
        forgotten += gone
        if gone < store.FORGET_ROWS_MAX:
            return forgotten
        await asyncio.sleep(PAUSE_SECONDS)
