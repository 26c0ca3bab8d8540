"""Reads that may be a moment old: from a read replica if there is one, else from the primary. Never for a decision.

The sessions on the replica are read-only, so that a statement that changes something fails there even if the address is
that of the primary. A replica that does not answer, or cannot, is left alone for a while; the primary answers instead.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg
import msgspec
import structlog

from aisle.config import Config
from aisle.db import open_pool
from aisle.limits import REPLICA_PAUSE_SECONDS, REPLICA_SECONDS_MAX

Value = TypeVar("Value")
Read = Callable[[asyncpg.Connection], Awaitable[Value]]

# A replica that is away, behind by a migration, or that gave the query up to follow the primary.
CANNOT = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)

log = structlog.get_logger()


class Browsing:
    def __init__(
        self, primary: asyncpg.Pool, replica: asyncpg.Pool | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._primary = primary
        self._replica = replica
        self._clock = clock
        self._again_at = float("-inf")

    async def read(self, read: Read[Value]) -> Value:
        if self._replica is not None and self._clock() >= self._again_at:
            try:
                async with asyncio.timeout(REPLICA_SECONDS_MAX), self._replica.acquire() as connection:
                    return await read(connection)
            except asyncpg.ReadOnlySQLTransactionError:
                raise  # a change does not belong here, and is not made at the primary either
            except CANNOT as error:
                self._again_at = self._clock() + REPLICA_PAUSE_SECONDS
                log.warning("replica_left_alone", reason=str(error), seconds=REPLICA_PAUSE_SECONDS)
        async with self._primary.acquire() as connection:
            return await read(connection)


@asynccontextmanager
async def open_browsing(config: Config, primary: asyncpg.Pool) -> AsyncIterator[Browsing]:
    """Nothing is asked of the replica before somebody browses: a start does not depend on it."""
    if not config.database_read_url:
        yield Browsing(primary)
        return
    there = msgspec.structs.replace(config, database_url=config.database_read_url)
    pool = await open_pool(there, min_size=0, default_transaction_read_only="on")
    try:
        yield Browsing(primary, pool)
    finally:
        pool.terminate()
