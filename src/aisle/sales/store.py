"""Sums over tickets and bookings, and the newest bookings: the SQL of this slice. No sale waits for it.

It writes one thing: holds that ran out, which leave no trace anywhere else.
"""

from collections.abc import Sequence
from uuid import UUID

import asyncpg
import msgspec

from aisle.limits import SALES_RECENT_BOOKINGS
from aisle.messages import Part
from aisle.sales.figures import Counted, Lapsed, Minute, Place, Refunds
from aisle.sales.recent import RecentBooking, Widths, seats_sold

PLACES = """
    select place, count(*) as seats,
           count(*) filter (where state = 0) as available, count(*) filter (where state = 1) as held,
           count(*) filter (where state = 2) as sold, count(*) filter (where state = 3) as blocked,
           count(admitted_at) as admitted, coalesce(sum(price) filter (where state = 2), 0)::bigint as revenue
    from ticketing.tickets where event_id = $1 group by place order by place
"""

MINUTES = """
    select date_trunc('minute', sold_at, 'UTC') as minute, count(*) as tickets, sum(price)::bigint as revenue
    from ticketing.tickets where event_id = $1 and state = 2 and sold_at is not null group by 1 order by 1
"""

REFUNDS = """
    select count(*) as tickets, coalesce(sum(price), 0)::bigint as amount
    from ticketing.voided_codes where event_id = $1 and reason = 'refunded'
"""

BOOKINGS = """
    select state, count(*) as bookings, count(*) filter (where parts <> '[]') as with_seats
    from booking.bookings where event_id = $1 group by state
"""

LAPSED = """
    select count(*) as holds, count(distinct (owner, lapsed_at)) as carts
    from sales.lapsed_holds where event_id = $1
"""

NOTE_LAPSED = """
    insert into sales.lapsed_holds (event_id, hold, owner, lapsed_at)
    select event_id, hold, owner, to_timestamp(lapsed_ms / 1000.0)
    from unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[]) as l(event_id, hold, owner, lapsed_ms)
    on conflict do nothing
"""

# By the index of an event's bookings, whose ids are in the order they were placed.
RECENT = """
    select id, state, quantity, parts, total, placed_at, ended_at
    from booking.bookings where event_id = $1 and ($2::uuid is null or id < $2) order by id desc limit $3
"""

_parts = msgspec.json.Decoder(list[Part]).decode


async def count(connection: asyncpg.Connection, event_id: int, widths: Widths) -> Counted:
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        at = await connection.fetchval("select clock_timestamp()")
        places = [Place(**row) for row in await connection.fetch(PLACES, event_id)]
        minutes = [Minute(**row) for row in await connection.fetch(MINUTES, event_id)]
        refunds = Refunds(**await connection.fetchrow(REFUNDS, event_id))
        lapsed = Lapsed(**await connection.fetchrow(LAPSED, event_id))
        states = await connection.fetch(BOOKINGS, event_id)
        newest = await recent(connection, event_id, widths, before=None, limit=SALES_RECENT_BOOKINGS)
    bookings = {row["state"]: (row["bookings"], row["with_seats"]) for row in states}
    return Counted(at, places, minutes, refunds, lapsed, bookings, newest)


async def recent(
    connection: asyncpg.Connection, event_id: int, widths: Widths, *, before: UUID | None, limit: int
) -> list[RecentBooking]:
    """Newest first; `before` is the last one of the page before."""
    return [
        RecentBooking(
            id=row["id"],
            state=row["state"],
            quantity=row["quantity"],
            seats=seats_sold(_parts(row["parts"]), widths),
            total=row["total"],
            placed_at=row["placed_at"],
            ended_at=row["ended_at"],
        )
        for row in await connection.fetch(RECENT, event_id, before, limit)
    ]


async def note_lapsed(connection: asyncpg.Connection, holds: Sequence[tuple[int, str, str, int]]) -> None:
    """Write holds down that ran out: event, id, owner, deadline in ms. Each counts once, however often it is told."""
    # In one order, so that two sweepers with the same news do not wait for each other in a circle.
    await connection.execute(NOTE_LAPSED, *map(list, zip(*sorted(holds), strict=True)))
