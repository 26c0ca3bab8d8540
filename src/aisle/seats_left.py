"""Where an event has nothing left, by counts a quarter of a second old at most, or a second where there is room.

After the last seat most of the crowd is still coming. They are told at once, at the price of a look into this table,
instead of being written down, sent through the log and refused by the store. Nobody is promised anything by it: a seat
that came back this very moment is refused once more, and whoever is let through is decided by the scripts as ever.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

import structlog

from aisle.booking.booking import Request
from aisle.ticketing.api import Counts

FRESH_SECONDS = 0.25
# As long as more than a tenth is free everywhere, nothing is about to be empty.
ROOMY_SECONDS = 1.0
ROOMY_SHARE = 0.1
EVENTS_KEPT_MAX = 10_000

# (section, subsection), (section, None), (None, None) for the hall, (pool, 0)
Where = tuple[str | None, int | None]

log = structlog.get_logger()


class Left(NamedTuple):
    until: float
    empty: Collection[Where]


class SeatsLeft:
    def __init__(
        self, count: Callable[[int], Awaitable[Sequence[Counts]]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count
        self._clock = clock
        self._kept: dict[int, Left] = {}
        self._counting: dict[int, asyncio.Task[Left]] = {}

    async def nothing_for(self, event: int, request: Request) -> bool:
        left = self._kept.get(event)
        if left is None or self._clock() >= left.until:
            counting = self._counting.get(event)
            if counting is None:
                counting = self._counting[event] = asyncio.create_task(self._look(event))
                counting.add_done_callback(lambda _: self._counting.pop(event))
            left = await asyncio.shield(counting)
        where: Where = (request.pool, 0) if request.pool is not None else (request.section, request.subsection)
        return where in left.empty

    async def _look(self, event: int) -> Left:
        try:
            counts = await self._count(event)
        except ValueError as error:
            # Keys that cannot be read are for the operator; who may have what is decided by the scripts.
            log.error("seats_not_counted", event_id=event, reason=str(error))
            counts = []
        roomy = all(one.available > ROOMY_SHARE * one.total for one in counts)
        until = self._clock() + (ROOMY_SECONDS if roomy else FRESH_SECONDS)
        left = Left(until, frozenset(empty_places(counts)))
        if len(self._kept) >= EVENTS_KEPT_MAX:
            self._kept.clear()
        self._kept[event] = left
        return left


def empty_places(counts: Sequence[Counts]) -> list[Where]:
    """Subsections, sections, pools and the hall in which no seat is available. What is not counted is not empty."""
    available: dict[Where, int] = {}
    for one in counts:
        wheres: list[Where] = [(one.section, one.subsection)]
        if one.subsection:
            wheres += [(one.section, None), (None, None)]
        for where in wheres:
            available[where] = available.get(where, 0) + one.available
    return [where for where, left in available.items() if left == 0]
