"""Money that comes after its seats were let go: the same seats, as good ones, or the money back, and exactly one."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from aisle.booking.booking import State
from aisle.booking.payment_start import LEASE
from aisle.payment.payment import PaymentState
from aisle.payment.provider import ProviderSilent
from tests.payment.counter import VERDICT, WINDOW, Counter, counter

VERDICT_AND_MORE = VERDICT + timedelta(seconds=60)


async def abandoned(at: Counter, seats=(0, 1), *, released=True, **more) -> UUID:
    """A booking that was let go while the provider had not decided; a moment later it does."""
    booking = await at.pending(seats, **more)
    payment = await at.pay(booking, "card_late")
    assert payment.state is PaymentState.STARTED
    await at.database.execute(
        "update payment.sandbox_charges set settles_at = settles_at + interval '1 day' where payment = $1", payment.id
    )
    at.clock.pass_by(WINDOW)
    assert await at.expire() == 0, "the payment fences the booking"
    at.clock.pass_by(VERDICT_AND_MORE)
    await at.resolver.resolve_due()
    assert await at.state_of(booking) is State.CANCELLED
    if released:
        await at.carry()
    await at.database.execute("update payment.sandbox_charges set settles_at = now() where payment = $1", payment.id)
    return booking


async def money_comes(at: Counter) -> None:
    at.clock.pass_by(timedelta(days=2))
    await at.resolver.resolve_due()  # ABANDONED -> LATE
    at.clock.pass_by(LEASE)
    await at.resolver.resolve_due()  # LATE -> its end
    await at.settle()


async def capture_it(at: Counter, booking: UUID) -> None:
    """The provider has not only promised the money, it took it."""
    [row] = await at.payments_of(await at.buyer_of(booking))
    await at.database.execute("update payment.sandbox_charges set state = 'captured' where payment = $1", row["id"])


async def ends_of(at: Counter, booking: UUID) -> tuple[str, str, list[tuple[str, list]]]:
    """(the payment's state, what the old booking says, the buyer's paid bookings with their seats)."""
    buyer = await at.buyer_of(booking)
    [payment] = await at.payments_of(buyer)
    reason = await at.database.fetchval("select reason from booking.bookings where id = $1", booking)
    rows = await at.database.fetch(
        """select b.id, s.section, t.place, array_agg(t.seat order by t.seat) as seats
           from booking.bookings b join ticketing.tickets t on t.booking = b.id
           join ticketing.subsections s on (s.event_id, s.place) = (t.event_id, t.place)
           where b.buyer = $1 and b.state = 'PAID' and t.state = 2 group by 1, 2, 3""",
        buyer,
    )
    return payment["state"], reason, [(row["section"], row["place"], row["seats"]) for row in rows]


async def test_a_slow_provider_does_not_cost_the_buyer_time_that_was_promised(config):
    async with counter(config) as at:
        booking = await at.pending()
        payment = await at.pay(booking, "card_late")
        await at.database.execute(
            "update payment.sandbox_charges set settles_at = settles_at + interval '8 min' where payment = $1",
            payment.id,
        )
        at.clock.pass_by(VERDICT_AND_MORE)
        await at.resolver.resolve_due()
        assert await at.state_of(booking) is State.PAYING, "no verdict yet, but ten minutes are left"
        at.clock.pass_by(timedelta(minutes=5))
        await at.resolver.resolve_due()
        assert await at.state_of(booking) is State.PAID
        await at.settle()


async def test_the_same_seats_if_they_are_free(config):
    async with counter(config) as at:
        booking = await abandoned(at)
        await money_comes(at)
        assert await ends_of(at, booking) == ("CAPTURED", "paid_late_moved", [("A", 0, [0, 1])])
        assert await at.state_of(booking) is State.CANCELLED, "what has ended stays so"


async def test_as_good_seats_side_by_side_if_the_same_are_gone(config):
    async with counter(config) as at:
        booking = await abandoned(at, (12, 13))
        stranger = await at.pending((12,))
        await money_comes(at)
        state, reason, [(section, place, seats)] = await ends_of(at, booking)
        assert (state, reason, section, place) == ("CAPTURED", "paid_late_moved", "A", 0)
        assert seats[1] == seats[0] + 1
        assert not {12, 13} & set(seats), "none of the seats that were sold meanwhile, nor a split party"
        assert await at.state_of(stranger) is State.PENDING_PAYMENT


async def test_no_worse_seats_but_the_money_back(config):
    """Row 1 of the best subsection: only its own row is as good, and it is full."""
    async with counter(config) as at:
        booking = await abandoned(at, (0, 1))
        for first in range(0, 10, 2):
            await at.pending((first, first + 1))
        await money_comes(at)
        assert await ends_of(at, booking) == ("VOIDED", "paid_late_returned", [])
        charge = await at.database.fetchval(
            """select c.state from payment.sandbox_charges c join payment.payments p on p.id = c.payment
               where p.booking = $1""",
            booking,
        )
        assert charge == "voided", "the promise was given back; no money moved"


async def test_money_that_was_captured_goes_back_as_a_refund(config):
    async with counter(config) as at:
        booking = await abandoned(at, (0, 1))
        for first in range(0, 10, 2):
            await at.pending((first, first + 1))
        await capture_it(at, booking)
        await money_comes(at)
        assert await ends_of(at, booking) == ("RETURNED", "paid_late_returned", [])
        rows = await at.database.fetch(
            """select what, from_account, to_account, l.amount from payment.ledger l
               join payment.payments p on p.id = l.payment where p.booking = $1 order by l.id""",
            booking,
        )
        assert [tuple(row) for row in rows] == [
            ("late", "provider:sandbox", "suspense", 6000),
            ("late_return", "suspense", "refunds", 6000),
            ("refunded", "refunds", "provider:sandbox", 6000),
        ]


async def test_not_beyond_the_buyers_limit(config):
    async with counter(config) as at:
        booking = await abandoned(at, (0, 1))
        buyer = await at.buyer_of(booking)
        await at.pending(tuple(range(10, 20)), buyer=buyer)
        await money_comes(at)
        assert (await ends_of(at, booking))[:2] == ("VOIDED", "paid_late_returned")


async def test_a_booking_that_still_waits_takes_the_money_itself(config):
    """The provider had not heard of the payment, and has it after all: the buyer's time is not over."""
    async with counter(config) as at:
        booking = await at.pending()
        payment = await at.pay(booking, "card_timeout")
        await at.resolve()
        assert await at.state_of(booking) is State.PENDING_PAYMENT
        await at.database.execute(
            """insert into payment.sandbox_charges (payment, amount, currency, card, state, settles_at)
               values ($1, 6000, 'TWD', 'card_ok', 'authorised', now())""",
            payment.id,
        )
        current = await at.payer.reread(payment)
        assert current.state is PaymentState.DECLINED
        await at.resolver.resolve(current)
        await at.resolver.resolve(await at.payer.reread(payment))
        assert await at.state_of(booking) is State.PAID
        await at.settle()


async def test_money_for_a_booking_that_another_card_has_paid_goes_back(config):
    """Nobody buys twice because a provider was slow, however many seats are free."""
    async with counter(config) as at:
        booking = await at.pending((0, 1))
        lost = await at.pay(booking, "card_timeout")
        await at.resolve()
        await at.pay(booking, "card_ok")
        assert await at.state_of(booking) is State.PAID
        await at.database.execute(
            """insert into payment.sandbox_charges (payment, amount, currency, card, state, settles_at)
               values ($1, 6000, 'TWD', 'card_ok', 'authorised', now())""",
            lost.id,
        )
        await at.resolver.resolve(await at.payer.reread(lost))
        await at.resolver.resolve(await at.payer.reread(lost))
        await at.settle()
        assert (await at.payer.reread(lost)).state is PaymentState.VOIDED
        assert await at.state_of(booking) is State.PAID


@pytest.mark.parametrize("captured", [False, True], ids=["authorised", "captured"])
async def test_ten_resolvers_at_once_seat_the_buyer_once(config, captured):
    async with counter(config) as at:
        booking = await abandoned(at)
        if captured:
            await capture_it(at, booking)
        at.clock.pass_by(timedelta(days=2))
        await at.resolver.resolve_due()
        [row] = await at.payments_of(await at.buyer_of(booking))
        assert row["state"] == "LATE"
        payment = await at.payer.reread(type("Id", (), {"id": row["id"]}))
        await asyncio.gather(*(at.late_money.settle(payment) for _ in range(10)))
        await at.settle()
        state, reason, seats = await ends_of(at, booking)
        assert (state, reason, len(seats)) == ("CAPTURED", "paid_late_moved", 1)


async def test_defect_10_late_money_that_meets_a_half_released_seat_does_not_take_it(config):
    """The booking is CANCELLED, but its tickets and its bits are not back yet: they are nobody's to sell."""
    async with counter(config) as at:
        booking = await abandoned(at, (0, 1), released=False)
        held = await at.database.fetchval("select count(*) from ticketing.tickets where booking = $1", booking)
        assert held == 2, "the seats are already back: this proves nothing"
        await money_comes(at)
        state, reason, [(section, place, seats)] = await ends_of(at, booking)
        assert (state, reason, section, place) == ("CAPTURED", "paid_late_moved", "A", 0)
        assert (len(seats), seats[1] - seats[0]) == (2, 1)
        assert not {0, 1} & set(seats)


async def test_the_buyer_is_told_of_both_bookings(config):
    """What live updates listen to; the stream itself has tests of its own."""
    async with counter(config) as at:
        booking = await abandoned(at)
        buyer = await at.buyer_of(booking)
        told = []
        async with at.database.acquire() as connection:

            def hear(_connection, _pid, _channel, payload):
                told.extend(payload.split(","))

            await connection.add_listener("bookings", hear)
            await money_comes(at)
            paid = await at.database.fetchval(
                "select id from booking.bookings where buyer = $1 and state = 'PAID'", buyer
            )
            async with asyncio.timeout(30):
                while not {f"{buyer}:{booking}", f"{buyer}:{paid}"} <= set(told):
                    await asyncio.sleep(0.01)
            await connection.remove_listener("bookings", hear)


async def test_a_confirmation_that_nobody_gave_is_called_off_when_a_silent_provider_speaks_again(config, monkeypatch):
    """The booking was let go while nobody knew that the provider waits for its buyer. It would be asked for ever."""

    async def silent(*_):
        raise ProviderSilent("the provider did not answer")

    async with counter(config) as at:
        payment = await at.pay(await at.pending(), "card_3ds")
        assert payment.state is PaymentState.ACTION
        at.clock.pass_by(WINDOW + VERDICT_AND_MORE)
        with monkeypatch.context() as patched:
            patched.setattr(at.till.providers[payment.provider], "look", silent)
            await at.resolver.resolve_due()
        assert (await at.payer.reread(payment)).state is PaymentState.ABANDONED
        at.clock.pass_by(timedelta(hours=1))
        await at.resolver.resolve_due()
        assert (await at.payer.reread(payment)).state is PaymentState.DECLINED
        charge = "select state from payment.sandbox_charges where payment = $1"
        assert await at.database.fetchval(charge, payment.id) == "voided"
        await at.settle()
