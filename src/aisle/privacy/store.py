"""What is kept about a buyer, in one place: read for an export, taken apart for an erasure, forgotten when it is old.

Bookings, payments and the ledger stay, as bookkeeping asks, under an id that leads to nobody any more: the e-mail
address, the password and the names of tokens are in `accounts` alone, and nothing else holds a person.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from aisle.audit import Deed, note

EXPORT_ROWS_MAX = 10_000
FORGET_ROWS_MAX = 500

# What belongs to a buyer, each under the name it has in the export. $2 is one more than is shown.
EXPORT: Mapping[str, str] = {
    "account": "select id, email, role, created_at from accounts.accounts where id = $1 limit $2",
    "tokens": "select name, created_at, expires_at from accounts.tokens where account_id = $1 order by id limit $2",
    "bookings": """
        select b.id, b.event_id, e.name as event, b.state, b.quantity, b.parts, b.total, e.currency, b.reason,
               b.placed_at, b.deadline, b.ended_at
        from booking.bookings b join ticketing.events e on e.id = b.event_id
        where b.buyer = $1 order by b.id limit $2""",
    "payments": """
        select p.id, p.booking, p.provider, p.method, p.amount, p.currency, p.state, p.refunded, p.started_at,
               p.ended_at
        from payment.payments p join booking.bookings b on b.id = p.booking
        where b.buyer = $1 and p.buyer = $1 order by p.id limit $2""",
    "refunds": """
        select r.id, r.payment, r.amount, r.currency, r.why, r.state, r.asked_at, r.done_at
        from payment.refunds r join booking.bookings b on b.id = r.booking
        where b.buyer = $1 order by r.id limit $2""",
    "deeds": "select number, at, what, subject from audit.deeds where actor = $1 order by number limit $2",
}

UNDER_WAY = """
    select true from booking.bookings
    where buyer = $1 and state in ('PROCESSING', 'PENDING_PAYMENT', 'PAYING') limit 1
"""
# A provider's token of a card leads to a person; what was charged is found by `reference`.
FORGET_CARDS = """
    update payment.payments set method = 'erased'
    where buyer = $1 and state in ('CAPTURED', 'DECLINED', 'VOIDED', 'RETURNED')
      and booking in (select id from booking.bookings where buyer = $1)
"""

FORGET_BOOKINGS = """
    delete from booking.bookings where id in (
        select id from booking.bookings b
        where id < $1 and state in ('FAILED', 'CANCELLED') and ended_at < $2
          and not exists (select 1 from payment.payments p where p.booking = b.id)
        order by id limit $3 for update skip locked
    ) returning id
"""


async def export(connection: asyncpg.Connection, account: UUID) -> dict[str, Any]:
    """Everything, as of one moment. `more` names what has more rows than are shown."""
    found: dict[str, Any] = {}
    more = []
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        for name, statement in EXPORT.items():
            rows = [_readable(row) for row in await connection.fetch(statement, account, EXPORT_ROWS_MAX + 1)]
            if len(rows) > EXPORT_ROWS_MAX:
                more.append(name)
            found[name] = rows[:EXPORT_ROWS_MAX]
    return {**found, "more": more}


def _readable(row: asyncpg.Record) -> dict[str, Any]:
    shown = dict(row)
    if "parts" in shown:
        shown["parts"] = msgspec.Raw(shown["parts"].encode())  # JSON already
    return shown


async def erase(connection: asyncpg.Connection, account: UUID) -> bool:
    """False, and nothing changed, while a booking is under way. Repeating changes nothing."""
    async with connection.transaction():
        known = await connection.fetchval("select true from accounts.accounts where id = $1 for update", account)
        if not known:
            return True
        if await connection.fetchval(UNDER_WAY, account):
            return False
        await connection.execute(FORGET_CARDS, account)
        await connection.execute("delete from public.answers where account = $1", account)
        # Tokens go with their account.
        await connection.execute("delete from accounts.accounts where id = $1", account)
        await note(connection, Deed.ACCOUNT_ERASED, actor=account, subject=account)
    return True


async def forget(connection: asyncpg.Connection, *, ended_before: datetime, placed_before: UUID, now: datetime) -> int:
    """Bookings that came to nothing, and tokens that are over; how many bookings. `placed_before` bounds the search."""
    await connection.execute(
        """delete from accounts.tokens where id in (
               select id from accounts.tokens where expires_at < $1 limit $2 for update skip locked)""",
        now,
        FORGET_ROWS_MAX,
    )
    return len(await connection.fetch(FORGET_BOOKINGS, placed_before, ended_before, FORGET_ROWS_MAX))
