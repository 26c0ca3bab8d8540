"""Races over holds, carts and checkouts. What came of them is read from PostgreSQL and the store.

Each race is first shown to be real: the careless way, with the guard taken away, goes wrong.
"""

import asyncio
import random
from collections import Counter
from uuid import UUID

import msgspec

from aisle.booking import cart as rules
from aisle.booking.booking import Request
from aisle.booking.checkout import Checkout, Conversion
from aisle.ids import new_id
from aisle.reservation.claims import Claim, Kind
from aisle.reservation.holds import HoldInventory, HoldPools
from aisle.reservation.keys import Place
from aisle.reservation.pool import PoolPlace, Take
from aisle.reservation.reads import who_has
from aisle.reservation.sweeper import sweep_once
from tests.http_client import connections
from tests.invariants import live_holds
from tests.people import a_hall, new_key
from tests.shop import PAYMENT, buyers, codes, now, open_shop
from tests.stage import settle

A1 = {"mode": "manual", "section": "A", "subsection": 1}


def opens(seller, *sections, **changes):
    return asyncio.to_thread(seller.opens, a_hall(*(sections or [("A", 3000, 2, 10)]), **changes))


async def test_a_seat_that_is_looked_at_and_then_locked_is_held_by_many(stage):
    """As one of the seeds held seats: a look, then a key with a time to live."""
    async with stage.behind() as (_, store):
        everybody_has_looked = asyncio.Barrier(20)

        async def careless(n):
            free = await store.call("EXISTS", f"{store.prefix}lock") == 0
            await everybody_has_looked.wait()
            if free:
                await store.call("SET", f"{store.prefix}lock", n, "PX", 60_000)
            return free

        holders = await asyncio.gather(*map(careless, range(20)))
        await store.call("DEL", f"{store.prefix}lock")
    assert sum(holders) > 1, "the race no longer shows: the next test proves nothing"


async def test_of_two_hundred_buyers_one_holds_the_seat(stage, seller):
    event = await opens(seller)
    tokens = await stage.tokens(200)

    async def hold(connection, token):
        return await connection.request(
            "POST", f"/events/{event}/holds", {**A1, "seats": ["1-1"]}, token=token, key=new_key()
        )

    async with connections(stage.address, len(tokens)) as opened:
        answers = await asyncio.gather(*(hold(c, token) for c, token in zip(opened, tokens, strict=True)))
    assert Counter(answer.status for answer in answers) == {201: 1, 409: 199}
    assert {(a.json["code"], *a.json["seats"]) for a in answers if a.status == 409} == {("taken", "1-1")}
    [winner] = [answer.json["id"] for answer in answers if answer.status == 201]
    async with stage.behind() as (database, store):
        [holder] = await who_has(store, Place(event, "A", 1), ["1-1"])
        assert holder.claim == winner
        assert await live_holds(database, store, event) == 1
        await settle(database, store, [event])


async def test_without_its_guards_a_cart_is_booked_twice(stage, seller):
    """Nobody closes the cart, nobody asks the store, nobody counts the tickets that moved."""
    event = await opens(seller, seats_per_buyer=100)

    class CarelessCheckout(Checkout):
        async def _claim_cart(self, buyer, key):
            cart, now_ms = await self._carts.read(buyer)
            await everybody_has_looked.wait()
            return msgspec.structs.replace(cart, booking=str(new_id(now())), booking_key=key), now_ms

    async def trust(*_):
        return "ok"

    async def believe(connection, placings):
        parts = {p.id: tuple(part for h in p.request.held for part in h.parts) for p in placings}
        return {p.id: (parts[p.id], p.request.quantity) for p in placings}

    async with open_shop(stage) as shop:
        everybody_has_looked = asyncio.Barrier(5)
        conversion = Conversion(trust, believe, trust)
        careless = CarelessCheckout(
            shop.database, shop.carts, conversion, shop.find_sale, shop.relay, payment=PAYMENT, clock=now
        )
        [buyer] = buyers(1)
        await shop.named(event, buyer, 0, 1)
        bookings = await asyncio.gather(*(careless.check_out(buyer, new_key()) for _ in range(5)))
        assert len({booking.id for booking in bookings}) > 1, "the race no longer shows: the next test proves nothing"
        await shop.database.execute("delete from booking.bookings where buyer = $1", buyer)
        await shop.database.execute("delete from booking.purchases where buyer = $1", buyer)


async def test_a_cart_that_is_checked_out_twenty_times_at_once_is_one_booking(stage, seller):
    event = await opens(seller, ("A", 3000, 2, 10), ("B", 1000, 2, 10), seats_per_buyer=100)
    async with open_shop(stage) as shop, open_shop(stage) as elsewhere:
        crowd = buyers(10)
        for buyer in crowd:
            await shop.hold(event, buyer, Request(quantity=1, section="A"))
            await shop.hold(event, buyer, Request(quantity=2, section="B"))
        outcomes = await asyncio.gather(
            *(where.check_out(buyer) for buyer in crowd for where in (shop, elsewhere) * 10), return_exceptions=True
        )
        assert Counter(codes(outcomes))["ok"] == len(crowd)
        assert set(codes(outcomes)) <= {"ok", "checked_out", "cart_empty", "expired"}
        rows = await shop.database.fetch("select buyer, state from booking.bookings where event_id = $1", event)
        pending = Counter(row["buyer"] for row in rows if row["state"] == "PENDING_PAYMENT")
        assert pending == dict.fromkeys(crowd, 1)
        await settle(shop.database, shop.store, [event])


async def test_the_same_key_from_twenty_clients_is_one_booking(stage, seller):
    event = await opens(seller)
    async with open_shop(stage) as shop, open_shop(stage) as elsewhere:
        [buyer] = buyers(1)
        await shop.named(event, buyer, 0, 1)
        key = new_key()
        bookings = await asyncio.gather(*(where.check_out(buyer, key) for where in (shop, elsewhere) * 10))
        assert len({booking.id for booking in bookings}) == 1
        await settle(shop.database, shop.store, [event])


async def test_the_same_order_from_thirty_clients_is_one_booking(stage, seller):
    """Held and checked out in one request, thirty times under one key."""
    event = await opens(seller)
    [token] = await stage.tokens(1)
    key, order = new_key(), {"order": {"event_id": event, **A1, "seats": ["1-1", "1-2"]}}
    async with connections(stage.address, 30) as opened:
        answers = await asyncio.gather(
            *(c.request("POST", "/cart/checkout", order, token=token, key=key) for c in opened)
        )
    assert Counter(answer.status for answer in answers) == {201: 30}, {a.body for a in answers if a.status != 201}
    assert len({answer.json["id"] for answer in answers}) == 1
    async with stage.behind() as (database, store):
        await settle(database, store, [event])


def slow_checkout(shop, may_go_on):
    """A process that stands still between finding its cart and claiming it."""

    class SlowCheckout(Checkout):
        async def _claim_cart(self, buyer, key):
            await may_go_on.wait()
            return await super()._claim_cart(buyer, key)

    return SlowCheckout(
        shop.database, shop.carts, shop.conversion, shop.find_sale, shop.relay, payment=PAYMENT, clock=now
    )


async def test_a_slow_twin_of_a_past_checkout_leaves_the_next_cart_alone(stage, seller):
    event = await opens(seller)
    async with open_shop(stage) as shop:
        [buyer] = buyers(1)
        await shop.named(event, buyer, 0, 1)
        key, may_go_on = new_key(), asyncio.Event()

        twin = asyncio.create_task(slow_checkout(shop, may_go_on).check_out(buyer, key))
        await asyncio.sleep(0.2)
        booking = await shop.check_out(buyer, key)
        await shop.named(event, buyer, 5)
        may_go_on.set()
        assert (await twin).id == booking.id
        cart = await shop.holder.cart(buyer)
        assert (cart.booking, cart.quantity) == ("", 1)
        assert (await shop.check_out(buyer)).quantity == 1
        await settle(shop.database, shop.store, [event])


async def test_a_slow_twin_that_finds_the_cart_gone_gets_the_booking_of_its_key(stage, seller):
    event = await opens(seller)
    async with open_shop(stage) as shop:
        [buyer] = buyers(1)
        await shop.named(event, buyer, 0, 1)
        key, everybody_has_looked = new_key(), asyncio.Event()

        twin = asyncio.create_task(slow_checkout(shop, everybody_has_looked).check_out(buyer, key))
        await asyncio.sleep(0.2)
        booking = await shop.check_out(buyer, key)
        everybody_has_looked.set()
        assert (await twin).id == booking.id
        await settle(shop.database, shop.store, [event])


async def test_a_checkout_that_died_before_its_booking_was_written_is_taken_over(stage, seller):
    event = await opens(seller)
    async with open_shop(stage) as shop:
        [buyer] = buyers(1)
        await shop.named(event, buyer, 0, 1)
        dead = new_id(now())
        await shop.carts.change(
            buyer, lambda c, ms: rules.check_out(c, booking=dead, key="died-here", instead_of="", now_ms=ms)
        )
        bookings = await asyncio.gather(*(shop.check_out(buyer) for _ in range(5)), return_exceptions=True)
        assert Counter(codes(bookings))["ok"] == 1
        await settle(shop.database, shop.store, [event])


async def test_checkouts_on_the_last_millisecond_get_all_of_their_seats_or_none(stage, seller):
    """Carts run out while they are being checked out and sweepers go through the hall."""
    sections = [(name, 1000, 4, 10) for name in "AB"]
    event = await opens(seller, *sections, seats_per_buyer=100)
    chance = random.Random(7)
    async with open_shop(stage, hold_ms=500, hold_ms_max=500) as shop:

        async def shop_late(buyer):
            await shop.hold(event, buyer, Request(quantity=1, section="A"))
            cart, _ = await shop.hold(event, buyer, Request(quantity=1, section="B"))
            _, now_ms = await shop.carts.read(buyer)
            await asyncio.sleep((cart.deadline_ms - now_ms) / 1000 + chance.uniform(-0.25, 0.005))
            return await shop.check_out(buyer)

        async def sweep():
            while True:
                await sweep_once(shop.store)
                await asyncio.sleep(0)

        sweeping = asyncio.create_task(sweep())
        found = Counter()
        for _ in range(20):
            outcomes = await asyncio.gather(*map(shop_late, buyers(10)), return_exceptions=True)
            found.update(codes(outcomes))
            booked = [UUID(str(o.id)) for o in outcomes if not isinstance(o, BaseException)]
            await shop.database.execute("update booking.bookings set deadline = now() where id = any($1)", booked)
            if min(found["ok"], found["expired"]) >= 5:
                break
        sweeping.cancel()
        assert set(found) <= {"ok", "expired", "cart_empty"}, found
        assert found["ok"], "nobody was in time: the race does not show"
        assert found["expired"], "everybody was in time: the race does not show"
        unpaid = "select count(*) from booking.bookings where event_id = $1 and state = 'PENDING_PAYMENT'"
        async with asyncio.timeout(60):
            while await shop.database.fetchval(unpaid, event):  # their payment windows have closed
                await asyncio.sleep(0.1)
        await settle(shop.database, shop.store, [event])
        assert await live_holds(shop.database, shop.store, event) == 0


async def test_ten_devices_put_no_more_into_a_cart_than_a_booking_may_have(stage, seller):
    event = await opens(seller, seats_per_booking=4, seats_per_buyer=4)
    async with open_shop(stage) as shop:
        [buyer] = buyers(1)
        outcomes = await asyncio.gather(
            *(shop.hold(event, buyer, Request(quantity=1)) for _ in range(10)), return_exceptions=True
        )
        assert Counter(codes(outcomes)) == {"ok": 4, "limit": 6}
        assert await live_holds(shop.database, shop.store, event) == 4
        assert len(await deadlines(shop, event)) == 1
        assert (await shop.check_out(buyer)).quantity == 4
        await settle(shop.database, shop.store, [event])


async def test_what_is_held_while_the_cart_is_extended_shares_the_new_deadline(stage, seller):
    event = await opens(seller)
    async with open_shop(stage) as shop:
        for _ in range(10):
            [buyer] = buyers(1)
            _, first = await shop.named(event, buyer, 0)
            await asyncio.sleep(0.01)
            await asyncio.gather(
                shop.holder.extend(event, first.id, buyer, new_key()),
                *(shop.named(event, buyer, seat) for seat in (1, 2, 3)),
                shop.holder.extend(event, first.id, buyer, new_key()),
                return_exceptions=False,
            )
            cart = await shop.holder.cart(buyer)
            assert await deadlines(shop, event) == {cart.deadline_ms}
            await shop.holder.release_all(buyer)
        await settle(shop.database, shop.store, [event])


async def test_holds_that_arrive_together_share_one_call_to_the_store(stage, seller):
    event = await opens(seller, ("A", 3000, 10, 10), pools=[{"name": "GA", "price": 1, "capacity": 100}])
    async with stage.behind() as (database, store):
        inventory, pools = HoldInventory(store), HoldPools(store)
        place, pool = Place(event, "A", 1), PoolPlace(event, "GA")

        async def hold(n):
            mine = {"id": f"h{n}", "owner": f"b{n}", "kind": Kind.HOLD, "hold_ms": 600_000}
            [outcome] = await inventory.claim(place, [Claim(seats=(n,), **mine)], epoch=1)
            [taken] = await pools.take(pool, [Take(quantity=1, **mine)], epoch=1)
            return outcome.ok, outcome.seats, taken.ok

        assert await asyncio.gather(*map(hold, range(50))) == [(True, (n,), True) for n in range(50)]
        assert (calls_of(store, "claim"), calls_of(store, "pool_take")) == (1, 1)
        assert calls_of(store, "announce") == 2, "the sweepers are told of each place once"
        await settle(database, store, [event])


async def deadlines(shop, event):
    """Those of the live holds in A-1."""
    lines = [line.decode() for line in await shop.store.call("HVALS", f"{shop.store.prefix}holds:{{{event}:A-1}}")]
    return {int(line.split("|")[5]) for line in lines if line.startswith("L|h|")}


def calls_of(store, script):
    samples = store._metrics.store_script_seconds.collect()[0].samples
    return sum(s.value for s in samples if s.name.endswith("_count") and s.labels["script"] == script)
