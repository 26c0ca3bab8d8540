"""Tickets in PostgreSQL: how they are reserved, sold and given back, a batch a statement.

The count of rows that matched is always checked: a statement that moves fewer tickets than it was asked to has met a
seat that is not what the store believed, and that is said, never passed over.
"""

from collections.abc import Sequence
from uuid import UUID

import asyncpg
import msgspec

from aisle.ticketing.event import TicketState

# A ticket that already belongs to the booking counts as moved: messages come twice, and a payment may overtake this.
RESERVE = """
    with wanted as (
        select * from unnest($1::bigint[], $2::int[], $3::int[], $4::uuid[], $5::bigint[])
            as w(event_id, place, seat, booking, price)
    )
    update ticketing.tickets t set state = greatest(t.state, 1), booking = w.booking, price = w.price
    from wanted w
    where (t.event_id, t.place, t.seat) = (w.event_id, w.place, w.seat) and (t.state = 0 or t.booking = w.booking)
    returning w.booking
"""

LOCK = """
    select 1 from ticketing.tickets
    where (event_id, place, seat) in (select * from unnest($1::bigint[], $2::int[], $3::int[]))
    order by event_id, place, seat for update
"""

# `is true` keeps the planner to the key: by its statistics, which are from before the sale, no ticket has an owner, and
# it would read the whole table for the few that it expects.
RELEASE = """
    with wanted as (
        select * from unnest($1::bigint[], $2::int[], $3::int[], $4::uuid[]) as w(event_id, place, seat, booking)
    )
    update ticketing.tickets t set state = 0, booking = null
    from wanted w
    where (t.event_id, t.place, t.seat) = (w.event_id, w.place, w.seat)
      and (t.booking = w.booking and t.state = any($5::int[])) is true
    returning w.booking
"""

SELL = """
    update ticketing.tickets t set state = 2, sold_at = coalesce(t.sold_at, now())
    from unnest($1::bigint[], $2::int[], $3::int[], $4::uuid[]) as w(event_id, place, seat, booking)
    where (t.event_id, t.place, t.seat) = (w.event_id, w.place, w.seat)
      and (t.booking = w.booking and t.state in (1, 2)) is true
    returning t.booking
"""

UNSELL = """
    update ticketing.tickets t set state = 1, sold_at = null
    from unnest($1::bigint[], $2::int[], $3::int[], $4::uuid[]) as w(event_id, place, seat, booking)
    where (t.event_id, t.place, t.seat) = (w.event_id, w.place, w.seat)
      and (t.booking = w.booking and t.state = 2) is true
"""

# The code of the ticket is void in the same moment in which somebody else can buy the seat. Who is inside stays there.
TAKE_BACK = """
    update ticketing.tickets t set state = 0, booking = null, sold_at = null, code_version = t.code_version + 1
    from unnest($1::bigint[], $2::int[], $3::int[], $4::uuid[]) as w(event_id, place, seat, booking)
    where (t.event_id, t.place, t.seat) = (w.event_id, w.place, w.seat)
      and (t.booking = w.booking and t.state = 2 and t.admitted_at is null) is true
    returning w.booking
"""


class SeatRef(msgspec.Struct, frozen=True):
    """One seat of one booking, by its key in the tickets table."""

    event_id: int
    place: int
    seat: int
    booking: UUID
    price: int = 0


async def analyze_tickets(connection: asyncpg.Connection) -> None:
    """Without fresh statistics the batched updates of a new event run eighty times slower."""
    await connection.execute("analyze ticketing.tickets")


async def reserve(connection: asyncpg.Connection, seats: Sequence[SeatRef]) -> dict[UUID, int]:
    """AVAILABLE -> RESERVED; how many seats of each booking are now reserved for it."""
    rows = await connection.fetch(RESERVE, *_columns(seats), [seat.price for seat in seats])
    return _counted(rows)


async def lock(connection: asyncpg.Connection, seats: Sequence[SeatRef]) -> None:
    """Wait for whoever is changing these tickets, so that the next statement sees what they did."""
    await connection.execute(LOCK, *_columns(seats)[:3])


async def release(
    connection: asyncpg.Connection, seats: Sequence[SeatRef], *, from_states: Sequence[TicketState]
) -> dict[UUID, int]:
    """Back to AVAILABLE; how many seats of each booking were given back now."""
    rows = await connection.fetch(RELEASE, *_columns(seats), [int(state) for state in from_states])
    return _counted(rows)


async def sell(connection: asyncpg.Connection, seats: Sequence[SeatRef]) -> dict[UUID, int]:
    """RESERVED -> SOLD; how many seats of each booking are now sold to it."""
    return _counted(await connection.fetch(SELL, *_columns(seats)))


async def unsell(connection: asyncpg.Connection, seats: Sequence[SeatRef]) -> None:
    """Undo a sale of this same transaction that did not find all its tickets."""
    await connection.execute(UNSELL, *_columns(seats))


async def take_back(connection: asyncpg.Connection, seats: Sequence[SeatRef]) -> dict[UUID, int]:
    """SOLD -> AVAILABLE with their codes void; how many seats of each booking."""
    return _counted(await connection.fetch(TAKE_BACK, *_columns(seats)))


def _columns(seats: Sequence[SeatRef]) -> tuple[list[int], list[int], list[int], list[UUID]]:
    return (
        [seat.event_id for seat in seats],
        [seat.place for seat in seats],
        [seat.seat for seat in seats],
        [seat.booking for seat in seats],
    )


def _counted(rows: Sequence[asyncpg.Record]) -> dict[UUID, int]:
    counts: dict[UUID, int] = {}
    for row in rows:
        counts[row["booking"]] = counts.get(row["booking"], 0) + 1
    return counts


async def taken_by(connection: asyncpg.Connection, event_id: int, bookings: Sequence[UUID]) -> list[asyncpg.Record]:
    """The tickets of these bookings, locked. Reads the whole event: for what happens after a rebuild only."""
    rows: list[asyncpg.Record] = await connection.fetch(
        """select booking, place, seat, state, price from ticketing.tickets
           where event_id = $1 and booking = any($2::uuid[]) order by place, seat for update""",
        event_id,
        list(bookings),
    )
    return rows


async def new_tickets(connection: asyncpg.Connection, event_id: int) -> set[tuple[int, int, tuple[int, ...]]]:
    """(place, seats, blocked seats) of an event that nobody has bought from yet."""
    rows = await connection.fetch(
        """select place, count(*) as seats,
                  coalesce(array_agg(seat order by seat) filter (where state = 3), '{}') as blocked
           from ticketing.tickets where event_id = $1 group by place""",
        event_id,
    )
    return {(row["place"], row["seats"], tuple(row["blocked"])) for row in rows}
