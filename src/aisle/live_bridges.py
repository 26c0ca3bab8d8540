"""What the live slice is given to read: seats from the reservation slice, events and bookings from theirs.

Used by the composition root only. Nothing here decides but one thing: an event that is not public is not found.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from uuid import UUID

from aisle.accounts.access import Access
from aisle.accounts.desk import Desk
from aisle.booking import store as bookings
from aisle.booking.api import view_of
from aisle.bridges import sales_from
from aisle.db import connect
from aisle.errors import Problem
from aisle.limits import LIVE_BOOKINGS_PER_BUYER_MAX
from aisle.live.bookings import Bookings, Owned
from aisle.live.connections import Limits
from aisle.live.hall import SeatMap, Subsection
from aisle.live.hub import Hub, open_hub
from aisle.live.seats import Upstream
from aisle.metrics import Metrics
from aisle.reservation.keys import Place
from aisle.reservation.reads import seat_maps, statuses
from aisle.services import Parts
from aisle.store import Store
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.event import EventState

# A booking that ended is still told for so long, so that a buyer who comes back learns what became of it.
RECENTLY = timedelta(minutes=15)


@asynccontextmanager
async def open_live(parts: Parts, desk: Desk, metrics: Metrics) -> AsyncIterator[Hub]:
    config = parts.config
    limits = Limits(config.live_connections_max, config.live_queue_messages, config.live_recheck_seconds)
    seats, own_bookings = seats_from(parts.catalogue, parts.store), bookings_from(parts)
    async with open_hub(seats, own_bookings, Access(desk).still_valid, limits, metrics) as hub:
        yield hub


def seats_from(catalogue: Catalogue, store: Store) -> Upstream:
    async def check_public(event_id: int) -> None:
        if (await catalogue.find(event_id)).event.state not in (EventState.ON_SALE, EventState.CLOSED):
            raise Problem(404, "not_found", "no such event")

    async def subsections(event_id: int) -> list[Subsection]:
        halls = (await catalogue.find(event_id)).halls
        return [Subsection(event_id, h.section, h.subsection, h.rows, h.seats_per_row) for h in halls]

    async def versions(asked: Sequence[Subsection]) -> list[int | None]:
        return [status.version if status else None for status in await statuses(store, _places(asked))]

    async def maps(asked: Sequence[Subsection]) -> list[SeatMap | None]:
        found = await seat_maps(store, _places(asked))
        return [SeatMap(seats.version, seats.packed) if seats else None for seats in found]

    return Upstream(check_public, subsections, versions, maps)


def _places(asked: Sequence[Subsection]) -> list[Place]:
    return [Place(s.event, s.section, s.number) for s in asked]


def bookings_from(parts: Parts) -> Bookings:
    find_sale = sales_from(parts.catalogue)

    async def changed(ids: Sequence[UUID]) -> list[Owned]:
        async with parts.database.acquire() as connection:
            found = await bookings.owned(connection, ids)
        return [Owned(buyer, await view_of(booking, find_sale)) for buyer, booking in found]

    async def current(buyers: Sequence[UUID]) -> list[Owned]:
        async with parts.database.acquire() as connection:
            found = await bookings.current_of(
                connection, buyers, ended_after=parts.clock() - RECENTLY, each=LIVE_BOOKINGS_PER_BUYER_MAX
            )
        return [Owned(buyer, await view_of(booking, find_sale)) for buyer, booking in found]

    return Bookings(partial(connect, parts.config), changed, current)
