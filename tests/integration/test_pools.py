"""Pools in a real store: what each operation leaves in the three keys, and what bad input does not."""

import pytest

from aisle.errors import StoreScriptFailed
from aisle.reservation.claims import Code, Kind, Verb
from aisle.reservation.keys import BadName, Place
from aisle.reservation.pool import CAPACITY_MAX, Pool, PoolPlace, PoolSettlement, Take
from aisle.reservation.pool_picture import findings
from aisle.reservation.pools import BATCH_MAX, Pools
from aisle.store import open_store
from tests.integration.open_pools import EPOCH, GA, open_pool

DAY_MS = 86_400_000


async def test_a_pool_opens_closed_once_and_keeps_its_configuration(config, metrics):
    async with open_store(config, metrics) as store:
        pools = Pools(store)
        pool = Pool(GA, capacity=5, price=3000, limit=2)
        for _ in range(2):
            await pools.open([pool], epoch=EPOCH)
        [refused] = await pools.take(GA, [Take(id="b1", owner="ana", quantity=1)], epoch=EPOCH)
        assert refused.code is Code.CLOSED
        with pytest.raises(ValueError, match="1:GA exists with another configuration"):
            await pools.open([Pool(GA, capacity=6, price=3000, limit=2)], epoch=EPOCH)
        found = await store.call("HMGET", f"{config.store_prefix}pool:{{1:GA}}", "capacity", "state", "version")
        assert found == [b"5", b"closed", b"1"]


async def test_a_pool_is_not_opened_over_what_another_left_behind(config, metrics):
    async with open_store(config, metrics) as store:
        await store.call("HSET", f"{config.store_prefix}pool_holds:{{1:GA}}", "b1", "L|b|ana|1|1|0|0||4")
        with pytest.raises(StoreScriptFailed, match="without its configuration"):
            await Pools(store).open([Pool(GA, 5, 3000, 2)], epoch=EPOCH)
        assert await store.call("EXISTS", f"{config.store_prefix}pool:{{1:GA}}") == 0


async def test_a_hold_is_counted_recorded_and_indexed_at_its_deadline(config, metrics):
    async with open_pool(config, metrics, 5) as pool:
        taken = await pool.hold("h1", 2, hold_ms=600_000)
        assert (taken.code, taken.quantity, taken.price) == (Code.OK, 2, 3000)
        assert taken.deadline_ms == taken.taken_ms + 600_000
        assert await pool.held_and_sold() == (2, 0)
        assert await pool.record("h1") == [
            "L", "h", "ana", "3000", str(taken.taken_ms), str(taken.deadline_ms), "0", "", "2",
        ]  # fmt: skip
        assert await pool.indexed_at("h1") == taken.deadline_ms


async def test_a_booking_has_no_deadline_here(config, metrics):
    async with open_pool(config, metrics, 5) as pool:
        taken = await pool.book("b1", 3)
        assert (taken.deadline_ms, await pool.indexed_at("b1")) == (0, None)
        assert await pool.held_and_sold() == (3, 0)


async def test_full_no_block_partial_and_limit_are_told_apart(config, metrics):
    async with open_pool(config, metrics, 5, limit=4) as pool:
        assert (await pool.book("b1", 5)).code is Code.LIMIT
        assert (await pool.book("b2", 4)).code is Code.OK
        assert (await pool.book("b3", 2)).code is Code.NO_BLOCK
        assert (await pool.book("b4", 2, allow_partial=True)).quantity == 1
        assert (await pool.book("b4", 2, allow_partial=True)).quantity == 1
        assert (await pool.book("b5", 1, allow_partial=True)).code is Code.FULL
        assert await pool.held_and_sold() == (5, 0)
        assert [await pool.record(id) for id in ("b1", "b3", "b5")] == [None, None, None]


async def test_a_batch_is_decided_in_the_order_given_and_sees_itself(config, metrics):
    async with open_pool(config, metrics, 5, one_per_buyer=True) as pool:
        batch = [
            Take(id="h1", owner="ana", quantity=3, kind=Kind.HOLD, hold_ms=1000),
            Take(id="h1", owner="ana", quantity=3, kind=Kind.HOLD, hold_ms=1000),
            Take(id="h1", owner="bob", quantity=1),
            Take(id="h2", owner="ana", quantity=1, kind=Kind.HOLD, hold_ms=1000),
            Take(id="b1", owner="ana", quantity=1),
            Take(id="b2", owner="cyd", quantity=2),
            Take(id="", owner="cyd", quantity=1),
            Take(id="b3", owner="cyd", quantity=1),
            Take(id="b4", owner="cyd", quantity=1),
        ]
        answers = await pool.pools.take(GA, batch, epoch=EPOCH)
        assert [answer.code.value for answer in answers] == [
            "ok", "ok", "not_owner", "already_holding", "ok", "no_block", "invalid", "ok", "full",
        ]  # fmt: skip
        assert await pool.held_and_sold() == (5, 0)
        await pool.assert_consistent()


async def test_a_hold_becomes_sold_and_leaves_the_index(config, metrics):
    async with open_pool(config, metrics, 5, one_per_buyer=True) as pool:
        await pool.hold("h1", 2)
        for _ in range(2):
            assert (await pool.settle(Verb.CONFIRM, "h1")).quantity == 2
        assert await pool.held_and_sold() == (0, 2)
        assert (await pool.record("h1"))[0] == "S"
        assert await pool.indexed_at("h1") is None
        assert (await pool.settle(Verb.RELEASE, "h1")).code is Code.SOLD
        assert (await pool.hold("h2", 1)).ok, "a hold that was sold is no hold any more"
        assert await pool.held_and_sold() == (1, 2)


async def test_a_release_gives_back_once_and_only_to_its_owner(config, metrics):
    async with open_pool(config, metrics, 5) as pool:
        await pool.hold("h1", 2)
        await pool.book("b1", 1)
        assert (await pool.settle(Verb.RELEASE, "h1", owner="bob")).code is Code.NOT_OWNER
        assert await pool.held_and_sold() == (3, 0)
        for _ in range(3):
            assert (await pool.settle(Verb.RELEASE, "h1", why="cancelled")).quantity == 2
        assert await pool.held_and_sold() == (1, 0)
        assert (await pool.record("h1"))[7] == "cancelled"
        assert (await pool.hold("h1", 2)).code is Code.EXPIRED, "an id that has ended does not come back"
        await pool.assert_consistent()


async def test_a_refund_of_a_part_is_counted_once_per_operation_in_any_order(config, metrics):
    async with open_pool(config, metrics, 10) as pool:
        await pool.book("b1", 5)
        assert (await pool.settle(Verb.REOPEN, "b1")).code is Code.NOT_SOLD
        await pool.settle(Verb.CONFIRM, "b1")
        for operation in ("r1", "r2", "r1", "r2", "r1"):
            settled = await pool.settle(Verb.REOPEN, "b1", why="refunded", operation=operation, quantity=2)
            assert (settled.code, settled.quantity) == (Code.OK, 2)
        assert await pool.held_and_sold() == (0, 1)
        assert (await pool.settle(Verb.REOPEN, "b1", operation="r3", quantity=2)).code is Code.NOT_SOLD
        assert (await pool.settle(Verb.REOPEN, "b1", why="refunded")).quantity == 1
        assert await pool.held_and_sold() == (0, 0)
        assert (await pool.settle(Verb.REOPEN, "b1", operation="r1", quantity=2)).quantity == 2
        assert (await pool.settle(Verb.REOPEN, "b1", operation="r", quantity=2)).code is Code.EXPIRED
        assert await pool.held_and_sold() == (0, 0)


async def test_holds_become_one_booking_all_or_none(config, metrics):
    async with open_pool(config, metrics, 10) as pool:
        await pool.hold("h1", 2)
        await pool.hold("h2", 3)
        await pool.hold("late", 1)
        await pool.make_overdue("late")

        async def convert(*holds: str, owner: str = "ana") -> Code:
            return (await pool.pools.convert(GA, holds, booking="b1", owner=owner, epoch=EPOCH)).code

        before = await pool.dump()
        assert await convert("h1", "h2", "late") is Code.EXPIRED
        assert await convert("h1", "h2", "h3") is Code.UNKNOWN
        assert await convert("h1", owner="bob") is Code.NOT_OWNER
        assert await convert("h1", "h1") is Code.INVALID
        assert await convert() is Code.INVALID
        assert await pool.dump() == before
        for _ in range(2):
            converted = await pool.pools.convert(GA, ["h1", "h2"], booking="b1", owner="ana", epoch=EPOCH)
            assert (converted.code, converted.quantity, converted.price) == (Code.OK, 5, 3000)
        assert await pool.held_and_sold() == (6, 0)
        assert (await pool.record("b1"))[:3] == ["L", "b", "ana"]
        assert (await pool.record("h1"))[7] == "converted b1"
        assert (await pool.settle(Verb.RELEASE, "h1")).quantity == 0
        assert await pool.held_and_sold() == (6, 0)
        await pool.assert_consistent()


async def test_a_booking_id_in_use_is_not_taken_for_a_conversion_that_was_done(config, metrics):
    async with open_pool(config, metrics, 10) as pool:
        await pool.hold("h1", 2)
        await pool.book("b1", 1)
        refused = await pool.pools.convert(GA, ["h1"], booking="b1", owner="ana", epoch=EPOCH)
        assert refused.code is Code.TAKEN
        assert (await pool.record("h1"))[0] == "L"
        await pool.settle(Verb.RELEASE, "h1")
        await pool.hold("h2", 1)
        refused = await pool.pools.convert(GA, ["h1"], booking="h2", owner="ana", epoch=EPOCH)
        assert refused.code is Code.TAKEN, "a hold under the booking's id would still run out"


async def test_an_extension_moves_record_and_index_together_up_to_the_cap(config, metrics):
    async with open_pool(config, metrics, 5) as pool:
        taken = await pool.hold("h1", 1, hold_ms=1_000_000)

        async def extend(operation: str, owner: str = "ana") -> tuple[Code, int]:
            return await pool.pools.extend(
                GA, "h1", owner=owner, operation=operation, more_ms=DAY_MS, cap_ms=3_000_000, epoch=EPOCH
            )

        cap = taken.taken_ms + 3_000_000
        assert await extend("x1", owner="bob") == (Code.NOT_OWNER, 0)
        assert await extend("x1") == (Code.OK, cap)
        assert await extend("x1") == (Code.OK, cap)
        assert await extend("x2") == (Code.LIMIT, cap)
        assert ((await pool.record("h1"))[5], await pool.indexed_at("h1")) == (str(cap), cap)
        await pool.make_overdue("h1")
        assert await extend("x3") == (Code.EXPIRED, 0)


async def test_an_overdue_hold_can_be_released_but_not_confirmed_or_taken_again(config, metrics):
    async with open_pool(config, metrics, 5) as pool:
        await pool.hold("h1", 2)
        await pool.make_overdue("h1")
        assert (await pool.settle(Verb.CONFIRM, "h1")).code is Code.EXPIRED
        assert (await pool.hold("h1", 2)).code is Code.EXPIRED
        assert await pool.held_and_sold() == (2, 0)
        assert (await pool.settle(Verb.RELEASE, "h1")).ok
        assert (await pool.sweep()).released == ()
        assert await pool.held_and_sold() == (0, 0)


async def test_a_hold_runs_out_by_the_stores_clock_neither_early_nor_late(config, metrics):
    async with open_pool(config, metrics, 5) as pool:
        taken = await pool.hold("h1", 2, hold_ms=150)
        is_due, released = False, ()
        while not released:
            assert not is_due, "the deadline had passed, and the sweep left it"
            is_due = (await pool.pools.picture(GA)).now_ms >= taken.deadline_ms
            released = (await pool.sweep()).released
        assert (await pool.pools.picture(GA)).now_ms >= taken.deadline_ms
        assert [(one.claim, one.owner, one.runs) for one in released] == [("h1", "ana", (0, 2))]
        assert await pool.held_and_sold() == (0, 0)


async def test_a_sweep_releases_what_is_overdue_in_steps_and_leaves_the_rest(config, metrics):
    async with open_pool(config, metrics, 10) as pool:
        for n in range(5):
            await pool.hold(f"h{n}", 1)
        for n in range(3):
            await pool.make_overdue(f"h{n}", deadline_ms=n + 1)
        first, second = await pool.sweep(at_most=2), await pool.sweep(at_most=2)
        assert [one.claim for one in first.released] == ["h0", "h1"]
        assert [one.claim for one in second.released] == ["h2"]
        assert (first.more, second.more, second.left) == (1, 0, 5)
        assert await pool.held_and_sold() == (2, 0)
        await pool.assert_consistent()


async def test_what_ended_a_day_ago_is_forgotten(config, metrics):
    async with open_pool(config, metrics, 5) as pool:
        taken = await pool.hold("h1", 1)
        await pool.settle(Verb.RELEASE, "h1")
        assert await pool.indexed_at("h1") >= taken.taken_ms + DAY_MS
        assert (await pool.sweep()).forgotten == 0
        await pool.store.call("ZADD", pool.pools.keys(GA)[2], 1, "h1")
        swept = await pool.sweep()
        assert (swept.forgotten, swept.released, swept.left) == (1, (), 0)
        assert await pool.record("h1") is None
        assert await pool.held_and_sold() == (0, 0)


async def test_an_index_entry_without_a_record_is_kept_for_the_operator(config, metrics):
    async with open_pool(config, metrics, 5) as pool:
        await pool.store.call("ZADD", pool.pools.keys(GA)[2], 1, "ghost")
        swept = await pool.sweep()
        assert (swept.released, swept.forgotten, swept.left) == ((), 0, 1)
        picture = await pool.pools.picture(GA)
        assert findings(picture) == ["the index names ghost, which has no record"]
        assert await pool.held_and_sold() == (0, 0)


async def test_one_live_hold_a_buyer_where_the_pool_asks_for_it(config, metrics):
    async with open_pool(config, metrics, 10, one_per_buyer=True) as pool:
        pointer = pool.pools.keys(GA)[1], "@ana"
        await pool.hold("h1", 1)
        assert (await pool.hold("h2", 1)).code is Code.ALREADY_HOLDING
        assert (await pool.hold("h1", 1)).ok
        assert (await pool.hold("h3", 1, owner="bob")).ok
        assert await pool.store.call("HGET", *pointer) == b"h1"
        await pool.settle(Verb.RELEASE, "h1")
        assert await pool.store.call("HGET", *pointer) is None
        assert (await pool.hold("h2", 1)).ok
        await pool.pools.convert(GA, ["h2"], booking="b1", owner="ana", epoch=EPOCH)
        assert await pool.store.call("HGET", *pointer) is None
        assert (await pool.hold("h4", 1)).ok
        await pool.make_overdue("h4")
        await pool.sweep()
        assert await pool.store.call("HGET", *pointer) is None
        await pool.assert_consistent()


async def test_capacity_follows_the_seller_but_never_below_what_is_taken(config, metrics):
    async with open_pool(config, metrics, 5) as pool:
        await pool.book("b1", 2)
        await pool.hold("h1", 1)
        await pool.settle(Verb.CONFIRM, "b1")

        async def resize(was: int, capacity: int) -> tuple[Code, int]:
            return await pool.pools.resize(GA, was=was, capacity=capacity, epoch=EPOCH)

        assert await resize(5, 2) == (Code.TAKEN, 5)
        assert await resize(5, 3) == (Code.OK, 3)
        assert (await pool.book("b2", 1)).code is Code.FULL
        assert await resize(3, 8) == (Code.OK, 8)
        assert await resize(5, 3) == (Code.FENCED, 8), "a late repeat must not undo the newer size"
        assert await pool.store.call("HGET", pool.pools.keys(GA)[0], "capacity") == b"8"
        assert (await pool.book("b2", 5)).ok


async def test_a_new_price_is_for_new_claims_only(config, metrics):
    async with open_pool(config, metrics, 5) as pool:
        await pool.hold("h1", 1)
        await pool.pools.switch([GA], epoch=EPOCH, on_sale=True, price=4000)
        assert (await pool.hold("h1", 1)).price == 3000
        assert (await pool.hold("h2", 1)).price == 4000
        await pool.pools.switch([GA], epoch=EPOCH, on_sale=False)
        assert (await pool.hold("h3", 1)).code is Code.CLOSED
        assert (await pool.settle(Verb.CONFIRM, "h1")).ok, "closing takes nothing from those who hold"


async def test_a_caller_of_another_epoch_changes_nothing(config, metrics):
    async with open_pool(config, metrics, 5) as pool:
        await pool.hold("h1", 1)
        before, stale = await pool.dump(), EPOCH - 1
        [taken] = await pool.pools.take(GA, [Take(id="b1", owner="ana", quantity=1)], epoch=stale)
        release = PoolSettlement(verb=Verb.RELEASE, id="h1", owner="ana")
        [settled] = await pool.pools.settle(GA, [release], epoch=stale)
        converted = await pool.pools.convert(GA, ["h1"], booking="b1", owner="ana", epoch=stale)
        extended, _ = await pool.pools.extend(
            GA, "h1", owner="ana", operation="x", more_ms=DAY_MS, cap_ms=DAY_MS, epoch=stale
        )
        resized, _ = await pool.pools.resize(GA, was=5, capacity=6, epoch=stale)
        with pytest.raises(LookupError, match="not in epoch 0"):
            await pool.pools.switch([GA], epoch=stale, on_sale=False)
        assert {taken.code, settled.code, converted.code, extended, resized} == {Code.FENCED}
        assert await pool.dump() == before


async def test_a_pool_that_does_not_exist_is_closed_and_stays_missing(config, metrics):
    async with open_pool(config, metrics, 5) as pool:
        nowhere = PoolPlace(1, "Nowhere")
        [taken] = await pool.pools.take(nowhere, [Take(id="b1", owner="ana", quantity=1)], epoch=EPOCH)
        release = PoolSettlement(verb=Verb.RELEASE, id="h1", owner="ana")
        [settled] = await pool.pools.settle(nowhere, [release], epoch=EPOCH)
        [swept] = await pool.pools.sweep([nowhere], at_most=10)
        resized = await pool.pools.resize(nowhere, was=5, capacity=6, epoch=EPOCH)
        assert (taken.code, settled.code, resized) == (Code.CLOSED, Code.CLOSED, (Code.CLOSED, 0))
        assert (swept.released, swept.left) == ((), 0)
        with pytest.raises(LookupError, match="no such pool"):
            await pool.pools.switch([nowhere], epoch=EPOCH, on_sale=True)
        assert await pool.pools.picture(nowhere) is None
        assert await pool.store.call("EXISTS", *pool.pools.keys(nowhere)) == 0


async def test_no_key_of_a_pool_ever_gets_a_time_to_live(config, metrics):
    async with open_pool(config, metrics, 5, one_per_buyer=True) as pool:
        await pool.hold("h1", 1)
        await pool.pools.convert(GA, ["h1"], booking="b1", owner="ana", epoch=EPOCH)
        await pool.settle(Verb.CONFIRM, "b1")
        await pool.settle(Verb.REOPEN, "b1", operation="r1", quantity=1)
        await pool.hold("h2", 1)
        await pool.make_overdue("h2")
        await pool.sweep()
        assert await pool.store.call_many([("PTTL", key) for key in pool.pools.keys(GA)]) == [-1, -1, -1]


@pytest.mark.parametrize("key", [0, 1, 2], ids=["pool", "pool_holds", "locks:exp"])
async def test_a_key_of_the_wrong_type_stops_every_operation_before_it_writes(config, metrics, key):
    async with open_pool(config, metrics, 5, one_per_buyer=True) as pool:
        await pool.hold("h1", 1)
        await pool.hold("late", 1, owner="bob")
        await pool.make_overdue("late")
        damaged = pool.pools.keys(GA)[key]
        await pool.store.call("DEL", damaged)
        await pool.store.call("SET", damaged, "not what it was")
        before = await pool.dump()
        with pytest.raises(StoreScriptFailed):
            await pool.hold("h2", 1, owner="cyd")
        with pytest.raises(StoreScriptFailed):
            await pool.settle(Verb.RELEASE, "h1")
        with pytest.raises(StoreScriptFailed):
            await pool.pools.convert(GA, ["h1"], booking="b1", owner="ana", epoch=EPOCH)
        [swept] = await pool.pools.sweep([GA], at_most=10)
        assert isinstance(swept, StoreScriptFailed)
        assert await pool.dump() == before


@pytest.mark.parametrize(
    ("field", "value"), [("held", "-1"), ("held", "0"), ("sold", "x"), ("capacity", "1.5"), ("held", "9")]
)
async def test_a_counter_that_cannot_be_right_stops_the_script_before_it_writes(config, metrics, field, value):
    async with open_pool(config, metrics, 5) as pool:
        await pool.hold("h1", 2)
        await pool.hold("h2", 1)
        await pool.store.call("HSET", pool.pools.keys(GA)[0], field, value)
        before = await pool.dump()
        with pytest.raises(StoreScriptFailed, match="DRIFT"):
            await pool.settle(Verb.RELEASE, "h1")
        assert await pool.dump() == before
        assert findings(await pool.pools.picture(GA)) != []
        await pool.pools.switch([GA], epoch=EPOCH, on_sale=False)
        assert await pool.store.call("HGET", pool.pools.keys(GA)[0], "state") == b"closed"


@pytest.mark.parametrize(
    ("key", "command", "finding"),
    [
        (0, ("HSET", "held", "4"), "held is 4, but the records have 3"),
        (0, ("HSET", "sold", "1"), "sold is 1, but the records have 2"),
        (0, ("HSET", "capacity", "4"), "3 held and 2 sold are more than the capacity 4"),
        (0, ("HSET", "version", "new"), "version is 'new', not a whole number"),
        (1, ("HSET", "odd", "L|h|ana|1"), "the record of odd cannot be read: 'L|h|ana|1'"),
        (1, ("HSET", "@bob", "h1"), "bob is said to have the hold h1, which is not a live hold of theirs"),
        (1, ("HDEL", "@ana"), "ana has the live hold h1, but no pointer says so"),
        (2, ("ZREM", "old"), "old has ended and nothing will forget it"),
        (2, ("ZADD", "5", "b1"), "b1 has no deadline here and is in the index"),
        (2, ("ZADD", "5", "s1"), "s1 has no deadline here and is in the index"),
        (2, ("ZADD", "5", "ghost"), "the index names ghost, which has no record"),
    ],
)
async def test_every_disagreement_is_found_and_named(config, metrics, key, command, finding):
    async with open_pool(config, metrics, 9, one_per_buyer=True) as pool:
        await pool.hold("h1", 2)
        await pool.book("b1", 1)
        await pool.book("s1", 2)
        await pool.settle(Verb.CONFIRM, "s1")
        await pool.book("old", 1)
        await pool.settle(Verb.RELEASE, "old")
        await pool.assert_consistent()
        await pool.store.call(command[0], pool.pools.keys(GA)[key], *command[1:])
        assert findings(await pool.pools.picture(GA)) == [finding]


async def test_a_hold_indexed_at_another_time_than_its_deadline_is_found(config, metrics):
    async with open_pool(config, metrics, 9) as pool:
        taken = await pool.hold("h1", 2)
        await pool.store.call("ZADD", pool.pools.keys(GA)[2], 5, "h1")
        assert findings(await pool.pools.picture(GA)) == [f"the hold h1 ends at {taken.deadline_ms}, the index says 5"]


@pytest.mark.parametrize(
    "take",
    [
        Take(id="", owner="ana", quantity=1),
        Take(id="a:b", owner="ana", quantity=1),
        Take(id="@ana", owner="ana", quantity=1),
        Take(id="b1", owner="ana|bob", quantity=1),
        Take(id="b1", owner="x" * 65, quantity=1),
        Take(id="b1", owner="ana", quantity=0),
        Take(id="b1", owner="ana", quantity=-1),
        Take(id="b1", owner="ana", quantity=1.5),
        Take(id="b1", owner="ana", quantity=True),
        Take(id="b1", owner="ana", quantity=1_000_000),
        Take(id="b1", owner="ana", quantity=1, kind=Kind.HOLD),
        Take(id="b1", owner="ana", quantity=1, kind=Kind.HOLD, hold_ms=DAY_MS + 1),
    ],
)
async def test_a_malformed_take_is_refused_with_its_reason_and_never_sent(config, metrics, take):
    async with open_pool(config, metrics, 5) as pool:
        before = await pool.dump()
        [refused] = await pool.pools.take(GA, [take], epoch=EPOCH)
        assert refused.code is Code.INVALID
        assert refused.detail
        assert await pool.dump() == before


@pytest.mark.parametrize(
    "settlement",
    [
        PoolSettlement(verb=Verb.RELEASE, id="b1", owner="ana", quantity=1, operation="r1"),
        PoolSettlement(verb=Verb.REOPEN, id="b1", owner="ana", quantity=1),
        PoolSettlement(verb=Verb.REOPEN, id="b1", owner="ana", operation="r1"),
        PoolSettlement(verb=Verb.REOPEN, id="b1", owner="ana", quantity=0, operation="r1"),
        PoolSettlement(verb=Verb.REOPEN, id="b1", owner="ana", quantity=1, operation="r 1"),
        PoolSettlement(verb=Verb.CONFIRM, id="b1", owner="ana", why="no reason"),
    ],
)
async def test_a_malformed_settlement_is_refused_with_its_reason_and_never_sent(config, metrics, settlement):
    async with open_pool(config, metrics, 5) as pool:
        await pool.book("b1", 2)
        before = await pool.dump()
        [refused] = await pool.pools.settle(GA, [settlement], epoch=EPOCH)
        assert refused.code is Code.INVALID
        assert refused.detail
        assert await pool.dump() == before


async def test_batches_have_a_limit(config, metrics):
    async with open_pool(config, metrics, BATCH_MAX) as pool:
        takes = [Take(id=f"b{n}", owner=f"o{n}", quantity=1) for n in range(BATCH_MAX + 1)]
        with pytest.raises(ValueError, match="a batch is at most 1000"):
            await pool.pools.take(GA, takes, epoch=EPOCH)
        assert all(taken.ok for taken in await pool.pools.take(GA, takes[:-1], epoch=EPOCH))
        assert await pool.held_and_sold() == (BATCH_MAX, 0)
        assert await pool.pools.take(GA, [], epoch=EPOCH) == []
        confirms = [PoolSettlement(verb=Verb.CONFIRM, id=take.id, owner=take.owner) for take in takes[:-1]]
        assert all(settled.ok for settled in await pool.pools.settle(GA, confirms, epoch=EPOCH))
        assert await pool.held_and_sold() == (0, BATCH_MAX)


@pytest.mark.parametrize("name", ["", "G:A", "G{A", "G}A", "G-A", "G\nA", "x" * 33, None])
def test_a_name_that_could_forge_a_key_is_refused(name):
    with pytest.raises(BadName):
        PoolPlace(1, name)


def test_a_pool_and_a_subsection_are_told_apart_by_their_names():
    assert PoolPlace.parse("1:GA") == PoolPlace(1, "GA")
    for wrong, parse in (("1:A-1", PoolPlace.parse), ("1:GA", Place.parse), ("GA", PoolPlace.parse)):
        with pytest.raises(BadName):
            parse(wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"capacity": 0}, {"capacity": CAPACITY_MAX + 1}, {"capacity": 1.5}, {"limit": 0}, {"price": -1}, {"price": True}],
)
def test_a_pool_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="1:GA"):
        Pool(GA, **({"capacity": 5, "price": 3000, "limit": 2} | wrong))
