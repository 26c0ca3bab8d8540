"""What an operator sees of money: outcomes, the provider's time, what waits, how late money ended, and the books."""

from datetime import timedelta

from aisle.booking.books import show_books, show_due
from aisle.booking.refund import refund
from aisle.payment.payment import PaymentState
from tests.payment.counter import Counter, counter
from tests.payment.test_late_money import abandoned, money_comes


def value(at: Counter, name: str, **labels: str) -> float:
    metrics = (metric for one in vars(at.till.metrics).values() for metric in one.collect())
    samples = (sample for metric in metrics for sample in metric.samples)
    return next((sample.value for sample in samples if (sample.name, sample.labels) == (name, labels)), 0)


async def test_outcomes_and_the_providers_time(config):
    async with counter(config) as at:
        await at.pay(await at.pending((0, 1)))
        assert (await at.pay(await at.pending((2, 3)), "card_declined")).state is PaymentState.DECLINED
        await at.pay(await at.pending((4, 5)), "card_wrong_amount")
        await at.pay(await at.pending((6, 7)), "card_timeout")
        for outcome in ("captured", "declined", "review"):
            assert value(at, "aisle_payments_total", provider="sandbox", outcome=outcome) == 1
        calls = {"provider": "sandbox", "call": "authorise"}
        assert value(at, "aisle_provider_seconds_count", **calls, outcome="answered") == 3
        assert value(at, "aisle_provider_seconds_count", **calls, outcome="silent") == 1


async def test_a_payment_is_counted_once_however_often_it_is_gone_on_with(config):
    async with counter(config) as at:
        payment = await at.pay(await at.pending(), "card_charge_timeout")
        for _ in range(3):
            await at.resolver.resolve(payment)
        assert value(at, "aisle_payments_total", provider="sandbox", outcome="captured") == 1


async def test_late_money_by_its_ending(config):
    async with counter(config) as at:
        await abandoned(at, (0, 1))
        await money_comes(at)
        assert value(at, "aisle_late_money_total", ending="same_seats") == 1
        await abandoned(at, (12, 13))
        await at.pending((12,))
        await money_comes(at)
        assert value(at, "aisle_late_money_total", ending="as_good_seats") == 1
        assert value(at, "aisle_payments_total", provider="sandbox", outcome="abandoned") == 2


async def test_what_waits_and_for_how_long(config):
    async with counter(config) as at:
        await at.pay(await at.pending((0, 1)), "card_timeout")
        paid = await at.pending((2, 3))
        await at.pay(paid)
        await show_due(at.database, at.till.metrics, now=at.clock())
        assert value(at, "aisle_payments_due", kind="started") == 0, "whoever began it works on it"
        await refund(at.till, paid, seats=None, why="refunded", key="a-refund")
        at.clock.pass_by(timedelta(seconds=30))
        await show_due(at.database, at.till.metrics, now=at.clock())
        assert value(at, "aisle_payments_due", kind="started") == 1
        assert value(at, "aisle_payments_due", kind="refund") == 1
        assert value(at, "aisle_payments_oldest_due_seconds") == 30
        await at.settle()
        await show_due(at.database, at.till.metrics, now=at.clock())
        assert value(at, "aisle_payments_oldest_due_seconds") == 0


async def test_the_books_agree_with_what_was_paid_until_somebody_forgets_an_entry(config):
    async with counter(config) as at:
        await show_books(at.database, at.till.metrics)
        before = value(at, "aisle_ledger_imbalance", currency="TWD")
        booking = await at.pending()
        await at.pay(booking)
        await refund(at.till, booking, seats=None, why="refunded", key="a-refund")
        await show_books(at.database, at.till.metrics)
        assert value(at, "aisle_ledger_imbalance", currency="TWD") == before
        assert value(at, "aisle_ledger_balance", account="refunds", currency="TWD") >= 6000
        # A program that says PAID and books nothing.
        forgotten = await at.pending((2, 3))
        await at.pay(forgotten, "card_wrong_amount")
        await at.database.execute("update payment.payments set state = 'CAPTURED' where booking = $1", forgotten)
        await show_books(at.database, at.till.metrics)
        assert value(at, "aisle_ledger_imbalance", currency="TWD") == before - 6000
        await at.database.execute("update payment.payments set state = 'REVIEW' where booking = $1", forgotten)
