"""The moves that bookings, payments, tickets and the books make together: each a batch in one transaction.

Every move locks bookings, then payments, then tickets, looks at what they are now, and changes only what may change: so
each is safe to repeat, and of two that disagree one wins. Called by `pay`, `resolve` and `late_money`.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

import asyncpg

from aisle.booking import order_store, store
from aisle.booking.booking import State
from aisle.booking.expire import cancel_rows
from aisle.ids import new_id
from aisle.messages import BookingPaid, Message, Part
from aisle.payment import ledger
from aisle.payment import store as payments
from aisle.payment.payment import UNDECIDED, Payment, PaymentState, Refund
from aisle.payment.provider import Answer, Verdict

# Sells the tickets of these bookings (rows as `store.lock` gives them); returns those that were sold whole.
Sell = Callable[[asyncpg.Connection, Sequence[asyncpg.Record]], Awaitable[Collection[UUID]]]


class TakeBack(Protocol):
    """Takes sold tickets of a booking back and tells the store; false if they were not all its own."""

    def __call__(
        self, connection: asyncpg.Connection, row: asyncpg.Record, parts: Sequence[Part], *, why: str, now: datetime
    ) -> Awaitable[bool]: ...


class Delivery(StrEnum):
    SOLD = "sold"  # the tickets are SOLD; capture the money
    NOT_YET = "not_yet"  # the seats are still on their way to PostgreSQL
    LATE = "late"  # the booking does not wait for this money any more
    DONE = "done"  # somebody has gone further already


async def deliver(
    connection: asyncpg.Connection, promised: Sequence[tuple[Payment, Answer]], sell: Sell, *, now: datetime
) -> list[Delivery]:
    """The provider has the money, or will: sell the tickets, if the booking still waits for it."""
    references = {payment.id: answer.reference for payment, answer in promised}
    deliveries: list[Delivery] = []
    async with connection.transaction():
        rows = await store.lock(connection, [payment.booking for payment, _ in promised])
        found = await payments.lock(connection, list(references))
        waiting = [rows[p.booking] for p in found.values() if _is_waited_for(p, rows.get(p.booking))]
        sold = await sell(connection, waiting) if waiting else ()
        moves = [(p.id, references[p.id]) for p in found.values() if p.booking in sold and p.state in UNDECIDED]
        await payments.move(connection, moves, PaymentState.AUTHORISED, now=now)
        for payment, answer in promised:
            current = found[payment.id]
            if current.state is PaymentState.AUTHORISED or (current.state in UNDECIDED and current.booking in sold):
                deliveries.append(Delivery.SOLD)
            elif _is_waited_for(current, rows.get(current.booking)):
                deliveries.append(Delivery.NOT_YET)
            elif await _came_late(connection, current, answer, now):
                deliveries.append(Delivery.LATE)
            else:
                deliveries.append(Delivery.DONE)
    return deliveries


def _is_waited_for(payment: Payment, row: asyncpg.Record | None) -> bool:
    return payment.state in UNDECIDED and row is not None and row["state"] == State.PAYING


async def _came_late(connection: asyncpg.Connection, payment: Payment, answer: Answer, now: datetime) -> bool:
    taken = answer.verdict is Verdict.CAPTURED
    if not await payments.move(connection, [(payment.id, answer.reference)], PaymentState.LATE, now=now, taken=taken):
        return payment.state is PaymentState.LATE
    if taken:
        await book_as_taken(connection, payment, payment.money[0], now=now)
    return True


async def finish(
    connection: asyncpg.Connection, ids: Sequence[UUID], bookings: Sequence[UUID], *, now: datetime
) -> set[UUID]:
    """The money is ours and the tickets are sold: PAYING -> PAID, and the books and the store follow."""
    async with connection.transaction():
        rows = await store.lock(connection, bookings)
        found = await payments.lock(connection, ids)
        ready = [
            payment
            for payment in found.values()
            if payment.state is PaymentState.AUTHORISED
            and payment.booking in rows
            and rows[payment.booking]["state"] == State.PAYING
        ]
        await payments.move(connection, [(payment.id, "") for payment in ready], PaymentState.CAPTURED, now=now)
        await ledger.book(connection, [entry for payment in ready for entry in _sale(payment)], now=now)
        for payment in ready:
            if payment.money[0] > payment.amount:
                await _owe_excess(connection, payment, now=now)
        await store.move(connection, [payment.booking for payment in ready], State.PAID)
        messages: list[Message] = [_paid(rows[payment.booking]) for payment in ready]
        await store.write_outbox(connection, messages, now=now)
    return {payment.id for payment in ready}


def _sale(payment: Payment) -> list[ledger.Entry]:
    """Sales are the price of what was delivered, also where a person accepted less."""
    # Money that came late was booked when it came.
    what = "late_sale" if payment.taken else "sale"
    account = ledger.SUSPENSE if payment.taken else ledger.provider_account(payment.provider)
    paid = min(payment.amount, payment.money[0])
    sale = ledger.Entry(payment.id, payment.id, what, account, ledger.SALES, paid, payment.currency)
    waived = payment.amount - paid
    return [sale, *([_waived(payment, waived)] if waived else [])]


def _waived(payment: Payment, amount: int) -> ledger.Entry:
    return ledger.Entry(payment.id, payment.id, "waived", ledger.ADJUSTMENTS, ledger.SALES, amount, payment.currency)


async def _owe_excess(connection: asyncpg.Connection, payment: Payment, *, now: datetime) -> None:
    """More was paid than the seats cost: the rest goes back at once."""
    excess = payment.money[0] - payment.amount
    if not payment.taken:
        await book_as_taken(connection, payment, excess, now=now)
    await owe_back(
        connection,
        payment,
        excess,
        key=f"excess:{payment.id}",
        why="overpaid",
        parts=(),
        from_account=ledger.SUSPENSE,
        now=now,
    )


async def book_as_taken(connection: asyncpg.Connection, payment: Payment, amount: int, *, now: datetime) -> None:
    """The provider has this, and no seats were delivered for it yet."""
    account = ledger.provider_account(payment.provider)
    entry = ledger.Entry(payment.id, payment.id, "late", account, ledger.SUSPENSE, amount, payment.money[1])
    await ledger.book(connection, [entry], now=now)


def _paid(row: asyncpg.Record) -> BookingPaid:
    parts = order_store.parts_of(row["parts"])
    return BookingPaid(
        id=f"{row['id']}.paid",
        lane=row["lane"],
        event=row["event_id"],
        section=parts[0].section,
        partition=row["partition"],
        epoch=row["epoch"],
        booking=str(row["id"]),
        buyer=str(row["buyer"]),
        parts=parts,
    )


async def decline(
    connection: asyncpg.Connection, payment: Payment, reason: str, take_back: TakeBack, *, now: datetime
) -> bool:
    """No money. The booking waits for another card if there is time; if its tickets were sold already, they go back."""
    async with connection.transaction():
        rows = await store.lock(connection, [payment.booking])
        current = (await payments.lock(connection, [payment.id]))[payment.id]
        if not await payments.move(connection, [(payment.id, "")], PaymentState.DECLINED, now=now, reason=reason):
            return False
        if current.state in UNDECIDED:
            await store.move(connection, [current.booking], State.PENDING_PAYMENT)
        elif current.state is PaymentState.AUTHORISED:
            row = rows[current.booking]
            assert await take_back(connection, row, order_store.parts_of(row["parts"]), why="payment_failed", now=now)
            await store.end(connection, [(row["id"], "payment_failed")], State.CANCELLED, now=now)
    return True


async def abandon(connection: asyncpg.Connection, payment: Payment, *, now: datetime) -> bool:
    """The provider took too long, and the buyer's time is over: the seats are let go, the provider is asked on."""
    async with connection.transaction():
        row = (await store.lock(connection, [payment.booking])).get(payment.booking)
        if row is not None and row["deadline"] > now:
            return False
        await payments.lock(connection, [payment.id])
        if not await payments.move(connection, [(payment.id, "")], PaymentState.ABANDONED, now=now):
            return False
        await cancel_rows(connection, [payment.booking], "payment_timeout", (State.PAYING,), now=now)
    return True


async def review(connection: asyncpg.Connection, payment: Payment, answer: Answer, *, now: datetime) -> bool:
    """The provider has other money than was asked for: no seats for it, and a person decides."""
    reason = f"the provider has {answer.amount} {answer.currency}, asked were {payment.amount} {payment.currency}"
    async with connection.transaction():
        await store.lock(connection, [payment.booking])
        current = (await payments.lock(connection, [payment.id]))[payment.id]
        moves = [(payment.id, answer.reference)]
        held = await payments.move(connection, moves, PaymentState.REVIEW, now=now, reason=reason)
        if held:
            await payments.note_held(connection, payment.id, answer.amount, answer.currency.upper())
        if held and current.state in UNDECIDED:
            await store.move(connection, [current.booking], State.PENDING_PAYMENT)
    return bool(held)


async def owe_back(
    connection: asyncpg.Connection,
    payment: Payment,
    amount: int,
    *,
    key: str,
    why: str,
    parts: Sequence[Part],
    from_account: str,
    now: datetime,
) -> None:
    """Owe money to a buyer, in the books and as an order to the provider."""
    order = Refund(
        id=new_id(now), payment=payment.id, booking=payment.booking, amount=amount, currency=payment.money[1],
        state="ASKED", why=why, looks=0,
    )  # fmt: skip
    await payments.ask_refund(connection, order, key=key, seats=parts, now=now)
    what = "refund" if from_account == ledger.SALES else "late_return"
    entry = ledger.Entry(payment.id, order.id, what, from_account, ledger.REFUNDS, amount, order.currency)
    await ledger.book(connection, [entry], now=now)


async def wait_for_buyer(connection: asyncpg.Connection, payment: Payment, answer: Answer, *, now: datetime) -> None:
    moves = [(payment.id, answer.reference)]
    await payments.move(connection, moves, PaymentState.ACTION, now=now, action=answer.action)
