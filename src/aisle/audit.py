"""The trail of what matters for safety: who did what to what, each row sealed with the one before it.

`note` is called last in the transaction of the deed, so neither exists without the other; a deed without one is noted
before it takes effect. Nothing on the way of a booking is noted: bookings are rows themselves. A trail that nobody can
rewrite holds ids only, so that a person can still be erased.
"""

import hashlib
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

ROWS_AT_ONCE = 5_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NOTE = "select audit.note($1, $2, $3, $4)"


class Deed(StrEnum):
    ACCOUNT_CREATED = "account_created"
    LOGGED_IN = "logged_in"
    LOGIN_REFUSED = "login_refused"
    LOGGED_OUT_EVERYWHERE = "logged_out_everywhere"
    TOKEN_MADE = "token_made"  # noqa: S105
    TOKEN_REVOKED = "token_revoked"  # noqa: S105
    DATA_EXPORTED = "data_exported"
    ACCOUNT_ERASED = "account_erased"
    SALE_OPENED = "sale_opened"
    SALE_CLOSED = "sale_closed"
    PRICES_CHANGED = "prices_changed"
    SALES_EXPORTED = "sales_exported"
    REFUNDED = "refunded"
    PAYMENT_DECIDED = "payment_decided"
    DOOR_STAFF_GRANTED = "door_staff_granted"
    DOOR_STAFF_WITHDRAWN = "door_staff_withdrawn"
    TICKET_KEY_MADE = "ticket_key_made"
    TICKET_KEY_REVOKED = "ticket_key_revoked"
    DEAD_LETTERS_REPLAYED = "dead_letters_replayed"
    STORE_REBUILT = "store_rebuilt"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    at: datetime
    what: str
    actor: UUID | None
    subject: str
    detail: str
    digest: bytes


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`bad` is the first row that does not fit, `why` in one sentence; `head` is to be kept where no writer reaches."""

    rows: int
    head: str
    bad: int | None = None
    why: str = ""


async def note(
    connection: asyncpg.Connection,
    what: Deed,
    *,
    actor: UUID | None,
    subject: object = "",
    detail: Mapping[str, Any] | None = None,
) -> None:
    text = msgspec.json.encode(detail).decode() if detail else ""
    await connection.execute(NOTE, what.value, actor, str(subject), text)


async def latest(connection: asyncpg.Connection, *, before: int | None, limit: int) -> list[Row]:
    """Newest first."""
    rows = await connection.fetch(
        "select * from audit.deeds where number < coalesce($1, 9223372036854775807) order by number desc limit $2",
        before,
        limit,
    )
    return [Row(**row) for row in rows]


async def verify(connection: asyncpg.Connection, *, expected: str = "") -> Verdict:
    """Recompute every seal. `expected` is a head that was kept: the chain must still go through it.

    The head is read first: what is written meanwhile comes after it and is none of this check's business.
    """
    head = await connection.fetchrow("select number, digest from audit.head")
    installation = await connection.fetchval("select id from public.installation")
    digest, number = hashlib.sha256(str(installation).encode()).digest(), 0
    passed = expected == "" or expected == head_text(0, digest)
    async for row in _rows(connection, head["number"]):
        if row.number != number + 1:
            return _broken(number, digest, number + 1, f"row {number + 1} is missing")
        if row.digest != sealed(digest, row):
            return _broken(number, digest, row.number, f"row {row.number} is not what was sealed")
        number, digest = row.number, row.digest
        passed = passed or expected == head_text(number, digest)
    if (number, digest) != (head["number"], head["digest"]):
        return _broken(number, digest, number + 1, f"the chain ends at row {number}, its head says {head['number']}")
    if not passed:
        return _broken(number, digest, int(expected.partition(":")[0]), "the chain does not go through the head given")
    return Verdict(rows=number, head=head_text(number, digest))


def sealed(previous: bytes, row: Row) -> bytes:
    micros = (row.at - EPOCH) // timedelta(microseconds=1)
    parts = (str(row.number), str(micros), row.what, str(row.actor or ""), row.subject, row.detail)
    return hashlib.sha256(previous + "\n".join(parts).encode()).digest()


def head_text(number: int, digest: bytes) -> str:
    return f"{number}:{digest.hex()}"


async def _rows(connection: asyncpg.Connection, until: int) -> AsyncIterator[Row]:
    after = 0
    while rows := await connection.fetch(
        "select * from audit.deeds where number > $1 and number <= $2 order by number limit $3",
        after,
        until,
        ROWS_AT_ONCE,
    ):
        for row in rows:
            yield Row(**row)
        after = rows[-1]["number"]


def _broken(number: int, digest: bytes, bad: int, why: str) -> Verdict:
    return Verdict(rows=number, head=head_text(number, digest), bad=bad, why=why)
