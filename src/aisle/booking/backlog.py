"""How many bookings wait for seats: as many as can still be answered in time, or too many to take more.

Looked at once a second while orders come, and beside them: nobody waits for the count, an idle process asks nothing.
"""

import asyncio
import time

import asyncpg
import structlog

from aisle.limits import BACKLOG_LOOK_SECONDS, PROCESSING_MAX

# Counts no further than it has to.
COUNT = "select count(*) from (select from booking.bookings where state = 'PROCESSING' limit $1) some"

log = structlog.get_logger()


class Backlog:
    def __init__(self, database: asyncpg.Pool, *, bookings_max: int = PROCESSING_MAX) -> None:
        self._database = database
        self._bookings_max = bookings_max
        self._full = False
        self._look_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    def is_full(self) -> bool:
        """As of the last look, which was a second ago at most."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + BACKLOG_LOOK_SECONDS
            if self._looking is None:
                self._looking = asyncio.create_task(self._look())
        return self._full

    async def _look(self) -> None:
        try:
            waiting = await self._database.fetchval(COUNT, self._bookings_max + 1)
            if self._full != (waiting > self._bookings_max):
                log.warning("orders_refused" if waiting > self._bookings_max else "orders_taken_again", waiting=waiting)
            self._full = waiting > self._bookings_max
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            # Orders need the same database, and hear of it themselves.
            log.warning("backlog_unknown", reason=str(error))
        finally:
            self._looking = None
