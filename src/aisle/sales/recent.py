"""The bookings of an event as its seller sees them, newest first: what became of each, its seats, its amount. Pure.

Who the buyer is stays out of it: a seller needs no names to see how a sale goes.
"""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from aisle.messages import Part

# (section, subsection) -> seats a row, which turns an index into the name of a seat
Widths = Mapping[tuple[str, int], int]


class SeatsSold(msgspec.Struct, frozen=True):
    """Seats of one subsection. Subsection 0 is a pool: its places are counted and have no names."""

    section: str
    subsection: int
    seats: list[str]
    price: int
    places: int


class RecentBooking(msgspec.Struct, frozen=True, kw_only=True):
    """`total` is what was asked for the seats it has; a booking that never got any has 0."""

    id: UUID
    state: str
    quantity: int
    seats: list[SeatsSold]
    total: int
    placed_at: datetime
    ended_at: datetime | None


class RecentPage(msgspec.Struct, frozen=True):
    currency: str
    items: list[RecentBooking]
    next: UUID | None


def seats_sold(parts: list[Part], widths: Widths) -> list[SeatsSold]:
    return [SeatsSold(p.section, p.subsection, _names(p, widths), p.price, len(p.seats)) for p in parts]


def _names(part: Part, widths: Widths) -> list[str]:
    if part.in_pool:
        return []
    width = widths[part.section, part.subsection]
    return [f"{seat // width + 1}-{seat % width + 1}" for seat in part.seats]
