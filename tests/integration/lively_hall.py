"""A small hall on sale in a real store, with a bit of everything in it, for the tests that look at its truth."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aisle.config import Config
from aisle.metrics import Metrics
from aisle.reservation.claims import Claim, Kind, Settlement, Verb
from aisle.reservation.inventory import Hall, Inventory
from aisle.reservation.keys import Place, subsection_keys
from aisle.reservation.keyspace import scan
from aisle.reservation.subsection import Subsection
from aisle.reservation.sweeper import announce
from aisle.store import Store, open_store

EPOCH = 3
A1, A2 = Place(1, "A", 1), Place(1, "A", 2)
KEY_NAMES = ("seats_bf", "section_config", "section_stats", "row_avail", "seat_meta", "holds", "locks:exp")


@dataclass
class LivelyHall:
    """Event 1: A-1 (5 rows of 7; 1-1 and 1-2 blocked, 5-7 accessible) and A-2 (2 rows of 5), both on sale.

    In A-1: booking `paid` sold, booking `waiting` reserved, hold `held` for ten minutes, hold `ended` given back.
    """

    store: Store
    inventory: Inventory

    def key(self, name: str, place: Place = A1) -> str:
        return subsection_keys(self.store.prefix, place)[KEY_NAMES.index(name)]

    async def dump(self) -> dict[bytes, bytes]:
        """Every key under the test's prefix with all it holds."""
        keys = {key async for portion in scan(self.store) for key in portion}
        return dict(zip(sorted(keys), await self.store.call_many([("DUMP", key) for key in sorted(keys)]), strict=True))


@asynccontextmanager
async def lively_hall(config: Config, metrics: Metrics) -> AsyncIterator[LivelyHall]:
    async with open_store(config, metrics) as store:
        yield await fill(store)


async def fill(store: Store) -> LivelyHall:
    inventory = Inventory(store)
    shape = Subsection(5, 7, frozenset({34}))
    halls = [
        Hall(A1, shape, price=3000, limit=10, rank=1, blocked=frozenset({0, 1})),
        Hall(A2, Subsection(2, 5), price=2000, limit=5, rank=2),
    ]
    await inventory.open(halls, epoch=EPOCH)
    await inventory.switch([A1, A2], epoch=EPOCH, on_sale=True)
    await announce(store, [A1])
    claims = [
        Claim(id="paid", owner="ann", size=3),
        Claim(id="waiting", owner="bob", size=2),
        Claim(id="held", owner="cleo", kind=Kind.HOLD, size=4, hold_ms=600_000),
        Claim(id="ended", owner="dan", kind=Kind.HOLD, size=1, hold_ms=600_000),
    ]
    taken = await inventory.claim(A1, claims, epoch=EPOCH)
    assert all(outcome.ok for outcome in taken), taken
    settled = await inventory.settle(
        A1, [Settlement(Verb.CONFIRM, "paid", "ann"), Settlement(Verb.RELEASE, "ended", "dan")], epoch=EPOCH
    )
    assert all(outcome.ok for outcome in settled), settled
    return LivelyHall(store, inventory)
