"""Small halls in the store for tests, and looking into it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aisle.config import Config
from aisle.metrics import Metrics
from aisle.reservation.claims import Claim, Kind, Outcome
from aisle.reservation.inventory import Hall, Inventory
from aisle.reservation.keys import Place
from aisle.reservation.reads import seat_maps
from aisle.reservation.subsection import SeatState, Subsection, unpack
from aisle.store import Store, open_store

EPOCH = 1


@dataclass
class OpenHall:
    store: Store
    inventory: Inventory
    shape: Subsection
    places: list[Place]

    async def book(self, place: Place, id: str, size: int, **more: object) -> Outcome:
        [outcome] = await self.inventory.claim(place, [Claim(id=id, owner="ana", size=size, **more)], epoch=EPOCH)
        return outcome

    async def hold(self, place: Place, id: str, size: int, hold_ms: int = 600_000) -> Outcome:
        return await self.book(place, id, size, kind=Kind.HOLD, hold_ms=hold_ms)

    async def states(self, place: Place) -> list[SeatState]:
        [found] = await seat_maps(self.store, [place])
        return unpack(self.shape, found.packed)

    async def taken(self, place: Place) -> list[int]:
        return [seat for seat, state in enumerate(await self.states(place)) if state is not SeatState.AVAILABLE]


@asynccontextmanager
async def open_hall(
    config: Config, metrics: Metrics, shape: Subsection, sections: Sequence[tuple[str, int]] = (("A", 1),)
) -> AsyncIterator[OpenHall]:
    """An event with equal subsections, best first, on sale."""
    async with open_store(config, metrics) as store:
        inventory = Inventory(store)
        places = [Place(1, section, number) for section, number in sections]
        halls = [Hall(place, shape, price=3000, limit=shape.seats, rank=rank) for rank, place in enumerate(places)]
        await inventory.open(halls, epoch=EPOCH)
        await inventory.switch(places, epoch=EPOCH, on_sale=True)
        yield OpenHall(store, inventory, shape, places)
