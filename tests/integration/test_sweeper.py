"""Overdue holds come back by themselves: not early, not twice, whoever sweeps, and nothing is forgotten."""

import asyncio

from aisle.errors import StoreOutcomeUnknown, StoreUnavailable
from aisle.reservation.claims import Code, Kind, Settlement, Verb
from aisle.reservation.keys import holding, subsection_keys
from aisle.reservation.pool import Pool, PoolPlace, Take
from aisle.reservation.pools import Pools
from aisle.reservation.subsection import Subsection
from aisle.reservation.sweeper import LATE_SECONDS, announce, count_overdue, sweep_for_ever, sweep_once
from tests.conftest import with_settings
from tests.integration.halls import EPOCH, OpenHall, open_hall

SHAPE = Subsection(2, 5)


async def hold_overdue(hall: OpenHall, id: str, size: int) -> None:
    """A hold whose deadline has passed by the store's clock: taken for a millisecond, then waited for."""
    place = hall.places[0]
    await announce(hall.store, [place])
    outcome = await hall.hold(place, id, size, hold_ms=1)
    while True:
        seconds, micros = await hall.store.call("TIME")
        if int(seconds) * 1000 + int(micros) // 1000 >= outcome.deadline_ms:
            return


async def test_an_overdue_hold_is_released_once_however_many_sweep(config, metrics):
    async with open_hall(config, metrics, SHAPE) as hall:
        await hold_overdue(hall, "h1", 3)
        swept = await asyncio.gather(*(sweep_once(hall.store) for _ in range(8)))
        released = [one for sweep in swept for one in sweep]
        assert [(place, one.claim, one.owner) for place, one in released] == [(hall.places[0], "h1", "ana")]
        assert await hall.taken(hall.places[0]) == []


async def test_a_hold_is_never_released_early(config, metrics):
    async with open_hall(config, metrics, SHAPE) as hall:
        await announce(hall.store, hall.places)
        await hall.hold(hall.places[0], "h1", 2)
        assert await sweep_once(hall.store) == []
        assert len(await hall.taken(hall.places[0])) == 2


async def test_an_extended_hold_survives_the_deadline_it_had_before(config, metrics):
    async with open_hall(config, metrics, SHAPE) as hall:
        place = hall.places[0]
        await announce(hall.store, hall.places)
        first = await hall.hold(place, "h1", 2, hold_ms=5_000)
        code, deadline = await hall.inventory.extend(
            place, "h1", owner="ana", operation="more", more_ms=60_000, cap_ms=120_000, epoch=EPOCH
        )
        assert code is Code.OK
        assert deadline > first.deadline_ms
        # The index as it was before the extension, as a slow replica or a lost write would leave it.
        await hall.store.call("ZADD", hall.inventory.keys(place)[6], 1, "h1")
        assert await sweep_once(hall.store) == []
        assert len(await hall.taken(place)) == 2


async def test_seats_are_claimed_again_between_deadline_and_sweep_only_after_the_sweep_and_nothing_is_lost(
    config, metrics
):
    async with open_hall(config, metrics, Subsection(1, 2)) as hall:
        place = hall.places[0]
        await hold_overdue(hall, "h1", 2)
        assert (await hall.book(place, "b1", 2)).code is Code.SOLD_OUT
        await sweep_once(hall.store)
        assert (await hall.hold(place, "h2", 2)).ok
        await sweep_once(hall.store)
        assert len(await hall.taken(place)) == 2, "the second hold is not the first one's"
        assert (await hall.hold(place, "h1", 2)).code is Code.EXPIRED, "an ended id is not used again"


async def test_a_confirmed_hold_is_not_swept(config, metrics):
    async with open_hall(config, metrics, SHAPE) as hall:
        place = hall.places[0]
        await announce(hall.store, hall.places)
        await hall.hold(place, "h1", 2)
        [settled] = await hall.inventory.settle(place, [Settlement(Verb.CONFIRM, "h1", "ana")], epoch=EPOCH)
        assert settled.ok
        await hall.store.call("ZADD", hall.inventory.keys(place)[6], 1, "h1")
        assert await sweep_once(hall.store) == []
        assert len(await hall.taken(place)) == 2


async def test_more_overdue_holds_than_one_visit_takes_are_all_released(config, metrics):
    async with open_hall(config, metrics, Subsection(20, 20)) as hall:
        for n in range(250):
            await hold_overdue(hall, f"h{n}", 1)
        assert len(await sweep_once(hall.store)) == 250
        assert await hall.taken(hall.places[0]) == []


async def test_a_quiet_place_is_struck_off_but_never_while_it_was_just_announced(config, metrics):
    async with open_hall(config, metrics, SHAPE) as hall:
        key, place = holding(hall.store.prefix), str(hall.places[0])
        await announce(hall.store, hall.places)
        await sweep_once(hall.store)
        assert await hall.store.call("ZSCORE", key, place) is not None, "a claim may still be on its way"
        await hall.store.call("ZADD", key, 1, place)  # announced long ago
        await sweep_once(hall.store)
        assert await hall.store.call("ZSCORE", key, place) is None
        await hall.store.call("ZADD", key, 1, place)
        await hall.hold(hall.places[0], "h1", 1)
        await sweep_once(hall.store)
        assert await hall.store.call("ZSCORE", key, place) is not None, "a live hold keeps its place on the list"


async def test_one_damaged_subsection_does_not_keep_the_seats_of_the_others(config, metrics):
    async with open_hall(config, metrics, SHAPE, (("A", 1), ("A", 2))) as hall:
        await announce(hall.store, hall.places)
        await hold_overdue(hall, "h1", 2)
        damaged = hall.inventory.keys(hall.places[1])
        await hall.hold(hall.places[1], "h2", 2, hold_ms=1)
        await hall.store.call("DEL", damaged[0])
        released = await sweep_once(hall.store)
        assert [place for place, _ in released] == [hall.places[0]]


async def test_the_loop_outlives_an_outage_of_the_store(config, metrics, own_valkey):
    valkey = own_valkey({})
    async with open_hall(with_settings(config, store_url=valkey.url), metrics, SHAPE) as hall:
        released = asyncio.Event()

        async def report(_):
            released.set()
            return True

        loop = asyncio.create_task(sweep_for_ever(hall.store, interval_s=0.02, report=report))
        await hold_overdue(hall, "h1", 2)
        await asyncio.wait_for(released.wait(), 30)
        await asyncio.to_thread(valkey.kill)
        await asyncio.to_thread(valkey.start)
        async with asyncio.timeout(60):
            while True:
                hall.store.breaker._clock = lambda: float("inf")
                try:
                    await hold_overdue(hall, "h2", 2)
                    break
                except (StoreUnavailable, StoreOutcomeUnknown):
                    await asyncio.sleep(0.02)
            # What was reported before the outage may be reported again: only the seats say that this hold has ended.
            while await hall.taken(hall.places[0]):
                await asyncio.sleep(0.02)
        loop.cancel()


async def test_pools_are_swept_beside_subsections(config, metrics):
    async with open_hall(config, metrics, SHAPE) as hall:
        pools = Pools(hall.store)
        lawn = PoolPlace(1, "LAWN")
        await pools.open([Pool(lawn, capacity=100, price=500, limit=10)], epoch=EPOCH)
        await pools.switch([lawn], epoch=EPOCH, on_sale=True)
        await announce(hall.store, [lawn])
        [taken] = await pools.take(
            lawn, [Take(id="p1", owner="ben", kind=Kind.HOLD, quantity=4, hold_ms=1)], epoch=EPOCH
        )
        assert taken.ok
        await hold_overdue(hall, "h1", 2)
        released = {(str(place), one.claim): one.runs for place, one in await sweep_once(hall.store)}
        assert released == {("1:LAWN", "p1"): (0, 4), ("1:A-1", "h1"): (0, 2)}
        assert await hall.store.call("HGET", pools.keys(lawn)[0], "held") == b"0"


async def test_what_no_sweeper_gets_to_is_counted(config, metrics):
    """Ten seconds late by the store's clock; what is due just now is not late."""
    async with open_hall(config, metrics, SHAPE) as hall:
        store, place = hall.store, hall.places[0]
        await hold_overdue(hall, "h1", 3)
        assert await count_overdue(store) == (1, 1, 0, 0)
        seconds, _ = await store.call("TIME")
        deadline = (int(seconds) - LATE_SECONDS - 1) * 1000
        await store.call("ZADD", subsection_keys(store.prefix, place)[-1], deadline, "h1")
        visited = await count_overdue(store)
        assert visited[:3] == (1, 1, 1)
        assert LATE_SECONDS < visited.overdue_oldest_s < LATE_SECONDS + 60
