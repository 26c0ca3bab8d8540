"""An event as a seller describes it, the hall that follows from it, and the states of an event and of a ticket.

Pure. `Description` is what HTTP accepts; `plan_hall` checks it as a whole and numbers its subsections, best first. A
description that cannot be sold is refused here with a sentence that names the part that is wrong.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Meta

from aisle.limits import EVENT_SEATS_MAX, EVENT_SUBSECTIONS_MAX
from aisle.messages import PARTITIONS, SHARED_LANE
from aisle.ticketing.pool import Pool, PoolPlan

SEATS_PER_ROW_MAX = 500
SUBSECTION_SEATS_MAX = 10_000
SECTIONS_MAX = 1_000
POOLS_MAX = 100


class EventState(StrEnum):
    CREATING = "creating"  # rows and seats are still being written
    READY = "ready"  # both were verified equal
    ON_SALE = "on_sale"
    CLOSED = "closed"


EVENT_MOVES: dict[EventState, frozenset[EventState]] = {
    EventState.CREATING: frozenset({EventState.READY}),
    EventState.READY: frozenset({EventState.ON_SALE}),
    EventState.ON_SALE: frozenset({EventState.CLOSED}),
    EventState.CLOSED: frozenset({EventState.ON_SALE}),
}


class TicketState(IntEnum):
    """The same numbers as the two bits in the store."""

    AVAILABLE = 0
    RESERVED = 1
    SOLD = 2
    UNAVAILABLE = 3


TICKET_MOVES: dict[TicketState, frozenset[TicketState]] = {
    TicketState.AVAILABLE: frozenset({TicketState.RESERVED}),
    TicketState.RESERVED: frozenset({TicketState.SOLD, TicketState.AVAILABLE}),
    TicketState.SOLD: frozenset({TicketState.AVAILABLE}),
    TicketState.UNAVAILABLE: frozenset(),
}

Name = Annotated[str, Meta(min_length=1, max_length=200)]
SectionName = Annotated[str, Meta(pattern="^[A-Za-z0-9_]{1,32}$")]
Price = Annotated[int, Meta(ge=0, lt=10**10, description="Minor units of the event's currency.")]
SeatName = Annotated[str, Meta(pattern="^[1-9][0-9]{0,4}-[1-9][0-9]{0,2}$", description="`row-seat`, such as `5-10`.")]


class SubsectionPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`count` equal subsections in a row, numbered from `first` on."""

    rows: Annotated[int, Meta(ge=1, le=SUBSECTION_SEATS_MAX)]
    seats_per_row: Annotated[int, Meta(ge=1, le=SEATS_PER_ROW_MAX)]
    first: Annotated[int, Meta(ge=1, le=99_999)] = 1
    count: Annotated[int, Meta(ge=1, le=EVENT_SUBSECTIONS_MAX)] = 1
    blocked: Annotated[tuple[SeatName, ...], Meta(max_length=2000)] = ()
    accessible: Annotated[tuple[SeatName, ...], Meta(max_length=2000)] = ()


class SectionPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: SectionName
    price: Price
    subsections: Annotated[tuple[SubsectionPlan, ...], Meta(min_length=1, max_length=1000)]


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a seller says of an event. Sections come best first; an event may have pools instead of them, or as well."""

    name: Name
    starts_at: datetime
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$")]
    sections: Annotated[tuple[SectionPlan, ...], Meta(max_length=SECTIONS_MAX)] = ()
    pools: Annotated[tuple[PoolPlan, ...], Meta(max_length=POOLS_MAX)] = ()
    description: Annotated[str, Meta(max_length=5000)] = ""
    venue: Annotated[str, Meta(max_length=200)] = ""
    time_zone: str = "UTC"
    seats_per_booking: Annotated[int, Meta(ge=1, le=100)] = 10
    seats_per_buyer: Annotated[int, Meta(ge=1, le=100_000)] = 10
    own_lane: bool | None = None


class BadDescription(ValueError):
    """One sentence for the seller."""


class Subhall(msgspec.Struct, frozen=True, kw_only=True):
    """One subsection of a planned hall. `place` is its number inside the event, and its rank: 0 is the best."""

    section: str
    subsection: int
    place: int
    price: int
    rows: int
    seats_per_row: int
    blocked: tuple[int, ...]
    accessible: tuple[int, ...]

    @property
    def seats(self) -> int:
        return self.rows * self.seats_per_row


def plan_hall(description: Description) -> list[Subhall]:
    _check_times(description)
    if description.seats_per_buyer < description.seats_per_booking:
        raise BadDescription("seats_per_buyer is smaller than seats_per_booking")
    _check_names(description)
    hall: list[Subhall] = []
    for section in description.sections:
        for plan in section.subsections:
            for number in range(plan.first, plan.first + plan.count):
                hall.append(_subhall(section, plan, number, len(hall)))
                if len(hall) > EVENT_SUBSECTIONS_MAX:
                    raise BadDescription(f"an event has at most {EVENT_SUBSECTIONS_MAX} subsections")
    if len({(sub.section, sub.subsection) for sub in hall}) != len(hall):
        raise BadDescription("two subsections of a section have the same number")
    if sum(sub.seats for sub in hall) + sum(pool.capacity for pool in description.pools) > EVENT_SEATS_MAX:
        raise BadDescription(f"an event has at most {EVENT_SEATS_MAX} seats and places")
    return hall


def plan_pools(description: Description, hall: Sequence[Subhall]) -> list[Pool]:
    """The pools of a description that `plan_hall` has accepted, numbered after its hall."""
    return [
        Pool(
            pool=plan.name,
            place=len(hall) + n,
            partition=partition_of(len(description.sections) + n),
            price=plan.price,
            capacity=plan.capacity,
            places_per_buyer=plan.places_per_buyer,
            one_hold_per_buyer=plan.one_hold_per_buyer,
        )
        for n, plan in enumerate(description.pools)
    ]


def partition_of(section_number: int) -> int:
    """Sections are dealt over the partitions of a lane in their order, so neighbours do not queue behind each other."""
    return section_number % PARTITIONS


def lane_of(event_id: int, seats: int, own_lane: bool | None, *, own_lane_from_seats: int) -> str:
    own = seats >= own_lane_from_seats if own_lane is None else own_lane
    return str(event_id) if own else SHARED_LANE


def _subhall(section: SectionPlan, plan: SubsectionPlan, number: int, place: int) -> Subhall:
    if plan.rows * plan.seats_per_row > SUBSECTION_SEATS_MAX:
        raise BadDescription(f"{section.name}-{number} has more than {SUBSECTION_SEATS_MAX} seats")
    blocked, accessible = (_indexes(section.name, number, plan, names) for names in (plan.blocked, plan.accessible))
    return Subhall(
        section=section.name,
        subsection=number,
        place=place,
        price=section.price,
        rows=plan.rows,
        seats_per_row=plan.seats_per_row,
        blocked=blocked,
        accessible=accessible,
    )


def _indexes(section: str, number: int, plan: SubsectionPlan, names: tuple[str, ...]) -> tuple[int, ...]:
    indexes = set()
    for name in names:
        row, seat = map(int, name.split("-"))
        if row > plan.rows or seat > plan.seats_per_row:
            raise BadDescription(f"{section}-{number} has no seat {name}")
        indexes.add((row - 1) * plan.seats_per_row + seat - 1)
    return tuple(sorted(indexes))


def _check_names(description: Description) -> None:
    names = [section.name for section in description.sections]
    if len(set(names)) != len(names):
        raise BadDescription("two sections have the same name")
    pools = [pool.name for pool in description.pools]
    if len({*names, *pools}) != len(names) + len(pools):
        raise BadDescription("a pool has the name of another pool or of a section")
    if not names and not pools:
        raise BadDescription("an event needs a section or a pool")


def _check_times(description: Description) -> None:
    if description.starts_at.tzinfo is None:
        raise BadDescription("starts_at needs an offset, such as 2026-12-31T20:00:00+08:00")
    try:
        ZoneInfo(description.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadDescription(f"time_zone {description.time_zone[:40]!r} is not a known time zone") from None
