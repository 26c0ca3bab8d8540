"""One test per defect of the documents this system was made from, as far as it concerns seats in the store.

Each docstring names the document and what went wrong in it. The last ones are our own, found by these tests.
"""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from aisle.errors import StoreScriptFailed
from aisle.reservation.claims import Claim, Code, Kind, Settlement, Verb
from aisle.reservation.inventory import SWEEP, Hall, Inventory
from aisle.reservation.keys import Place
from aisle.reservation.subsection import SeatState, Subsection
from aisle.reservation.sweeper import sweep_keys
from aisle.store import open_store
from tests.conftest import with_settings
from tests.integration.inventory_duel import now_ms
from tests.integration.inventory_model import audit, look
from tests.proxy import recording

EPOCH = 1
PLACE = Place(1, "A", 1)


async def on_sale(store, shape, *, epoch=EPOCH, limit=6):
    inventory = Inventory(store)
    hall = Hall(PLACE, shape, price=100, limit=min(limit, shape.seats))
    await inventory.open([hall], epoch=epoch)
    await inventory.switch([PLACE], epoch=epoch, on_sale=True)
    return inventory


def hold(name, owner, size=2, **more):
    return Claim(id=name, owner=owner, size=size, kind=Kind.HOLD, hold_ms=60_000, **more)


async def expire(store, inventory, shape, name):
    past = now_ms() - 5000
    record = (await look(store, PLACE, shape)).records[name]
    keys = inventory.keys(PLACE)
    await store.call("HSET", keys[5], name, replace(record, deadline=past).text)
    await store.call("ZADD", keys[6], past, name)


async def sweep(store, inventory):
    return msgspec.msgpack.decode(await store.run(SWEEP, sweep_keys(store.prefix, PLACE), (100,)))


async def test_two_writers_of_the_same_byte_both_keep_their_seats(config, metrics):
    """seed-000 and seed-001: a pipeline called atomic compared nothing, so the later writer undid the earlier."""
    shape = Subsection(1, 4)
    async with open_store(config, metrics) as one, open_store(config, metrics) as other:
        inventory = await on_sale(one, shape)
        claims = [Claim(id=f"c{seat}", owner="o", seats=(seat,)) for seat in range(4)]
        sides = [inventory, Inventory(other)] * 2
        await asyncio.gather(
            *(side.claim(PLACE, [claim], epoch=EPOCH) for side, claim in zip(sides, claims, strict=True))
        )
        view = await look(one, PLACE, shape)
        assert view.states == [SeatState.RESERVED] * 4
        assert view.owners == {f"1-{seat + 1}": f"c{seat}" for seat in range(4)}


async def test_a_retry_moves_no_counter(config, metrics):
    """seed-000: HINCRBY beside a blind bit write counted a retried claim, sale or release twice."""
    shape = Subsection(2, 5)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        calls = [
            lambda: inventory.claim(PLACE, [Claim(id="a", owner="o", size=3)], epoch=EPOCH),
            lambda: inventory.settle(PLACE, [Settlement(Verb.CONFIRM, "a", "o")], epoch=EPOCH),
            lambda: inventory.settle(PLACE, [Settlement(Verb.REOPEN, "a", "o", "refunded")], epoch=EPOCH),
            lambda: inventory.settle(PLACE, [Settlement(Verb.RELEASE, "a", "o")], epoch=EPOCH),
        ]
        for call, counted in zip(calls, [(7, 3, 0), (7, 0, 3), (10, 0, 0), (10, 0, 0)], strict=True):
            answers = [await call() for _ in range(4)]
            assert all(answer == answers[0] for answer in answers)
            stats = (await look(store, PLACE, shape)).stats
            assert (stats["available"], stats["reserved"], stats["sold"]) == counted


async def test_a_consumer_that_lost_its_partition_changes_nothing(config, metrics):
    """seed-001: safety hung on one consumer owning a section; after a rebalance the old one still wrote."""
    shape = Subsection(2, 5)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape, epoch=8)
        assert (await inventory.claim(PLACE, [hold("h", "o")], epoch=8))[0].ok
        before = await look(store, PLACE, shape)
        late = {"epoch": 7}
        assert (await inventory.claim(PLACE, [Claim(id="x", owner="o", size=1)], **late))[0].code is Code.FENCED
        for verb in Verb:
            assert (await inventory.settle(PLACE, [Settlement(verb, "h", "o")], **late))[0].code is Code.FENCED
        assert (await inventory.convert(PLACE, ["h"], booking="b", owner="o", **late)).code is Code.FENCED
        times = {"operation": "x", "more_ms": 90_000, "cap_ms": 900_000}
        assert (await inventory.extend(PLACE, "h", owner="o", **times, **late))[0] is Code.FENCED
        with pytest.raises(LookupError, match="not in epoch 7"):
            await inventory.switch([PLACE], on_sale=False, **late)
        assert await look(store, PLACE, shape) == before


async def test_a_sale_whose_seats_are_no_longer_the_bookings_is_stopped(config, metrics):
    """seed-001: the update of tickets never asked how many rows matched, so a booking could be paid without seats."""
    shape = Subsection(2, 5)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        await inventory.claim(PLACE, [Claim(id="a", owner="o", size=3)], epoch=EPOCH)
        await store.call("HSET", inventory.keys(PLACE)[4], "1-2", "somebody-else")
        before = await look(store, PLACE, shape)
        with pytest.raises(StoreScriptFailed, match="DRIFT seat 1-2 belongs to another claim"):
            await inventory.settle(PLACE, [Settlement(Verb.CONFIRM, "a", "o")], epoch=EPOCH)
        assert await look(store, PLACE, shape) == before


async def test_a_couple_gets_two_seats_or_none(config, metrics):
    """seed-001: manual mode kept "as many as found", so a couple might get one seat."""
    shape = Subsection(1, 5)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        couples = [Claim(id=f"c{n}", owner="o", seats=(n, n + 1)) for n in range(4)]
        outcomes = await asyncio.gather(*(inventory.claim(PLACE, [couple], epoch=EPOCH) for couple in couples))
        won = [outcome.seats for [outcome] in outcomes if outcome.ok]
        assert {len(seats) for seats in won} == {2}
        view = await look(store, PLACE, shape)
        assert audit(view, shape) == []
        assert view.stats["reserved"] == 2 * len(won)
        assert {o.code for [o] in outcomes} == {Code.OK, Code.TAKEN}


async def test_a_release_after_expiry_leaves_the_next_buyers_seats_alone(config, metrics):
    """seed-002: release was GET then DEL, so a late one deleted the lock of whoever came next."""
    shape = Subsection(1, 2)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        await inventory.claim(PLACE, [hold("first", "ann")], epoch=EPOCH)
        await expire(store, inventory, shape, "first")
        await sweep(store, inventory)
        assert (await inventory.claim(PLACE, [hold("next", "bob")], epoch=EPOCH))[0].ok
        before = await look(store, PLACE, shape)
        for verb, owner in [(Verb.RELEASE, "ann"), (Verb.CONFIRM, "ann"), (Verb.RELEASE, "bob")]:
            await inventory.settle(PLACE, [Settlement(verb, "first", owner)], epoch=EPOCH)
        [foreign] = await inventory.settle(PLACE, [Settlement(Verb.RELEASE, "next", "ann")], epoch=EPOCH)
        assert foreign.code is Code.NOT_OWNER
        assert await look(store, PLACE, shape) == before


async def test_an_extension_moves_the_deadline_that_frees_the_seats(config, metrics):
    """seed-002: the cart's time was renewed and the seats' was not, so a cart outlived its seats."""
    shape = Subsection(1, 2)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        await inventory.claim(PLACE, [hold("h", "ann")], epoch=EPOCH)
        times = {"operation": "x", "more_ms": 900_000, "cap_ms": 1_800_000}
        code, deadline = await inventory.extend(PLACE, "h", owner="ann", **times, epoch=EPOCH)
        assert code is Code.OK
        view = await look(store, PLACE, shape)
        assert (view.records["h"].deadline, view.index["h"]) == (deadline, deadline)
        # The old deadline comes back to the index, as from a replica that is behind: the record decides.
        await store.call("ZADD", inventory.keys(PLACE)[6], now_ms() - 5000, "h")
        assert await sweep(store, inventory) == [[], 0, 0, 1]
        assert await look(store, PLACE, shape) == view


async def test_no_key_of_a_subsection_can_vanish_by_itself(config, metrics):
    """seed-002: a counter with a time to live was gone on day two, and the section sold again."""
    shape = Subsection(2, 5)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        await inventory.claim(PLACE, [hold("h", "o"), Claim(id="b", owner="o", size=2)], epoch=EPOCH)
        lifetimes = await store.call_many([("PTTL", key) for key in inventory.keys(PLACE)])
        assert lifetimes == [-1] * 7, "-1 is for ever, -2 is no such key"


async def test_nothing_searches_the_store_for_keys(config, metrics):
    """seed-002: a scheduler ran KEYS every minute and stopped the store while it looked."""
    shape = Subsection(2, 5)
    async with recording(config.store_url) as record:
        async with open_store(with_settings(config, store_url=record.url), metrics) as store:
            inventory = await on_sale(store, shape)
            await inventory.claim(PLACE, [hold("h", "o")], epoch=EPOCH)
            await sweep(store, inventory)
        sent = {bytes(command[0]).upper() for command in record.commands}
    assert b"EVALSHA" in sent
    assert sent.isdisjoint({b"KEYS", b"SCAN", b"HSCAN", b"ZSCAN"})


async def test_the_deadline_in_the_index_is_the_one_in_the_record_by_the_stores_clock(config, metrics):
    """seed-004: the index had the client's clock and the lock another; a sweep in between lost the seat."""
    shape = Subsection(2, 5)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        seconds, _ = await store.call("TIME")
        [outcome] = await inventory.claim(PLACE, [hold("h", "o")], epoch=EPOCH)
        view = await look(store, PLACE, shape)
        assert view.index["h"] == view.records["h"].deadline == outcome.deadline_ms == outcome.taken_ms + 60_000
        assert int(seconds) * 1000 <= outcome.taken_ms <= int(seconds) * 1000 + 60_000
        assert await sweep(store, inventory) == [[], 0, 0, 1]


async def test_a_new_hold_before_the_sweep_of_the_old_one_loses_no_seat(config, metrics):
    """seed-004: locking again after expiry overwrote the index entry of the first lock, whose seat never came back."""
    shape = Subsection(1, 4)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        await inventory.claim(PLACE, [hold("first", "ann")], epoch=EPOCH)
        await expire(store, inventory, shape, "first")
        await inventory.claim(PLACE, [hold("second", "ann")], epoch=EPOCH)
        released, *_ = await sweep(store, inventory)
        assert released == [["first", "ann", [0, 2]]]
        view = await look(store, PLACE, shape)
        assert audit(view, shape) == []
        assert view.owners == {"1-3": "second", "1-4": "second"}


async def test_a_conversion_never_lets_go_of_a_seat_nor_takes_an_expired_one(config, metrics):
    """seed-004: converting deleted the lock before the order was stored; a crash between gave the seat away."""
    shape = Subsection(1, 4)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        await inventory.claim(PLACE, [hold("live", "o"), hold("late", "o")], epoch=EPOCH)
        await expire(store, inventory, shape, "late")
        before = await look(store, PLACE, shape)
        refused = await inventory.convert(PLACE, ["live", "late"], booking="b", owner="o", epoch=EPOCH)
        assert refused.code is Code.EXPIRED
        assert await look(store, PLACE, shape) == before
        assert (await inventory.convert(PLACE, ["live"], booking="b", owner="o", epoch=EPOCH)).ok
        view = await look(store, PLACE, shape)
        assert view.states == before.states
        assert view.owners == {"1-1": "b", "1-2": "b", "1-3": "late", "1-4": "late"}


async def test_a_late_initialisation_does_not_undo_what_was_sold(config, metrics):
    """seed-004: initialising was check then SET, so a late one overwrote the seats already taken."""
    shape = Subsection(1, 4)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        await inventory.claim(PLACE, [Claim(id="a", owner="o", size=2)], epoch=EPOCH)
        before = await look(store, PLACE, shape)
        hall = Hall(PLACE, shape, price=100, limit=4)
        await asyncio.gather(*(inventory.open([hall], epoch=EPOCH) for _ in range(10)))
        assert await look(store, PLACE, shape) == before


async def test_a_counter_that_drifted_stops_a_release_before_the_first_write(config, metrics):
    """Our own: the check for a negative counter stood after three writes, and the store rolls nothing back."""
    shape = Subsection(1, 4)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        await inventory.claim(PLACE, [hold("a", "o", 3)], epoch=EPOCH)
        await store.call("HSET", inventory.keys(PLACE)[2], "reserved", 1)
        await expire(store, inventory, shape, "a")
        before = await look(store, PLACE, shape)
        with pytest.raises(StoreScriptFailed, match="DRIFT a counter would become negative"):
            await inventory.settle(PLACE, [Settlement(Verb.RELEASE, "a", "o")], epoch=EPOCH)
        with pytest.raises(StoreScriptFailed, match="DRIFT a counter would become negative"):
            await sweep(store, inventory)
        assert await look(store, PLACE, shape) == before


@pytest.mark.parametrize("rows", [5_000, 10_000])
async def test_a_claim_over_thousands_of_rows_is_whole(config, metrics, rows):
    """Our own: Lua unpacks 8,000 values at most, and the row counters were the second of five writes."""
    shape = Subsection(rows, 10_000 // rows)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape, limit=10_000)
        [outcome] = await inventory.claim(PLACE, [Claim(id="all", owner="o", size=10_000)], epoch=EPOCH)
        assert outcome.ok
        view = await look(store, PLACE, shape)
        assert audit(view, shape) == []
        assert view.stats["reserved"] == 10_000
        [released] = await inventory.settle(PLACE, [Settlement(Verb.RELEASE, "all", "o")], epoch=EPOCH)
        assert released.ok
        view = await look(store, PLACE, shape)
        assert audit(view, shape) == []
        assert view.stats["available"] == 10_000


async def test_a_hold_named_twice_is_not_converted_twice(config, metrics):
    """Our own: the booking's record listed its seats twice and could then neither be paid nor released."""
    shape = Subsection(1, 4)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        await inventory.claim(PLACE, [hold("h", "o")], epoch=EPOCH)
        before = await look(store, PLACE, shape)
        twice = await inventory.convert(PLACE, ["h", "h"], booking="b", owner="o", epoch=EPOCH)
        into_itself = await inventory.convert(PLACE, ["h"], booking="h", owner="o", epoch=EPOCH)
        assert (twice.code, into_itself.code) == (Code.INVALID, Code.NOT_OWNER)
        assert await look(store, PLACE, shape) == before


async def test_a_seat_that_does_not_exist_is_unknown_also_when_the_hall_is_full(config, metrics):
    """Our own: a full hall answered that seat 99 of 4 was taken."""
    shape = Subsection(1, 4)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        await inventory.claim(PLACE, [Claim(id="a", owner="o", size=4)], epoch=EPOCH)
        [outcome] = await inventory.claim(PLACE, [Claim(id="b", owner="o", seats=(99,))], epoch=EPOCH)
        assert outcome.code is Code.UNKNOWN


@pytest.mark.parametrize("price", [-1, 1.5, True, 10**12])
async def test_a_price_that_a_record_cannot_hold_is_refused(config, metrics, price):
    """Our own: a fractional price made records that no script could read again."""
    shape = Subsection(1, 4)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        before = await look(store, PLACE, shape)
        with pytest.raises(ValueError, match="whole number of minor units"):
            await inventory.switch([PLACE], epoch=EPOCH, on_sale=True, price=price)
        with pytest.raises(ValueError, match="whole number of minor units"):
            await inventory.open([Hall(Place(1, "B", 1), shape, price=price, limit=2)], epoch=EPOCH)
        assert await look(store, PLACE, shape) == before
