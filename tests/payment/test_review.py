"""Money of another amount or currency: a person accepts it for the seats or sends it back, once. The books balance."""

import asyncio
from collections import Counter as Tally
from datetime import timedelta
from uuid import uuid4

import pytest

from aisle.booking.booking import State
from aisle.booking.refund import refund
from aisle.booking.review import decide
from aisle.errors import Problem
from aisle.messages import Part
from aisle.once import asked
from aisle.payment.payment import Decision, Payment, PaymentState
from tests.payment.counter import WINDOW, Counter, counter


async def in_review(at: Counter, booking, has: int, currency: str = "TWD", *, captured: bool = False) -> Payment:
    """A payment of 6000 TWD for which the provider has something else."""
    payment = await at.pay(booking, "card_wrong_amount")
    assert payment.state is PaymentState.REVIEW
    state = "captured" if captured else "authorised"
    await at.database.execute(
        "update payment.sandbox_charges set amount = $2, currency = $3, state = $4 where payment = $1",
        payment.id, has, currency, state,
    )  # fmt: skip
    return payment


async def decides(at: Counter, payment: Payment, decision: Decision, key: str | None = None) -> Payment:
    await decide(at.till, payment, decision, asked(uuid4(), key, "decide", decision))
    await at.settle()
    return await at.payer.reread(payment)


async def books_of(at: Counter, payment: Payment) -> list[tuple]:
    rows = await at.database.fetch(
        "select what, from_account, to_account, amount, currency from payment.ledger where payment = $1 order by id",
        payment.id,
    )
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("captured", [False, True], ids=["authorised", "captured"])
async def test_more_than_was_asked_for_buys_the_seats_and_the_rest_goes_back(config, captured):
    async with counter(config) as at:
        booking = await at.pending()
        payment = await in_review(at, booking, 6500, captured=captured)
        done = await decides(at, payment, Decision.ACCEPT)
        assert (done.state, done.held, done.refunded) == (PaymentState.CAPTURED, 6500, 500)
        assert await at.state_of(booking) is State.PAID
        moved = Tally()
        for _, from_account, to_account, amount, _ in await books_of(at, payment):
            moved[from_account] -= amount
            moved[to_account] += amount
        assert +moved == {"sales": 6000}
        assert moved["provider:sandbox"] == -6000
        await refund(at.till, booking, seats=None, why="refunded", key=uuid4().hex)
        await at.settle()
        given = await at.database.fetchval("select refunded from payment.sandbox_charges where payment = $1", done.id)
        assert given == 6500


async def test_less_than_was_asked_for_is_waived_and_no_more_than_was_paid_goes_back(config):
    async with counter(config) as at:
        booking = await at.pending()
        payment = await in_review(at, booking, 5900)
        done = await decides(at, payment, Decision.ACCEPT)
        assert (done.state, done.held) == (PaymentState.CAPTURED, 5900)
        assert await books_of(at, payment) == [
            ("sale", "provider:sandbox", "sales", 5900, "TWD"),
            ("waived", "adjustments", "sales", 100, "TWD"),
        ]
        for seat in (0, 1):
            await refund(at.till, booking, seats=[Part("A", 1, (seat,), 0)], why="refunded", key=uuid4().hex)
            await at.settle()
        rows = await at.database.fetch("select amount from payment.refunds where booking = $1 order by id", booking)
        assert [row["amount"] for row in rows] == [3000, 2900]
        assert await at.state_of(booking) is State.REFUNDED


async def test_all_of_it_goes_back(config):
    async with counter(config) as at:
        booking = await at.pending()
        payment = await in_review(at, booking, 6500, captured=True)
        done = await decides(at, payment, Decision.REFUND)
        assert done.state is PaymentState.RETURNED
        assert await books_of(at, payment) == [
            ("late", "provider:sandbox", "suspense", 6500, "TWD"),
            ("late_return", "suspense", "refunds", 6500, "TWD"),
            ("refunded", "refunds", "provider:sandbox", 6500, "TWD"),
        ]
        assert await at.state_of(booking) is State.PENDING_PAYMENT, "another card may still pay"
        assert (await at.pay(booking)).state is PaymentState.CAPTURED
        await at.settle()


async def test_a_promise_of_other_money_is_given_back_without_any_moving(config):
    async with counter(config) as at:
        payment = await in_review(at, await at.pending(), 6500)
        assert (await decides(at, payment, Decision.REFUND)).state is PaymentState.VOIDED
        assert await books_of(at, payment) == []


@pytest.mark.parametrize("captured", [False, True], ids=["authorised", "captured"])
async def test_another_currency_can_only_be_refunded(config, captured):
    async with counter(config) as at:
        payment = await in_review(at, await at.pending(), 6000, "EUR", captured=captured)
        with pytest.raises(Problem) as refusal:
            await decides(at, payment, Decision.ACCEPT)
        assert refusal.value.code == "other_currency"
        assert (await at.payer.reread(payment)).state is PaymentState.REVIEW
        done = await decides(at, payment, Decision.REFUND)
        assert done.state is (PaymentState.RETURNED if captured else PaymentState.VOIDED)
        assert {row[4] for row in await books_of(at, payment)} == ({"EUR"} if captured else set())


async def test_after_the_booking_ran_out_the_buyer_is_seated_again(config):
    async with counter(config) as at:
        booking = await at.pending()
        payment = await in_review(at, booking, 6500)
        at.clock.pass_by(WINDOW + timedelta(seconds=1))
        await at.expire()
        await at.carry()
        done = await decides(at, payment, Decision.ACCEPT)
        assert (done.state, await at.state_of(done.booking)) == (PaymentState.CAPTURED, State.PAID)
        assert done.booking != booking


async def test_money_for_a_booking_that_is_paid_or_was_let_go_can_only_be_refunded(config):
    async with counter(config) as at:
        booking = await at.pending()
        payment = await in_review(at, booking, 6500)
        await at.pay(booking)
        with pytest.raises(Problem) as refusal:
            await decides(at, payment, Decision.ACCEPT)
        assert refusal.value.code == "already_paid"
        await refund(at.till, booking, seats=None, why="refunded", key=uuid4().hex)
        with pytest.raises(Problem) as refusal:
            await decides(at, payment, Decision.ACCEPT)
        assert refusal.value.code == "booking_ended"
        assert (await decides(at, payment, Decision.REFUND)).state is PaymentState.VOIDED


async def test_the_first_of_many_decisions_stands(config):
    """Twenty people at once, of two minds; the money goes one way."""
    async with counter(config) as at:
        payment = await in_review(at, await at.pending(), 6500, captured=True)
        minds = [Decision.ACCEPT, Decision.REFUND] * 10
        outcomes = await asyncio.gather(
            *(decide(at.till, payment, mind, asked(uuid4(), None, "")) for mind in minds), return_exceptions=True
        )
        ends = Tally("ok" if outcome is None else outcome.code for outcome in outcomes)
        assert ends == {"ok": 10, "not_in_review": 10}
        await at.settle()
        done = await at.payer.reread(payment)
        expected = {"accept": PaymentState.CAPTURED, "refund": PaymentState.RETURNED}
        assert done.state is expected[done.decision]


async def test_two_payments_that_both_came_late_both_go_back(config):
    """Their refunds once had the same key: the second could never be owed."""
    async with counter(config) as at:
        booking = await at.pending()
        lost = [await in_review(at, booking, 6001, captured=True) for _ in range(2)]
        await at.pay(booking)
        for payment in lost:
            assert (await decides(at, payment, Decision.REFUND)).state is PaymentState.RETURNED
        rows = await at.database.fetch("select amount, state from payment.refunds where booking = $1", booking)
        assert [tuple(row) for row in rows] == [(6001, "DONE")] * 2
