"""What a seller sees of a sale: sums over tickets and bookings of one moment, so they always agree with each other.

Pure. Money is in minor units, at the price each ticket was sold for.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from aisle.sales.recent import RecentBooking


class Place(msgspec.Struct, frozen=True):
    """Tickets of one subsection or pool, counted."""

    place: int
    seats: int
    available: int
    held: int
    sold: int
    blocked: int
    admitted: int
    revenue: int


class SectionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """`held` seats belong to bookings that are not paid. `in_carts` of the available ones are held right now."""

    section: str
    seats: int
    available: int
    in_carts: int
    held: int
    sold: int
    blocked: int
    admitted: int
    revenue: int


class Minute(msgspec.Struct, frozen=True):
    minute: datetime
    tickets: int
    revenue: int


class Refunds(msgspec.Struct, frozen=True):
    tickets: int
    amount: int


class Lapsed(msgspec.Struct, frozen=True):
    """Holds that ran out without a checkout, and the carts they were in."""

    holds: int
    carts: int


class BookingFigures(msgspec.Struct, frozen=True, kw_only=True):
    """`conversion`: of the bookings and carts that had seats and whose end is known, the part that was paid.

    A cart becomes one booking, so a cart that ran out counts as much as a booking that was not paid.
    """

    processing: int
    waiting_for_payment: int
    paid: int
    refunded: int
    cancelled: int
    failed: int
    conversion: float | None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    event_id: int
    at: datetime
    currency: str
    revenue: int
    seats: int
    available: int
    in_carts: int
    held: int
    sold: int
    blocked: int
    admitted: int
    sell_through: float
    refunds: Refunds
    lapsed: Lapsed
    bookings: BookingFigures
    sections: list[SectionFigures]
    minutes: list[Minute]
    # The newest bookings; older ones by the page.
    recent: list[RecentBooking]


class Counted(msgspec.Struct, frozen=True):
    """Everything the database says, in one snapshot of it."""

    at: datetime
    places: list[Place]
    minutes: list[Minute]
    refunds: Refunds
    lapsed: Lapsed
    # state -> (bookings, of which had seats)
    bookings: dict[str, tuple[int, int]]
    recent: list[RecentBooking]


def figures_of(
    event_id: int, currency: str, sections: Mapping[int, str], counted: Counted, taken: Mapping[str, int]
) -> Figures:
    """`sections` names each place, `taken` says how many seats of a section the hot store has given away."""
    grouped: dict[str, list[Place]] = defaultdict(list)
    for place in counted.places:
        grouped[sections[place.place]].append(place)
    shown = [_section(name, places, taken.get(name)) for name, places in grouped.items()]
    return Figures(
        event_id=event_id,
        at=counted.at,
        currency=currency,
        refunds=counted.refunds,
        lapsed=counted.lapsed,
        bookings=_bookings(counted.bookings, counted.lapsed.carts),
        sell_through=_share(_sum(shown, "sold"), _sum(shown, "seats") - _sum(shown, "blocked")) or 0.0,
        sections=shown,
        minutes=counted.minutes,
        recent=counted.recent,
        **{name: _sum(shown, name) for name in TOTALS},
    )


TOTALS = ("revenue", "seats", "available", "in_carts", "held", "sold", "blocked", "admitted")


def _section(name: str, places: Sequence[Place], taken: int | None) -> SectionFigures:
    counts = {what: _sum(places, what) for what in TOTALS if what != "in_carts"}
    in_carts = 0 if taken is None else taken - counts["held"] - counts["sold"]
    # The store was asked a moment later: what it has given away may not be a ticket yet, or not any more.
    return SectionFigures(section=name, in_carts=max(0, min(in_carts, counts["available"])), **counts)


def _bookings(states: Mapping[str, tuple[int, int]], carts_lapsed: int) -> BookingFigures:
    def count(*names: str) -> int:
        return sum(states[name][0] for name in names if name in states)

    lost = sum(with_seats for state, (_, with_seats) in states.items() if state in ("CANCELLED", "FAILED"))
    won = count("PAID", "REFUNDED")
    return BookingFigures(
        processing=count("PROCESSING"),
        waiting_for_payment=count("PENDING_PAYMENT", "PAYING"),
        paid=count("PAID"),
        refunded=count("REFUNDED"),
        cancelled=count("CANCELLED"),
        failed=count("FAILED"),
        conversion=_share(won, won + lost + carts_lapsed),
    )


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _sum(rows: Iterable[object], name: str) -> int:
    return sum(getattr(row, name) for row in rows)


def sections_csv(figures: Figures) -> str:
    columns = [*SectionFigures.__struct_fields__, "currency"]
    rows = [[*msgspec.structs.astuple(section), figures.currency] for section in figures.sections]
    return _csv(columns, rows)


def minutes_csv(figures: Figures) -> str:
    rows = [[m.minute.isoformat(), m.tickets, m.revenue, figures.currency] for m in figures.minutes]
    return _csv(["minute", "tickets", "revenue", "currency"], rows)


def _csv(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()
