"""Counts over bookings and outboxes: the SQL of this slice. Reads only, over small partial indexes."""

from datetime import datetime, timedelta

import asyncpg

from aisle.ops.report import BookingCounts, DatabaseView, Queue

# Expiry runs every second or so: what is late by more than this is not on its way.
LATE = timedelta(seconds=10)

# One query for each partial index: together they would read every booking there ever was.
PROCESSING = "select count(*) from booking.bookings where state = 'PROCESSING'"
UNPAID = """
    select count(*) as waiting_for_payment, count(*) filter (where deadline < $1) as overdue
    from booking.bookings where state = 'PENDING_PAYMENT'
"""

LANES = """
    select lane as name, count(*) as waiting, extract(epoch from $1 - min(placed_at))::float8 as oldest_s
    from booking.bookings where state = 'PROCESSING' group by lane order by oldest_s desc limit 100
"""

OUTBOX = """
    select '{name}' as name, count(*) as waiting,
           coalesce(extract(epoch from $1 - min(written_at)), 0)::float8 as oldest_s
    from {name}.outbox
"""

PAYING = """
    select 'paying' as name, count(*) as waiting,
           coalesce(extract(epoch from $1 - min(started_at)), 0)::float8 as oldest_s
    from payment.payments where state in ('STARTED', 'ACTION', 'AUTHORISED', 'ABANDONED', 'LATE')
"""

REFUNDS = """
    select 'refunds' as name, count(*) as waiting,
           coalesce(extract(epoch from $1 - min(asked_at)), 0)::float8 as oldest_s
    from payment.refunds where state = 'ASKED'
"""


async def look(connection: asyncpg.Connection, now: datetime) -> DatabaseView:
    unpaid = await connection.fetchrow(UNPAID, now - LATE)
    lanes = await connection.fetch(LANES, now)
    outboxes = [await connection.fetchrow(OUTBOX.format(name=name), now) for name in ("booking", "ticketing")]
    return DatabaseView(
        bookings=BookingCounts(processing=await connection.fetchval(PROCESSING), **unpaid),
        lanes=[Queue(**row) for row in lanes],
        outboxes=[Queue(**row) for row in outboxes],
        paying=Queue(**await connection.fetchrow(PAYING, now)),
        refunds=Queue(**await connection.fetchrow(REFUNDS, now)),
    )
