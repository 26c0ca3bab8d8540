"""A payment begins: PENDING_PAYMENT -> PAYING, the fence behind which no deadline takes the seats. Called by `pay`.

A batch in one transaction, safe to repeat under the buyer's key. What becomes of a payment is in `payment_moves`.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
import msgspec

from aisle.booking import store
from aisle.booking.booking import State
from aisle.errors import Problem
from aisle.limits import PAYMENT_LEASE_SECONDS
from aisle.payment import store as payments
from aisle.payment.payment import Payment, PaymentState

LEASE = timedelta(seconds=PAYMENT_LEASE_SECONDS)

# By the caller's connection: whoever asks holds one, and must not wait for a second.
CurrencyOf = Callable[[asyncpg.Connection, int], Awaitable[str]]


class Start(msgspec.Struct, frozen=True, kw_only=True):
    payment: UUID
    booking: UUID
    buyer: UUID
    provider: str
    method: str
    key: str
    request_hash: bytes


class Started(msgspec.Struct, frozen=True):
    """A payment, new or begun earlier with the same key; or why there is none."""

    payment: Payment | None = None
    new: bool = False
    refusal: Problem | None = None


_KEY_REUSED = Started(refusal=Problem(422, "key_reused", "this Idempotency-Key was used for another request"))


async def start(
    connection: asyncpg.Connection, asked: Sequence[Start], *, currency_of: CurrencyOf, now: datetime
) -> list[Started]:
    """PENDING_PAYMENT -> PAYING: from here on no deadline takes the seats. No booking occurs twice in a batch."""
    async with connection.transaction():
        rows = await store.lock(connection, [one.booking for one in asked])
        known = await payments.earlier(connection, [(one.buyer, one.key) for one in asked])
        answers = [_refused_or_known(one, rows.get(one.booking), known.get((one.buyer, one.key)), now) for one in asked]
        begun = [one for one, answer in zip(asked, answers, strict=True) if answer == Started()]
        new = {one.payment: await _new_payment(connection, one, rows[one.booking], currency_of) for one in begun}
        made = await payments.insert(connection, list(new.values()), now=now, look_at=now + LEASE) if new else set()
        await store.move(connection, [payment.booking for id, payment in new.items() if id in made], State.PAYING)
    return [
        _begun(new[one.payment], now) if one.payment in made else answer if answer != Started() else _KEY_REUSED
        for one, answer in zip(asked, answers, strict=True)
    ]


def _refused_or_known(
    one: Start, row: asyncpg.Record | None, known: tuple[Payment, bytes] | None, now: datetime
) -> Started:
    if known is not None:
        return Started(known[0]) if known[1] == one.request_hash else _KEY_REUSED
    return Started(refusal=why_not_payable(row, one.buyer, now))


def why_not_payable(row: asyncpg.Record | None, buyer: UUID, now: datetime) -> Problem | None:
    if row is None or row["buyer"] != buyer:
        return Problem(404, "not_found", "no such booking")
    match State(row["state"]):
        case State.PENDING_PAYMENT if row["deadline"] > now:
            return None
        case State.PENDING_PAYMENT:
            return Problem(409, "booking_expired", "the time to pay is over")
        case State.PROCESSING:
            return Problem(409, "booking_not_ready", "its seats are still being chosen", retry_after_s=1)
        case State.PAYING:
            return Problem(409, "payment_under_way", "a payment for this booking is under way", retry_after_s=1)
        case State.PAID:
            return Problem(409, "already_paid", "this booking is paid")
        case State.CANCELLED if row["reason"] in ("expired", "payment_timeout"):
            return Problem(409, "booking_expired", "the time to pay is over")
        case state:
            return Problem(409, f"booking_{state.value.lower()}", f"this booking is {state.value}")


async def _new_payment(
    connection: asyncpg.Connection, one: Start, row: asyncpg.Record, currency_of: CurrencyOf
) -> payments.NewPayment:
    """The amount is what the booking costs: nothing of it comes from the request."""
    return payments.NewPayment(
        one.payment, one.booking, one.buyer, row["event_id"], one.provider, one.method, row["total"],
        await currency_of(connection, row["event_id"]), one.key, one.request_hash,
    )  # fmt: skip


def _begun(new: payments.NewPayment, now: datetime) -> Started:
    payment = Payment(
        id=new.id, booking=new.booking, buyer=new.buyer, event_id=new.event_id, provider=new.provider,
        method=new.method, amount=new.amount, currency=new.currency, state=PaymentState.STARTED, reference="",
        action="", reason="", taken=False, refunded=0, tries=0, seats_again=None, started_at=now, late_at=None, looks=0,
    )  # fmt: skip
    return Started(payment, new=True)
