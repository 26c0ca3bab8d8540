"""Races for one booking's money: pay against expire in the same millisecond, one webhook twenty times, two cards, one
key from many clients, refunds of single seats.

Each race is first shown to be real: the same code without its locks and constraints, or somebody who looks and then
writes without comparing, goes wrong.
"""

import asyncio
import contextlib
from collections import Counter
from uuid import uuid4

import msgspec
import pytest

from aisle.booking import payment_moves as moves
from aisle.booking import store as booking_store
from aisle.booking.booking import State
from aisle.booking.expire import expire_overdue
from aisle.booking.pay import Payer
from aisle.booking.payment_moves import Delivery
from aisle.booking.refund import refund
from aisle.errors import Problem
from aisle.messages import Part
from aisle.payment import store as payments
from aisle.payment.payment import PaymentState
from aisle.payment.provider import Answer, Verdict
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


async def test_webhooks_that_look_without_locking_announce_the_same_sale_many_times(config, monkeypatch):
    """`finish` without the locks on booking and payment: everybody sees a payment that is still to be finished."""
    async with counter(config) as at:
        payment = await at.pay(await at.pending(), "card_charge_timeout")
        promised = Answer(verdict=Verdict.AUTHORISED, amount=6000, currency="TWD", reference="r")
        assert await at.payer._deliveries.submit((payment, promised)) is Delivery.SOLD
        everybody_has_looked = asyncio.Barrier(CROWD)
        monkeypatch.setattr(booking_store, "LOCK", booking_store.LOCK.replace("for update", ""))

        async def look(connection, ids):
            found = {id: await payments.find(connection, id) for id in ids}
            await everybody_has_looked.wait()
            return found

        monkeypatch.setattr(payments, "lock", look)

        async def careless():
            async with at.database.acquire() as connection:
                return await moves.finish(connection, [payment.id], [payment.booking], now=at.clock())

        finished = await asyncio.gather(*(careless() for _ in range(CROWD)))
        assert sum(map(len, finished)) > 1, "the race no longer shows: the next test proves nothing"
        assert await at.database.fetchval("select count(*) from booking.outbox") > 1


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


@contextlib.asynccontextmanager
async def without_unique_payments(database):
    """One payment a booking and one a key are constraints; here they are not there. What broke them goes first."""
    await database.execute("drop index payment.payments_of_booking_one")
    await database.execute("alter table payment.payments drop constraint payments_buyer_idempotency_key_key")
    try:
        yield
    finally:
        await database.execute(
            """update payment.payments set state = 'DECLINED', look_at = 'infinity', idempotency_key = id::text
               where booking in (select booking from payment.payments where state = 'STARTED'
                                 group by booking having count(*) > 1)"""
        )
        await database.execute(
            """alter table payment.payments
               add constraint payments_buyer_idempotency_key_key unique (buyer, idempotency_key)"""
        )
        await database.execute(
            """create unique index payments_of_booking_one on payment.payments (booking)
               where state in ('STARTED', 'ACTION', 'AUTHORISED', 'CAPTURED')"""
        )


@pytest.mark.parametrize("same_key", [False, True], ids=["two cards", "one key"])
async def test_payments_that_look_without_a_lock_and_a_constraint_charge_many_times(config, monkeypatch, same_key):
    """Twenty processes; each sees a booking that waits for its money, and no payment of its key."""
    async with counter(config) as at, without_unique_payments(at.database):
        booking, key = await at.pending(), uuid4().hex
        buyer = await at.buyer_of(booking)
        everybody_has_looked = asyncio.Barrier(CROWD)
        monkeypatch.setattr(booking_store, "LOCK", booking_store.LOCK.replace("for update", ""))
        insert = payments.insert

        async def insert_later(*asked, **at_what_time):
            await everybody_has_looked.wait()
            return await insert(*asked, **at_what_time)

        monkeypatch.setattr(payments, "insert", insert_later)
        elsewhere = [Payer(at.till) for _ in range(CROWD)]
        for payer in elsewhere:
            monkeypatch.setattr(payer, "advance", unfinished)  # how far each of them gets does not matter here
        keys = [key if same_key else uuid4().hex for _ in elsewhere]
        await asyncio.gather(
            *(p.pay(booking, buyer, method="card_ok", key=k) for p, k in zip(elsewhere, keys, strict=True))
        )
        assert await charges_for(at, booking) > 1, "the race no longer shows: the next tests prove nothing"


async def unfinished(payment, answer):
    return payment


async def charges_for(at, booking):
    return await at.database.fetchval(
        """select count(*) from payment.sandbox_charges c join payment.payments p on p.id = c.payment
           where p.booking = $1""",
        booking,
    )


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
        assert await charges_for(at, booking) == 1
        await at.settle()


async def test_the_same_key_from_twenty_clients_is_one_payment(config):
    async with counter(config) as at:
        booking, key = await at.pending(), uuid4().hex
        buyer = await at.buyer_of(booking)
        elsewhere = [Payer(at.till) for _ in range(CROWD)]
        seen = await asyncio.gather(*(p.pay(booking, buyer, method="card_ok", key=key) for p in elsewhere))
        assert len({payment.id for payment in seen}) == 1
        assert await charges_for(at, booking) == 1
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


async def test_refunds_of_single_seats_that_look_without_a_lock_leave_a_seat_that_is_sold_again(config, monkeypatch):
    """Both see two seats and keep one each: the one that writes last keeps a seat whose money went back."""
    async with counter(config) as at:
        booking = await at.pending((0, 1))
        await at.pay(booking)
        both_have_looked = asyncio.Barrier(2)
        monkeypatch.setattr(booking_store, "LOCK", booking_store.LOCK.replace("for update", ""))

        async def look(connection, booking):
            id = await connection.fetchval("select id from payment.payments where booking = $1", booking)
            payment = await payments.find(connection, id)
            await both_have_looked.wait()
            return payment

        monkeypatch.setattr(payments, "kept_for", look)
        await asyncio.gather(*(refund_seat(at, booking, seat) for seat in (0, 1)))
        row = await at.database.fetchrow("select state, total from booking.bookings where id = $1", booking)
        refunded = await at.database.fetchval("select refunded from payment.payments where booking = $1", booking)
        assert refunded == 6000
        assert tuple(row) == ("PAID", 3000), "the race no longer shows: the next test proves nothing"


async def test_refunds_of_single_seats_at_once_give_each_seat_back_once(config):
    async with counter(config) as at:
        seats = range(8)
        booking = await at.pending(tuple(seats))
        await at.pay(booking)

        async def give_back(seat):
            try:
                await refund_seat(at, booking, seat)
                return "ok"
            except Problem as refusal:
                return refusal.code

        ends = Counter(await asyncio.gather(*(give_back(seat) for seat in seats for _ in range(3))))
        assert ends.pop("ok") == len(seats)
        assert set(ends) <= {"not_in_booking", "not_refundable"}
        await at.settle()
        rows = await at.database.fetch("select amount, seats from payment.refunds where booking = $1", booking)
        assert [row["amount"] for row in rows] == [3000] * len(seats)
        assert await at.state_of(booking) is State.REFUNDED


async def refund_seat(at, booking, seat):
    await refund(at.till, booking, seats=[Part("A", 1, (seat,), 0)], why="refunded", key=uuid4().hex)
