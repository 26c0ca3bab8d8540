"""Publishes what committed changes owe to the log: the rows of an outbox, oldest first, deleted once it has confirmed.

Any number of relays may run: rows are taken with SKIP LOCKED, so they share the work. A crash between the log's word
and the deletion publishes a message twice, which every receiver can bear.
"""

import asyncio

import asyncpg
import structlog

from aisle.crash_points import crash_point
from aisle.errors import Problem
from aisle.limits import RELAY_ROWS_MAX
from aisle.log import LogWriter
from aisle.messages import decode

TAKE = {
    "booking": "select id, message from booking.outbox order by id limit $1 for update skip locked",
    "ticketing": "select id, message from ticketing.outbox order by id limit $1 for update skip locked",
}
DELETE = {
    "booking": "delete from booking.outbox where id = any($1::bigint[])",
    "ticketing": "delete from ticketing.outbox where id = any($1::bigint[])",
}

log = structlog.get_logger()


class Relay:
    """One service's outbox. `wake` after a local write saves waiting for the next look."""

    def __init__(self, service: str, database: asyncpg.Pool, writer: LogWriter, *, interval_s: float = 0.5) -> None:
        self._service = service
        self._database = database
        self._writer = writer
        self._interval_s = interval_s
        self._woken = asyncio.Event()
        self.published = 0

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            try:
                while await self.relay_once() == RELAY_ROWS_MAX:
                    pass
            except (Problem, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.warning("relay_waits", service=self._service, reason=str(error))
                await asyncio.sleep(self._interval_s)
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def relay_once(self) -> int:
        """Publish one batch; returns how many messages it had."""
        async with self._database.acquire() as connection, connection.transaction():
            rows = await connection.fetch(TAKE[self._service], RELAY_ROWS_MAX)
            if rows:
                await self._writer.publish([decode(row["message"]) for row in rows])
                crash_point("after_relay")
                await connection.execute(DELETE[self._service], [row["id"] for row in rows])
        self.published += len(rows)
        return len(rows)
