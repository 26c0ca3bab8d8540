"""What the live slice is given to read: seats from the reservation slice, events and bookings from theirs.

Used by the composition root only. Nothing here decides but one thing: an event that is not public is not found.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from uuid import UUID

import msgspec

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
from aisle.live.sales import Picture, ReadSales
from aisle.live.seats import Upstream
from aisle.messages import POOL
from aisle.metrics import Metrics
from aisle.reservation.keys import Place
from aisle.reservation.pool import PoolPlace, PoolStatus
from aisle.reservation.pools import Pools
from aisle.reservation.reads import seat_maps, statuses
from aisle.sales.api import last_minutes
from aisle.sales.desk import SalesDesk
from aisle.services import Parts
from aisle.store import Store
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.event import EventState

# A booking that ended is still told for so long, so that a buyer who comes back learns what became of it.
RECENTLY = timedelta(minutes=15)
LIVE_SALES_MINUTES = 60


@asynccontextmanager
async def open_live(parts: Parts, desk: Desk, sales: SalesDesk, metrics: Metrics) -> AsyncIterator[Hub]:
    config = parts.config
    limits = Limits(config.live_connections_max, config.live_queue_messages, config.live_recheck_seconds)
    seats, own_bookings = seats_from(parts.catalogue, parts.store), bookings_from(parts)
    async with open_hub(seats, own_bookings, pictures_of(sales), Access(desk).still_valid, limits, metrics) as hub:
        yield hub


def pictures_of(sales: SalesDesk) -> ReadSales:
    async def read(event_id: int, seller: UUID) -> Picture:
        figures = await sales.figures(event_id, seller)
        whole = msgspec.to_builtins(last_minutes(figures, LIVE_SALES_MINUTES))
        return Picture(whole, msgspec.structs.replace(figures, at=None))

    return read


def seats_from(catalogue: Catalogue, store: Store) -> Upstream:
    pools = Pools(store)

    async def check_public(event_id: int) -> None:
        if (await catalogue.find(event_id)).event.state not in (EventState.ON_SALE, EventState.CLOSED):
            raise Problem(404, "not_found", "no such event")

    async def subsections(event_id: int) -> list[Subsection]:
        listing = await catalogue.find(event_id)
        halls = [Subsection(event_id, h.section, h.subsection, h.rows, h.seats_per_row) for h in listing.halls]
        return halls + [Subsection(event_id, p.pool, POOL, 1, p.capacity) for p in listing.pools]

    async def versions(asked: Sequence[Subsection]) -> list[int | None]:
        found = {s.place: s.version for s in await statuses(store, _places(asked)) if s}
        counted = {s.place: s.version for s in await pools.statuses(_pools(asked)) if s}
        return [counted.get(_pool(s)) if s.number == POOL else found.get(_place(s)) for s in asked]

    async def maps(asked: Sequence[Subsection]) -> list[SeatMap | None]:
        found = {m.place: SeatMap(m.version, m.packed) for m in await seat_maps(store, _places(asked)) if m}
        drawn = {s.place: _drawn(s) for s in await pools.statuses(_pools(asked)) if s}
        return [drawn.get(_pool(s)) if s.number == POOL else found.get(_place(s)) for s in asked]

    return Upstream(check_public, subsections, versions, maps)


def _drawn(status: PoolStatus) -> SeatMap:
    """A pool as a row of places, sold ones first, then held, then free: browsers draw counts as they draw seats."""
    sold, taken = status.sold, status.sold + status.held
    packed = bytearray((status.capacity + 3) // 4)
    packed[: sold // 4] = b"\xaa" * (sold // 4)
    first, last = (sold + 3) // 4, taken // 4
    packed[first : max(first, last)] = b"\x55" * (last - first)
    # What is left are the places beside the two borders, in bytes that hold more than one state.
    borders = (*range(sold // 4 * 4, min(first * 4, taken)), *range(max(first, last) * 4, taken))
    for place in borders:
        packed[place // 4] |= (2 if place < sold else 1) << (6 - 2 * (place % 4))
    return SeatMap(status.version, bytes(packed))


def _place(subsection: Subsection) -> Place:
    return Place(subsection.event, subsection.section, subsection.number)


def _pool(subsection: Subsection) -> PoolPlace:
    return PoolPlace(subsection.event, subsection.section)


def _places(asked: Sequence[Subsection]) -> list[Place]:
    return [_place(s) for s in asked if s.number != POOL]


def _pools(asked: Sequence[Subsection]) -> list[PoolPlace]:
    return [_pool(s) for s in asked if s.number == POOL]


def bookings_from(parts: Parts) -> Bookings:
    find_sale = sales_from(parts.catalogue)

    async def changed(ids: Sequence[UUID]) -> list[Owned]:
        async with parts.database.acquire() as connection:
            found = await bookings.owned(connection, ids)
        return [Owned(buyer, view_of(booking, await find_sale(booking.event_id))) for buyer, booking in found]

    async def current(buyers: Sequence[UUID]) -> list[Owned]:
        async with parts.database.acquire() as connection:
            found = await bookings.current_of(
                connection, buyers, ended_after=parts.clock() - RECENTLY, each=LIVE_BOOKINGS_PER_BUYER_MAX
            )
        return [Owned(buyer, view_of(booking, await find_sale(booking.event_id))) for buyer, booking in found]

    return Bookings(partial(connect, parts.config), changed, current)
