"""A person decides about money that is not what was asked for: seats for it, or all of it back.

The decision is written down together with what the provider has, and the payment goes on as LATE: whoever crashes
leaves it to the resolver, which seats the buyer or gives the money back, as with any that came without seats.
Accepting less than the price waives the rest, accepting more sends the rest back; another currency cannot be compared,
only refunded.
"""

from uuid import UUID

import asyncpg

from aisle.audit import Deed, note
from aisle.booking import store
from aisle.booking.booking import State
from aisle.booking.late_money import STILL_WANTED
from aisle.booking.pay import Till
from aisle.booking.payment_moves import book_as_taken
from aisle.crash_points import crash_point
from aisle.errors import Problem
from aisle.once import Asked, recall, remember
from aisle.payment import store as payments
from aisle.payment.payment import Decision, Payment, PaymentState
from aisle.payment.provider import HAS_MONEY, Answer, ProviderSilent, Verdict


async def decide(till: Till, payment: Payment, decision: Decision, request: Asked) -> None:
    """Write the decision down, once. Raises if it cannot be taken, and changes nothing then."""
    answer = await _look(till, payment)
    now = till.clock()
    async with till.database.acquire() as connection, connection.transaction():
        if await recall(connection, request, str, now=now) is not None:
            return
        await remember(connection, request, decision)
        row = (await store.lock(connection, [payment.booking])).get(payment.booking)
        current = (await payments.lock(connection, [payment.id]))[payment.id]
        if current.decision == decision:
            return
        if current.state is not PaymentState.REVIEW:
            raise Problem(409, "not_in_review", f"this payment is {current.state}: there is nothing to decide")
        if decision is Decision.ACCEPT and (refusal := _why_not_acceptable(current, answer, row)):
            raise refusal
        await _go_on(connection, current.id, decision, answer, till)
        detail = {"decision": decision}
        await note(connection, Deed.PAYMENT_DECIDED, actor=request.account, subject=current.id, detail=detail)
    crash_point("after_decision")


async def _go_on(connection: asyncpg.Connection, id: UUID, decision: Decision, answer: Answer, till: Till) -> None:
    now, taken = till.clock(), answer.verdict is Verdict.CAPTURED
    if answer.verdict in HAS_MONEY:
        await payments.note_held(connection, id, answer.amount, answer.currency.upper())
    await payments.note_decision(connection, id, decision)
    await payments.move(connection, [(id, answer.reference)], PaymentState.LATE, now=now, taken=taken)
    if taken:
        payment = (await payments.lock(connection, [id]))[id]
        await book_as_taken(connection, payment, payment.money[0], now=now)


async def _look(till: Till, payment: Payment) -> Answer:
    provider = till.providers[payment.provider]
    try:
        looked = provider.look(payment.id, payment.reference, payment.started_at)
        return await till.ask(payment.provider, "look", looked)
    except ProviderSilent:
        raise Problem(503, "provider_silent", "the provider cannot be asked now", retry_after_s=5) from None


def _why_not_acceptable(payment: Payment, answer: Answer, row: asyncpg.Record | None) -> Problem | None:
    if answer.verdict not in HAS_MONEY:
        return Problem(409, "no_money", "the provider has no money for this payment any more")
    if answer.currency.upper() != payment.currency:
        return Problem(409, "other_currency", "money in another currency can only be refunded")
    match State(row["state"]) if row is not None else None:
        case State.PENDING_PAYMENT:
            return None
        case State.CANCELLED if row is not None and row["reason"] in STILL_WANTED:
            return None
        case State.PAYING:
            return Problem(409, "payment_under_way", "another payment for this booking is under way", retry_after_s=1)
        case State.PAID:
            return Problem(409, "already_paid", "this booking is paid with other money: refund this")
        case _:
            return Problem(409, "booking_ended", "its buyer has let this booking go: refund the money")
