"""Defects of the systems that this one is made from, in holds and carts: each is shown not to be here.

The seeds let a lock go before the order was stored, released by looking and then deleting, renewed a cart but not the
locks of its seats, lost a place when its buyer came back before the sweep, and never counted the rows that had moved.
"""

import asyncio
import dataclasses
from datetime import timedelta
from uuid import uuid4

import pytest

from aisle.booking.booking import Request
from aisle.booking.checkout import UNDECIDED, Checkout
from aisle.booking.expire import give_up_unanswered
from aisle.reservation.keys import Place
from aisle.reservation.pool import PoolPlace
from aisle.reservation.pools import Pools
from aisle.reservation.reads import who_has
from aisle.reservation.sweeper import sweep_once
from tests.people import a_hall, new_key
from tests.shop import PAYMENT, buyers, codes, now, open_shop
from tests.stage import settle

DECK = {"name": "DECK", "price": 700, "capacity": 5, "places_per_buyer": 4, "one_hold_per_buyer": True}


@pytest.fixture
def event(seller):
    return seller.opens(a_hall(("A", 3000, 1, 4), pools=[DECK]))


async def owner(shop, event, seat="1-1"):
    [holder] = await who_has(shop.store, Place(event, "A", 1), [seat])
    return holder.record.owner if holder else None


async def over(shop, buyer):
    """Wait until the buyer's cart has run out by the store's clock."""
    while True:
        cart, now_ms = await shop.carts.read(buyer)
        if cart.is_over(now_ms):
            return
        await asyncio.sleep((cart.deadline_ms - now_ms + 1) / 1000)


def checkout(shop, **changes):
    """A checkout with some of what it asks of others replaced."""
    conversion = dataclasses.replace(shop.conversion, **changes)
    return Checkout(shop.database, shop.carts, conversion, shop.find_sale, shop.relay, payment=PAYMENT, clock=now)


def without_database(shop):
    async def fails(*_):
        raise OSError("the database went away")

    return checkout(shop, reserve_tickets=fails)


async def test_defect_3_a_buyer_who_comes_back_before_the_sweep_costs_no_place(stage, event):
    async with open_shop(stage, hold_ms=100, hold_ms_max=100) as shop, open_shop(stage) as patient:
        [buyer] = buyers(1)
        place = Request(quantity=1, pool="DECK")
        await shop.hold(event, buyer, place)
        await over(shop, buyer)
        await patient.hold(event, buyer, place)
        await sweep_once(shop.store)
        [status] = await Pools(shop.store).statuses([PoolPlace(event, "DECK")])
        assert (status.held, status.available) == (1, 4)
        await patient.holder.release_all(buyer)
        [status] = await Pools(shop.store).statuses([PoolPlace(event, "DECK")])
        assert (status.held, status.available) == (0, 5)
        await settle(shop.database, shop.store, [event])


async def test_defect_4_a_seat_is_somebodys_while_its_booking_is_being_stored(stage, event):
    """PostgreSQL fails in the middle of a checkout: the seats stay the booking's, and the same key finishes it."""
    async with open_shop(stage) as shop:
        [buyer, other] = buyers(2)
        await shop.named(event, buyer, 0, 1)

        key = new_key()
        with pytest.raises(OSError, match="went away"):
            await without_database(shop).check_out(buyer, key)
        await sweep_once(shop.store)
        assert await owner(shop, event) == str(buyer)
        outcomes = await asyncio.gather(shop.named(event, other, 0), return_exceptions=True)
        assert codes(outcomes) == ["taken"]
        booking = await shop.check_out(buyer, key)
        assert booking.state == "PENDING_PAYMENT"
        await settle(shop.database, shop.store, [event])


async def test_a_checkout_that_nobody_finishes_in_time_gives_its_claim_back(stage, event):
    """It died after the store had made the holds its own; the log was away for the whole processing window."""
    async with open_shop(stage) as shop:
        [buyer] = buyers(1)
        await shop.named(event, buyer, 0, 1)
        with pytest.raises(OSError, match="went away"):
            await without_database(shop).check_out(buyer, new_key())
        assert await give_up_unanswered(shop.database, placed_before=now() + timedelta(hours=1), now=now()) == 1
        await settle(shop.database, shop.store, [event])
        assert await owner(shop, event) is None
        assert await shop.holder.cart(buyer) is None, "the cart has become a booking, which has ended"


async def test_a_booking_that_ends_while_its_holds_are_being_converted_keeps_none_of_them(stage, event):
    async with open_shop(stage) as shop:
        [buyer] = buyers(1)
        await shop.named(event, buyer, 0, 1)

        async def too_late(placing):
            await give_up_unanswered(shop.database, placed_before=now() + timedelta(hours=1), now=now())
            await settle(shop.database, shop.store, [event])
            return await shop.conversion.convert(placing)

        late = checkout(shop, convert=too_late)
        assert codes(await asyncio.gather(late.check_out(buyer, new_key()), return_exceptions=True)) == ["timeout"]
        await settle(shop.database, shop.store, [event])
        assert await owner(shop, event) is None


async def test_a_checkout_that_cannot_be_decided_is_not_refused(stage, event):
    """While the store is being verified the seats stay, and the same key gets the booking afterwards."""
    async with open_shop(stage) as shop:
        [buyer] = buyers(1)
        await shop.named(event, buyer, 0, 1)

        async def undecided(_):
            return UNDECIDED

        key = new_key()
        shut = checkout(shop, convert=undecided)
        assert codes(await asyncio.gather(shut.check_out(buyer, key), return_exceptions=True)) == ["store_unverified"]
        assert (await shop.check_out(buyer, key)).state == "PENDING_PAYMENT"
        await settle(shop.database, shop.store, [event])


async def test_defect_6_a_late_release_does_not_free_the_next_buyers_seat(stage, event):
    async with open_shop(stage, hold_ms=100, hold_ms_max=100) as shop, open_shop(stage) as patient:
        [late, next_one] = buyers(2)
        _, hold = await shop.named(event, late, 0)
        await over(shop, late)
        await sweep_once(shop.store)
        await patient.named(event, next_one, 0)
        await shop.holder.release(event, hold.id, late)
        assert await owner(shop, event) == str(next_one)
        await patient.holder.release_all(next_one)
        await settle(shop.database, shop.store, [event])


async def test_defect_6_no_cart_outlives_its_seats(stage, event):
    """Everything that a buyer does to a cart, and it has the deadline of its seats; when they are over, so is it."""
    async with open_shop(stage, hold_ms=300, hold_ms_max=600) as shop:
        [buyer] = buyers(1)
        _, hold = await shop.named(event, buyer, 0)
        await shop.named(event, buyer, 1)
        await shop.holder.extend(event, hold.id, buyer, new_key())
        cart = await shop.holder.cart(buyer)
        holders = await who_has(shop.store, Place(event, "A", 1), ["1-1", "1-2"])
        assert {holder.record.deadline_ms for holder in holders} == {cart.deadline_ms}
        await over(shop, buyer)
        assert await shop.holder.cart(buyer) is None
        outcomes = await asyncio.gather(shop.check_out(buyer), return_exceptions=True)
        assert codes(outcomes) == ["expired"]
        await sweep_once(shop.store)
        await settle(shop.database, shop.store, [event])


async def test_defect_9_a_checkout_counts_the_tickets_that_moved(stage, event):
    """PostgreSQL has fewer free tickets than the store has free seats: nothing is booked, the store is mended."""
    async with open_shop(stage) as shop:
        [buyer] = buyers(1)
        stranger = uuid4()
        await shop.database.execute(
            "update ticketing.tickets set state = 1, booking = $2 where event_id = $1 and place = 0 and seat = 1",
            event,
            stranger,
        )
        await shop.named(event, buyer, 0, 1)
        outcomes = await asyncio.gather(shop.check_out(buyer), return_exceptions=True)
        assert codes(outcomes) == ["taken"]
        rows = await shop.database.fetch(
            "select seat, booking from ticketing.tickets where event_id = $1 and state = 1", event
        )
        assert [(row["seat"], row["booking"]) for row in rows] == [(1, stranger)]
        await shop.database.execute(
            "update ticketing.tickets set state = 0, booking = null where booking = $1", stranger
        )
        await settle(shop.database, shop.store, [event])
        assert await owner(shop, event) is None
