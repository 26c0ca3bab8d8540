"""Who watches the sales of an event, and the one reader that has them counted for all of them.

Every message is the whole picture, so a browser that missed some has missed nothing: there is no resuming and no gap.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import structlog

from aisle.errors import Problem
from aisle.limits import SALES_FRESH_SECONDS
from aisle.live import sse
from aisle.live.mailbox import Mailbox, Message
from aisle.metrics import Metrics

_CANNOT_COUNT = (Problem, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)

log = structlog.get_logger()


class Picture(NamedTuple):
    """The figures as JSON can hold them, and what of them counts as a change: not the time they were taken at."""

    figures: Any
    essence: Any


# Raises 404 unless the event is this seller's.
ReadSales = Callable[[int, UUID], Awaitable[Picture]]


class SalesWatch:
    def __init__(self, read: ReadSales, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._metrics = metrics
        self._clock = clock
        self._watchers: dict[tuple[int, UUID], set[Mailbox]] = {}
        self._told: dict[tuple[int, UUID], Picture] = {}
        # Above what an earlier process may have given: a browser takes its last id along.
        self._ids = itertools.count(time.time_ns() // 1000)

    async def join(self, mailbox: Mailbox, event: int, seller: UUID) -> None:
        picture = await self._read(event, seller)
        key = (event, seller)
        self._told.setdefault(key, picture)
        self._start(mailbox, picture)
        mailbox.when_lost(lambda: self._start(mailbox, self._told[key]))
        self._watchers.setdefault(key, set()).add(mailbox)

    def leave(self, mailbox: Mailbox, event: int, seller: UUID) -> None:
        watchers = self._watchers.get((event, seller), set())
        watchers.discard(mailbox)
        if not watchers:
            self._watchers.pop((event, seller), None)
            self._told.pop((event, seller), None)

    async def poll_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SALES_FRESH_SECONDS)
            for event, seller in list(self._watchers):
                try:
                    self._tell((event, seller), await self._read(event, seller))
                except _CANNOT_COUNT as error:
                    log.warning("sales_not_counted", event_id=event, reason=str(error))

    def _tell(self, key: tuple[int, UUID], picture: Picture) -> None:
        if key not in self._watchers or self._told[key].essence == picture.essence:
            return
        self._told[key] = picture
        message = self._message(picture)
        for mailbox in self._watchers[key]:
            self._metrics.sse_events_total.labels("sales").inc()
            if not mailbox.offer(message):
                self._metrics.sse_dropped_total.labels("slow").inc()

    def _start(self, mailbox: Mailbox, picture: Picture) -> None:
        self._metrics.sse_events_total.labels("sales").inc()
        mailbox.start_anew(self._message(picture))

    def _message(self, picture: Picture) -> Message:
        number = next(self._ids)
        return Message(sse.event("sales", picture.figures, number), number, self._clock())
