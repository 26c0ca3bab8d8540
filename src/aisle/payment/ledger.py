"""The books: every amount leaves one account and enters another, in one row, so they balance by construction.

    provider:<name>   money that the provider has taken for us      suspense   taken, and no seats delivered for it yet
    sales             kept, for seats that were delivered           refunds    owed back, the provider not done yet
    adjustments       what sold seats cost beyond the money that a person accepted for them (negative)

At rest `sales` is the price of all sold tickets, and `suspense` and `refunds` are empty but for what a person reviews.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

SALES = "sales"
SUSPENSE = "suspense"
REFUNDS = "refunds"
ADJUSTMENTS = "adjustments"

# A cause is booked once: a repeat of the whole transaction changes nothing.
BOOK = """
    insert into payment.ledger (payment, cause, what, from_account, to_account, amount, currency, booked_at)
    select e.*, $8 from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[])
        as e(payment, cause, what, from_account, to_account, amount, currency)
    where e.amount > 0
    on conflict (cause, what) do nothing
"""


class Entry(msgspec.Struct, frozen=True):
    payment: UUID
    cause: UUID
    what: str
    from_account: str
    to_account: str
    amount: int
    currency: str


def provider_account(name: str) -> str:
    return f"provider:{name}"


async def book(connection: asyncpg.Connection, entries: Sequence[Entry], *, now: datetime) -> None:
    """Inside the caller's transaction: money and what it is for are written together or not at all."""
    if entries:
        columns = [[getattr(entry, name) for entry in entries] for name in Entry.__struct_fields__]
        await connection.execute(BOOK, *columns, now)
