"""A pool on sale in the store for tests, and looking into it with plain commands, not through the code under test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aisle.config import Config
from aisle.metrics import Metrics
from aisle.reservation.claims import Kind, Verb
from aisle.reservation.pool import Pool, PoolPlace, PoolSettled, PoolSettlement, Take, Taken
from aisle.reservation.pool_picture import findings
from aisle.reservation.pools import Pools
from aisle.reservation.sweeper import Swept
from aisle.store import Store, open_store

EPOCH = 1
GA = PoolPlace(1, "GA")


@dataclass
class OpenPool:
    store: Store
    pools: Pools

    async def book(self, id: str, quantity: int, owner: str = "ana", **more: object) -> Taken:
        [taken] = await self.pools.take(GA, [Take(id=id, owner=owner, quantity=quantity, **more)], epoch=EPOCH)
        return taken

    async def hold(self, id: str, quantity: int, owner: str = "ana", hold_ms: int = 600_000) -> Taken:
        return await self.book(id, quantity, owner, kind=Kind.HOLD, hold_ms=hold_ms)

    async def settle(self, verb: Verb, id: str, owner: str = "ana", **more: object) -> PoolSettled:
        settlement = PoolSettlement(verb=verb, id=id, owner=owner, **more)
        [settled] = await self.pools.settle(GA, [settlement], epoch=EPOCH)
        return settled

    async def sweep(self, at_most: int = 100) -> Swept:
        [swept] = await self.pools.sweep([GA], at_most=at_most)
        return swept

    async def held_and_sold(self) -> tuple[int, int]:
        held, sold = await self.store.call("HMGET", self.pools.keys(GA)[0], "held", "sold")
        return int(held), int(sold)

    async def record(self, id: str) -> list[str] | None:
        text = await self.store.call("HGET", self.pools.keys(GA)[1], id)
        return None if text is None else text.decode().split("|")

    async def indexed_at(self, id: str) -> int | None:
        score = await self.store.call("ZSCORE", self.pools.keys(GA)[2], id)
        return None if score is None else int(float(score))

    async def make_overdue(self, id: str, deadline_ms: int = 1) -> None:
        """As if the deadline had passed: the store's clock cannot be moved, what is written can."""
        _, holds, index = self.pools.keys(GA)
        record = await self.record(id)
        assert record is not None
        record[5] = str(deadline_ms)
        await self.store.call("HSET", holds, id, "|".join(record))
        await self.store.call("ZADD", index, deadline_ms, id)

    async def dump(self) -> list[bytes | None]:
        """The three keys, byte for byte."""
        return await self.store.call_many([("DUMP", key) for key in self.pools.keys(GA)])

    async def assert_consistent(self) -> None:
        picture = await self.pools.picture(GA)
        assert picture is not None
        assert findings(picture) == []


@asynccontextmanager
async def open_pool(
    config: Config, metrics: Metrics, capacity: int, *, limit: int = 10, one_per_buyer: bool = False
) -> AsyncIterator[OpenPool]:
    async with open_store(config, metrics) as store:
        pools = Pools(store)
        await pools.open([Pool(GA, capacity, 3000, limit, one_per_buyer)], epoch=EPOCH)
        await pools.switch([GA], epoch=EPOCH, on_sale=True)
        yield OpenPool(store, pools)
