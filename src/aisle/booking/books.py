"""What an operator must see of money without asking: what waits to be gone on with, and whether the books agree.

Every process that resolves payments looks, and shows the same. Counting the books reads all of them: once a minute at
most, and at most a tenth of the time.
"""

import asyncio
import time
from datetime import datetime

import asyncpg
import structlog

from aisle.booking.pay import Till
from aisle.limits import BOOKS_COUNT_SHARE, BOOKS_INTERVAL_SECONDS, DUE_INTERVAL_SECONDS
from aisle.metrics import MoneyMetrics
from aisle.payment.payment import OPEN

DUE = """
    select state as kind, count(*) as due, min(look_at) as since from payment.payments
    where look_at <= $1 and state in ('STARTED', 'ACTION', 'AUTHORISED', 'ABANDONED', 'LATE') group by state
    union all
    select 'refund', count(*), min(look_at) from payment.refunds where look_at <= $1 and state = 'ASKED'
"""

# A payment is CAPTURED, its booking PAID and its sale booked in one transaction, so they agree in every snapshot.
IMBALANCE = """
    with books as (
        select currency, sum(case when to_account = 'sales' then amount else -amount end) as sales
        from payment.ledger where to_account = 'sales' or from_account = 'sales' group by currency
    ), paid as (
        select p.currency, sum(b.total) as price from payment.payments p join booking.bookings b on b.id = p.booking
        where p.state = 'CAPTURED' group by p.currency
    )
    select currency, (coalesce(sales, 0) - coalesce(price, 0))::bigint as off from books full join paid using (currency)
"""

log = structlog.get_logger()


async def watch_books_for_ever(till: Till) -> None:
    books_at = 0.0
    while True:
        try:
            await show_due(till.database, till.metrics, now=till.clock())
            if time.monotonic() >= books_at:
                started = time.monotonic()
                await show_books(till.database, till.metrics)
                took = time.monotonic() - started
                books_at = time.monotonic() + max(BOOKS_INTERVAL_SECONDS, took / BOOKS_COUNT_SHARE)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("books_not_counted", reason=str(error))
        await asyncio.sleep(DUE_INTERVAL_SECONDS)


async def show_due(database: asyncpg.Pool, metrics: MoneyMetrics, *, now: datetime) -> None:
    rows = {row["kind"]: row for row in await database.fetch(DUE, now)}
    for kind in (*OPEN, "refund"):
        metrics.payments_due.labels(kind.lower()).set(rows[kind]["due"] if kind in rows else 0)
    since = [row["since"] for row in rows.values() if row["since"] is not None]
    metrics.payments_oldest_due_seconds.set((now - min(since)).total_seconds() if since else 0)


async def show_books(database: asyncpg.Pool, metrics: MoneyMetrics) -> None:
    for row in await database.fetch(IMBALANCE):
        metrics.ledger_imbalance.labels(row["currency"]).set(row["off"])
        if row["off"]:
            log.error("books_do_not_agree", currency=row["currency"], off=row["off"])
    for row in await database.fetch("select * from payment.balances where account in ('suspense', 'refunds')"):
        metrics.ledger_balance.labels(row["account"], row["currency"]).set(row["balance"])
