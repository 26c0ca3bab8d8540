"""Many buyers, few places, several connections. The first test shows that the race is real: unguarded, it oversells."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from aisle.reservation.claims import Code, Kind, Verb
from aisle.reservation.pool import Take, Taken
from aisle.reservation.pools import Pools
from aisle.store import open_store
from tests.integration.open_pools import EPOCH, GA, OpenPool, open_pool


@asynccontextmanager
async def doors(config, metrics, count: int) -> AsyncIterator[Sequence[OpenPool]]:
    """The same pool through connections of their own, as several processes would have."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(config, metrics)) for _ in range(count)]
        yield [OpenPool(store, Pools(store)) for store in stores]


async def test_a_take_that_looks_first_and_counts_later_oversells(config, metrics):
    async with open_store(config, metrics) as store:
        counter = f"{config.store_prefix}careless"
        await store.call("SET", counter, 0)

        async def careless_take() -> bool:
            if int(await store.call("GET", counter)) >= 100:
                return False
            await store.call("INCR", counter)
            return True

        granted = await asyncio.gather(*(careless_take() for _ in range(500)))
        assert sum(granted) > 100, "the race no longer shows: the next test proves nothing"
        assert int(await store.call("GET", counter)) > 100


async def test_five_hundred_buyers_get_exactly_a_hundred_places(config, metrics):
    async with open_pool(config, metrics, 100) as pool, doors(config, metrics, 4) as several:
        takes = [several[n % 4].hold(f"h{n}", 1, owner=f"o{n}") for n in range(500)]
        outcomes = await asyncio.gather(*takes)
        assert Counter(outcome.code for outcome in outcomes) == {Code.OK: 100, Code.FULL: 400}
        assert await pool.held_and_sold() == (100, 0)
        winners = [n for n, outcome in enumerate(outcomes) if outcome.ok]
        assert [(await pool.record(f"h{n}"))[2] for n in winners] == [f"o{n}" for n in winners]
        await pool.assert_consistent()


async def test_parties_of_all_sizes_never_take_more_than_there_is(config, metrics):
    async with open_pool(config, metrics, 100) as pool, doors(config, metrics, 4) as several:
        sizes = {f"b{n}": n % 6 + 1 for n in range(200)}
        batches = [list(sizes)[start : start + 10] for start in range(0, 200, 10)]

        async def take(door: OpenPool, ids: Sequence[str]) -> dict[str, Taken]:
            takes = [Take(id=id, owner="ana", quantity=sizes[id]) for id in ids]
            return dict(zip(ids, await door.pools.take(GA, takes, epoch=EPOCH), strict=True))

        # Every batch is sent twice, as a caller does who did not hear the answer.
        calls = [take(several[n % 4], ids) for n, ids in enumerate(batches + batches)]
        outcomes = await asyncio.gather(*calls)
        granted = {id: taken.quantity for outcome in outcomes for id, taken in outcome.items() if taken.ok}
        assert all(granted[id] == sizes[id] for id in granted)
        assert await pool.held_and_sold() == (sum(granted.values()), 0)
        assert sum(granted.values()) <= 100
        await pool.assert_consistent()


async def test_one_buyer_with_fifty_tabs_gets_one_hold(config, metrics):
    async with open_pool(config, metrics, 100, one_per_buyer=True) as pool, doors(config, metrics, 4) as several:
        outcomes = await asyncio.gather(*(several[n % 4].hold(f"h{n}", 1) for n in range(50)))
        assert Counter(outcome.code for outcome in outcomes) == {Code.OK: 1, Code.ALREADY_HOLDING: 49}
        assert await pool.held_and_sold() == (1, 0)
        await pool.assert_consistent()


async def test_many_sweepers_at_once_release_each_hold_once(config, metrics):
    async with open_pool(config, metrics, 100) as pool, doors(config, metrics, 4) as several:
        holds = [Take(id=f"h{n}", owner="ana", quantity=2, kind=Kind.HOLD, hold_ms=600_000) for n in range(50)]
        await pool.pools.take(GA, holds, epoch=EPOCH)
        for hold in holds[:40]:
            await pool.make_overdue(hold.id)
        sweeps = await asyncio.gather(*(several[n % 4].sweep(at_most=7) for n in range(16)))
        released = Counter(one.claim for sweep in sweeps for one in sweep.released)
        assert released == Counter(hold.id for hold in holds[:40])
        assert await pool.held_and_sold() == (20, 0)
        await pool.assert_consistent()


async def test_sweep_release_confirm_and_convert_of_one_hold_have_one_outcome(config, metrics):
    async with open_pool(config, metrics, 100) as pool, doors(config, metrics, 4) as several:
        for round_number in range(20):
            hold, booking = f"h{round_number}", f"b{round_number}"
            await pool.hold(hold, 1)
            if round_number % 2:
                await pool.make_overdue(hold)
            before = await pool.held_and_sold()
            await asyncio.gather(
                several[0].sweep(),
                several[1].settle(Verb.RELEASE, hold),
                several[2].settle(Verb.CONFIRM, hold),
                several[3].pools.convert(GA, [hold], booking=booking, owner="ana", epoch=EPOCH),
                several[0].settle(Verb.RELEASE, hold),
            )
            held, sold = await pool.held_and_sold()
            moved = (held - before[0], sold - before[1])
            record = await pool.record(hold)
            expected = {"S": (-1, 1), "E": (0, 0) if await pool.record(booking) else (-1, 0)}
            assert moved == expected[record[0]]
            await pool.assert_consistent()


async def test_a_pool_that_shrinks_while_it_sells_is_never_overfull(config, metrics):
    async with open_pool(config, metrics, 100) as pool, doors(config, metrics, 2) as (buyers, seller):
        takes = [buyers.book(f"b{n}", 1) for n in range(120)]
        sizes = [seller.pools.resize(GA, was=was, capacity=was - 1, epoch=EPOCH) for was in range(100, 60, -1)]
        await asyncio.gather(*(call for pair in zip(takes, sizes, strict=False) for call in pair), *takes[len(sizes) :])
        capacity = int(await pool.store.call("HGET", pool.pools.keys(GA)[0], "capacity"))
        assert await pool.held_and_sold() == (capacity, 0)
        await pool.assert_consistent()
