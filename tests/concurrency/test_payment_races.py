"""Races for one booking's money: pay against expire in the same millisecond, one webhook twenty times, two cards.

Each race is first shown to be real: somebody who looks, and then writes without comparing, goes wrong.
"""

import asyncio
from collections import Counter
from uuid import uuid4

import msgspec
import pytest

from aisle.booking.booking import State
from aisle.booking.expire import expire_overdue
from aisle.booking.refund import refund
from aisle.errors import Problem
from aisle.payment.payment import PaymentState
from tests.payment.counter import WINDOW, counter

CROWD = 20


async def looks_then_moves(at, booking, barrier, target):
    """Careless: decides by what it saw, and writes after the other one has looked as well."""
    state = await at.state_of(booking)
    await barrier.wait()
    if state is State.PENDING_PAYMENT:
        await at.database.execute("update booking.bookings set state = $2 where id = $1", booking, target)
        return True
    return False


async def test_an_expiry_and_a_payment_that_look_first_both_believe_to_have_won(config):
    async with counter(config) as at:
        booking = await at.pending()
        barrier = asyncio.Barrier(2)
        won = await asyncio.gather(
            looks_then_moves(at, booking, barrier, "PAYING"), looks_then_moves(at, booking, barrier, "CANCELLED")
        )
        assert won == [True, True], "the race no longer shows: the next test proves nothing"


async def test_a_booking_is_paid_or_expires_in_the_last_millisecond_never_both(config):
    ends = Counter()
    async with counter(config) as at:
        for n in range(20):
            booking = await at.pending((0, 1))
            buyer = await at.buyer_of(booking)
            deadline = await at.database.fetchval("select deadline from booking.bookings where id = $1", booking)
            # The payment's clock is a millisecond before the deadline, the expiry's is at it.
            at.clock.now = deadline - (WINDOW / 900_000)

            async def expire(deadline=deadline, wait_s=n % 4 * 0.002):
                await asyncio.sleep(wait_s)
                return await expire_overdue(at.database, now=deadline)

            async def pay(booking=booking, wait_s=(n // 4) % 3 * 0.002):
                await asyncio.sleep(wait_s)
                try:
                    return (await at.pay(booking)).state
                except Problem as refusal:
                    return refusal.code

            expired, paid = await asyncio.gather(expire(), pay())
            state = await at.state_of(booking)
            assert (expired, paid, state) in (
                (0, PaymentState.CAPTURED, State.PAID),
                (1, "booking_expired", State.CANCELLED),
            )
            ends[state] += 1
            await at.settle()
            if state is State.PAID:
                await refund(at.till, booking, seats=None, why="refunded", key=uuid4().hex, buyer=buyer)
                await at.settle()
    assert ends.total() == 20


async def test_webhooks_that_look_first_book_the_same_sale_many_times(config):
    async with counter(config) as at:
        await at.database.execute("create table if not exists scratch_sales (what text)")
        await at.database.execute("truncate scratch_sales")
        barrier = asyncio.Barrier(CROWD)

        async def careless():
            booked = await at.database.fetchval("select count(*) from scratch_sales")
            await barrier.wait()
            if not booked:
                await at.database.execute("insert into scratch_sales values ('sale')")

        await asyncio.gather(*(careless() for _ in range(CROWD)))
        sales = await at.database.fetchval("select count(*) from scratch_sales")
        await at.database.execute("drop table scratch_sales")
        assert sales > 1, "the race no longer shows: the next test proves nothing"


async def test_the_same_webhook_twenty_times_at_once_sells_once(config):
    async with counter(config) as at:
        booking = await at.pending()
        payment = await at.pay(booking, "card_charge_timeout")
        assert payment.state is PaymentState.STARTED
        note = {"id": "note_1", "account": "sandbox", "payment": str(payment.id), "kind": "authorised"}
        old = {**note, "id": "note_0", "kind": "pending"}
        bodies = [msgspec.json.encode(note)] * (CROWD - 1) + [msgspec.json.encode(old)]
        await asyncio.gather(*(at.resolver.hear("sandbox", body, at.bank.signed(body)) for body in bodies))
        assert await at.state_of(booking) is State.PAID
        rows = await at.database.fetch("select what, amount from payment.ledger where payment = $1", payment.id)
        assert [tuple(row) for row in rows] == [("sale", 6000)]
        outbox = await at.database.fetchval("select count(*) from booking.outbox")
        assert outbox == 1, "one BookingPaid"
        heard = await at.database.fetch("select id from payment.notices where payment = $1 order by 1", payment.id)
        assert [row["id"] for row in heard] == ["note_0", "note_1"]
        await at.settle()


async def test_two_cards_at_once_charge_one(config):
    async with counter(config) as at:
        booking = await at.pending()

        async def pay():
            try:
                return (await at.pay(booking)).state
            except Problem as refusal:
                return refusal.code

        ends = Counter(await asyncio.gather(*(pay() for _ in range(CROWD))))
        assert ends.pop(PaymentState.CAPTURED) == 1
        assert set(ends) <= {"payment_under_way", "already_paid"}
        charges = await at.database.fetchval(
            """select count(*) from payment.sandbox_charges c join payment.payments p on p.id = c.payment
               where p.booking = $1""",
            booking,
        )
        assert charges == 1
        await at.settle()


async def test_the_same_key_from_twenty_clients_is_one_payment(config):
    async with counter(config) as at:
        booking, key = await at.pending(), uuid4().hex
        seen = await asyncio.gather(*(at.pay(booking, key=key) for _ in range(CROWD)))
        assert len({payment.id for payment in seen}) == 1
        with pytest.raises(Problem, match="another request"):
            await at.pay(booking, "card_declined", key=key)
        await at.settle()


async def test_refunds_at_once_give_the_money_back_once(config):
    async with counter(config) as at:
        booking = await at.pending()
        await at.pay(booking)
        # The sale is still on its way to the store: the refund overtakes it.
        await asyncio.gather(
            *(refund(at.till, booking, seats=None, why="refunded", key=uuid4().hex) for _ in range(CROWD))
        )
        await at.settle()
        rows = await at.database.fetch("select amount from payment.refunds where booking = $1", booking)
        assert [row["amount"] for row in rows] == [6000]
        assert await at.state_of(booking) is State.REFUNDED
