"""One named test for each defect of the seeds' counters and locks: first the seed's steps, literally, then ours.

The seeds count places in a string and keep each lock in a key with a time to live. A test that shows the seed's way
uses plain keys beside the pool; if that way ever stopped failing, ours would be compared with nothing.
"""

import asyncio
import time

from aisle.reservation.claims import Code, Verb
from aisle.reservation.pool import Pool
from aisle.reservation.pools import Pools
from aisle.store import Store, open_store
from tests.integration.open_pools import EPOCH, GA, open_pool


class SeedSession:
    """A session of seed 004: `seats:` counts what is left, `lock:` lives for a while, `locks:exp` knows until when."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.seats, self.index = f"{store.prefix}seats:1", f"{store.prefix}locks:exp"

    def lock_key(self, player: str) -> str:
        return f"{self.store.prefix}lock:1:{player}"

    async def initialise(self, seats: int) -> None:
        await self.store.call("SET", self.seats, seats)

    async def lock(self, player: str, ttl_ms: int, expires_at_ms: int) -> None:
        await self.store.call("DECR", self.seats)
        await self.store.call("SET", self.lock_key(player), "1", "PX", ttl_ms)
        await self.store.call("ZADD", self.index, expires_at_ms, self.lock_key(player))

    async def run_out(self, player: str) -> None:
        await self.store.call("PEXPIRE", self.lock_key(player), 1)
        async with asyncio.timeout(60):
            while await self.store.call("EXISTS", self.lock_key(player)):
                pass

    async def sweep(self) -> None:
        now_ms = int(time.time() * 1000)
        for member in await self.store.call("ZRANGEBYSCORE", self.index, "-inf", now_ms):
            if not await self.store.call("EXISTS", member):
                await self.store.call("INCR", self.seats)
            await self.store.call("ZREM", self.index, member)

    async def left(self) -> int:
        return int(await self.store.call("GET", self.seats))


async def test_seed_004_two_sweepers_do_not_release_twice(config, metrics):
    """Seed 004 looks, counts and strikes off in three calls, so two sweepers both count: stock above capacity."""
    async with open_pool(config, metrics, 5) as pool:
        seed = SeedSession(pool.store)
        await seed.initialise(5)
        await seed.lock("ana", 60_000, expires_at_ms=1)
        await seed.run_out("ana")
        await asyncio.gather(seed.sweep(), seed.sweep())
        assert await seed.left() == 6, "the seed's way no longer fails"

        await pool.hold("h1", 1)
        await pool.make_overdue("h1")
        sweeps = await asyncio.gather(pool.sweep(), pool.sweep())
        assert sum(len(swept.released) for swept in sweeps) == 1
        assert await pool.held_and_sold() == (0, 0)
        assert (await pool.book("b1", 6)).code is Code.NO_BLOCK


async def test_seed_004_a_sweep_ahead_of_the_deadline_does_not_lose_the_place(config, metrics):
    """Seed 004 indexes by the client's clock before the lock starts; a sweep in between drops the entry for good."""
    async with open_pool(config, metrics, 5) as pool:
        seed = SeedSession(pool.store)
        await seed.initialise(5)
        await seed.lock("ana", 60_000, expires_at_ms=1)
        await seed.sweep()
        await seed.run_out("ana")
        await seed.sweep()
        assert await seed.left() == 4, "the seed's way no longer fails"

        taken = await pool.hold("h1", 1)
        await pool.store.call("ZADD", pool.pools.keys(GA)[2], 1, "h1")
        assert (await pool.sweep()).released == ()
        assert await pool.indexed_at("h1") == taken.deadline_ms
        assert await pool.held_and_sold() == (1, 0)
        await pool.make_overdue("h1")
        assert [one.claim for one in (await pool.sweep()).released] == ["h1"]
        assert await pool.held_and_sold() == (0, 0)


async def test_seed_004_a_second_hold_before_the_sweep_loses_no_place(config, metrics):
    """Seed 004 names a lock by its player, so the player's next lock overwrites the entry of the one that ran out."""
    async with open_pool(config, metrics, 5, one_per_buyer=True) as pool:
        seed = SeedSession(pool.store)
        await seed.initialise(5)
        await seed.lock("ana", 60_000, expires_at_ms=1)
        await seed.run_out("ana")
        await seed.lock("ana", 60_000, expires_at_ms=2)
        await seed.run_out("ana")
        await seed.sweep()
        assert await seed.left() == 4, "the seed's way no longer fails"

        await pool.hold("h1", 1)
        await pool.make_overdue("h1")
        assert (await pool.hold("h2", 1)).ok
        assert await pool.held_and_sold() == (2, 0)
        assert [one.claim for one in (await pool.sweep()).released] == ["h1"]
        assert await pool.held_and_sold() == (1, 0)
        assert (await pool.hold("h3", 1)).code is Code.ALREADY_HOLDING
        await pool.assert_consistent()


async def test_seed_004_a_late_opener_does_not_overwrite_what_was_taken(config, metrics):
    """Seed 004 looks whether the counter exists and then sets it; a slow initialiser sets it after the first sales."""
    async with open_store(config, metrics) as store:
        seed = SeedSession(store)
        assert not await store.call("EXISTS", seed.seats), "the slow initialiser looks"
        await seed.initialise(5)
        await seed.lock("ana", 60_000, expires_at_ms=1)
        await seed.initialise(5)
        assert await seed.left() == 5, "the seed's way no longer fails"

    async with open_pool(config, metrics, 5) as pool:
        await pool.book("b1", 2)
        await pool.pools.open([Pool(GA, 5, 3000, 10)], epoch=EPOCH)
        assert await pool.held_and_sold() == (2, 0)
        assert await pool.store.call("HGET", pool.pools.keys(GA)[0], "state") == b"open"


async def test_seed_004_two_openers_at_once_and_a_buyer_in_between(config, metrics):
    """The same defect from several processes: whoever opens late finds the pool and leaves it as it is."""
    async with open_pool(config, metrics, 5) as pool, open_store(config, metrics) as other:
        again = Pool(GA, 5, 3000, 10)
        calls = [pool.book(f"b{n}", 1) if n % 2 else Pools(other).open([again], epoch=EPOCH) for n in range(20)]
        await asyncio.gather(*calls)
        assert await pool.held_and_sold() == (5, 0)
        await pool.assert_consistent()


async def test_seed_004_converting_a_hold_never_leaves_its_places_to_nobody(config, metrics):
    """Seed 004 deletes the lock before the order is stored; a crash between the two loses the place for good."""
    async with open_pool(config, metrics, 5) as pool:
        seed = SeedSession(pool.store)
        await seed.initialise(5)
        await seed.lock("ana", 60_000, expires_at_ms=1)
        await pool.store.call("DEL", seed.lock_key("ana"))
        await pool.store.call("ZREM", seed.index, seed.lock_key("ana"))
        await seed.sweep()
        assert await seed.left() == 4, "the seed's way no longer fails: no lock, no order, and no place"

        await pool.hold("h1", 2)
        converted = await pool.pools.convert(GA, ["h1"], booking="b1", owner="ana", epoch=EPOCH)
        assert converted.ok
        assert (await pool.record("b1"))[:3] == ["L", "b", "ana"]
        assert await pool.held_and_sold() == (2, 0)
        await pool.sweep()
        assert await pool.held_and_sold() == (2, 0), "the deadline of the hold ended with it"
        assert (await pool.settle(Verb.RELEASE, "b1")).quantity == 2
        assert await pool.held_and_sold() == (0, 0)


async def test_seed_002_counter_does_not_vanish_after_a_day(config, metrics):
    """Seed 002 gives the counter 24 h to live at the first sale: on day two it counts from nothing and sells again."""
    async with open_pool(config, metrics, 2) as pool:
        counter = f"{config.store_prefix}section:counter:1"

        async def reserve() -> bool:
            count = await pool.store.call("INCR", counter)
            if count > 2:
                await pool.store.call("DECR", counter)
                return False
            if count == 1:
                await pool.store.call("EXPIRE", counter, 86_400)
            return True

        assert [await reserve() for _ in range(3)] == [True, True, False]
        assert await pool.store.call("TTL", counter) > 0
        await pool.store.call("DEL", counter)  # what the store does when the day is over
        assert await reserve(), "the seed's way no longer fails: the third of two places"

        assert (await pool.book("b1", 2)).ok
        assert (await pool.settle(Verb.CONFIRM, "b1")).ok
        assert await pool.store.call_many([("PTTL", key) for key in pool.pools.keys(GA)[:2]]) == [-1, -1]
        assert (await pool.book("b2", 1)).code is Code.FULL


async def test_seed_002_a_release_that_comes_twice_is_counted_once(config, metrics):
    """Seed 002 counts down at every release and sets a negative count to 0, which hides that others' places went."""
    async with open_pool(config, metrics, 5) as pool:
        counter = f"{config.store_prefix}section:counter:1"
        await pool.store.call("SET", counter, 2)

        async def release() -> None:
            if await pool.store.call("DECR", counter) < 0:
                await pool.store.call("SET", counter, 0)

        for _ in range(3):
            await release()
        assert await pool.store.call("GET", counter) == b"0", (
            "the seed's way no longer fails: bob has a place, uncounted"
        )

        await pool.hold("h1", 1)
        await pool.hold("h2", 1, owner="bob")
        for _ in range(3):
            assert (await pool.settle(Verb.RELEASE, "h1")).ok
        assert await pool.held_and_sold() == (1, 0)
        assert (await pool.record("h2"))[0] == "L"


async def test_seed_002_a_late_release_does_not_take_the_next_buyers_place(config, metrics):
    """Seed 002 releases by GET and then DEL: between the two the lock runs out and the next buyer's is deleted."""
    async with open_pool(config, metrics, 1) as pool:
        lock = f"{config.store_prefix}seat:lock:1:A1"
        await pool.store.call("SET", lock, "ana")
        assert await pool.store.call("GET", lock) == b"ana"
        await pool.store.call("DEL", lock)  # runs out here
        await pool.store.call("SET", lock, "bob", "NX")
        await pool.store.call("DEL", lock)  # and ana's release goes on
        assert not await pool.store.call("EXISTS", lock), "the seed's way no longer fails: bob lost his lock"

        await pool.hold("h1", 1)
        await pool.make_overdue("h1")
        await pool.sweep()
        assert (await pool.hold("h2", 1, owner="bob")).ok
        assert (await pool.settle(Verb.RELEASE, "h1")).ok
        assert (await pool.settle(Verb.RELEASE, "h2")).code is Code.NOT_OWNER
        assert (await pool.record("h2"))[:3] == ["L", "h", "bob"]
        assert await pool.held_and_sold() == (1, 0)


async def test_seed_002_an_extension_moves_the_deadline_that_counts(config, metrics):
    """Seed 002 renews the cart and not the locks, so the cart outlives its places; here there is one deadline."""
    async with open_pool(config, metrics, 5) as pool:
        store, cart, lock = pool.store, f"{config.store_prefix}cart:ana", f"{config.store_prefix}seat:lock:1:A1"
        for key in (cart, lock):
            await store.call("SET", key, "ana", "PX", 60_000)
        await store.call("PEXPIRE", cart, 120_000)
        assert await store.call("PTTL", cart) > await store.call("PTTL", lock), "the seed's way no longer fails"

        taken = await pool.hold("h1", 1, hold_ms=60_000)
        code, deadline = await pool.pools.extend(
            GA, "h1", owner="ana", operation="x1", more_ms=600_000, cap_ms=120_000, epoch=EPOCH
        )
        assert (code, deadline) == (Code.OK, taken.taken_ms + 120_000)
        assert (await pool.record("h1"))[5] == str(deadline)
        assert await pool.indexed_at("h1") == deadline
        await store.call("ZADD", pool.pools.keys(GA)[2], 1, "h1")  # an index that still says the old deadline
        assert (await pool.sweep()).released == ()
        assert await pool.held_and_sold() == (1, 0)
