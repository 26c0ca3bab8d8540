"""Figures of an event, counted at most once a second and at most a tenth of the time, however many people look.

Counting reads every ticket of the event. An event of 50,000 seats takes some ten milliseconds, one of a million nearly
a second: then the figures are ten seconds old at most, and say so, instead of taking the database from the sale.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

import asyncpg
import msgspec

from aisle.audit import Deed, note
from aisle.errors import Problem
from aisle.limits import SALES_COUNT_SHARE, SALES_EVENTS_KEPT_MAX, SALES_FRESH_SECONDS
from aisle.sales import store
from aisle.sales.figures import Figures, figures_of
from aisle.sales.recent import RecentPage, Widths


class Sold(msgspec.Struct, frozen=True):
    """An event as far as its figures need to know it."""

    seller: UUID
    currency: str
    # place -> section or pool
    sections: Mapping[int, str]
    widths: Widths


@dataclass(frozen=True, slots=True)
class Kept:
    figures: Figures
    until: float


class SalesDesk:
    def __init__(
        self,
        database: asyncpg.Pool,
        find_event: Callable[[int], Awaitable[Sold]],
        taken: Callable[[int], Awaitable[Mapping[str, int]]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`taken`: seats by section that the hot store has given away; empty if it cannot be asked."""
        self._database = database
        self._find_event = find_event
        self._taken = taken
        self._clock = clock
        self._kept: dict[int, Kept] = {}
        # One count at a time, whatever is asked: reports never starve the sale.
        self._counting = asyncio.Lock()

    async def figures(self, event_id: int, seller: UUID) -> Figures:
        """Raises 404 for an event that is not this seller's."""
        event = await self._own(event_id, seller)
        return self._fresh(event_id) or await self._count(event_id, event)

    async def note_export(self, event_id: int, seller: UUID, by: str) -> None:
        async with self._database.acquire() as connection:
            await note(connection, Deed.SALES_EXPORTED, actor=seller, subject=event_id, detail={"by": by})

    async def bookings(self, event_id: int, seller: UUID, *, before: UUID | None, limit: int) -> RecentPage:
        """A page of the event's bookings, as they are now. Raises 404 for an event that is not this seller's."""
        event = await self._own(event_id, seller)
        async with self._database.acquire() as connection:
            found = await store.recent(connection, event_id, event.widths, before=before, limit=limit)
        return RecentPage(event.currency, found, found[-1].id if len(found) == limit else None)

    async def _own(self, event_id: int, seller: UUID) -> Sold:
        event = await self._find_event(event_id)
        if event.seller != seller:
            raise Problem(404, "not_found", "no such event")
        return event

    def _fresh(self, event_id: int) -> Figures | None:
        kept = self._kept.get(event_id)
        return kept.figures if kept is not None and self._clock() < kept.until else None

    async def _count(self, event_id: int, event: Sold) -> Figures:
        async with self._counting:
            if known := self._fresh(event_id):
                return known
            started = self._clock()
            try:
                async with self._database.acquire() as connection:
                    counted = await store.count(connection, event_id, event.widths)
            except TimeoutError:
                raise Problem(503, "figures_late", "counting took too long", retry_after_s=10) from None
            figures = figures_of(event_id, event.currency, event.sections, counted, await self._taken(event_id))
            took = self._clock() - started
            if len(self._kept) >= SALES_EVENTS_KEPT_MAX:
                self._kept.clear()
            self._kept[event_id] = Kept(figures, self._clock() + max(SALES_FRESH_SECONDS, took / SALES_COUNT_SHARE))
            return figures
