"""An event to measure on: opened in the store, sold by somebody, audited by reading what the store then holds.

The audit believes nothing that the claims answered: bits, counters, row counters, records and owners must all agree.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from aisle.reservation.audit import audit
from aisle.reservation.claims import Outcome
from aisle.reservation.inventory import Hall, Inventory
from aisle.reservation.keys import Place, event_sections
from aisle.reservation.snapshot import Snapshot, read_snapshots
from aisle.reservation.subsection import Subsection
from aisle.store import Store

EPOCH = 1
PRICE = 3000
SUBSECTIONS_PER_SECTION = 10


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. `FULL` is what result files hold; `QUICK` only proves that the benchmark works."""

    subsections: int
    rows: int = 25
    seats_per_row: int = 20
    rounds: int = 3
    batch: int = 50
    # Callers at once. With 100 the line and the server take turns (15,000 claims a second); with 300 the server has the
    # next ones while the replies are read.
    tasks: int = 300
    samples: int = 1000
    rival_subsections: int = 20
    seat_fill_seeds: int = 10

    @property
    def shape(self) -> Subsection:
        return Subsection(self.rows, self.seats_per_row)

    @property
    def seats(self) -> int:
        return self.subsections * self.shape.seats


FULL = Sizes(subsections=100)
QUICK = Sizes(
    subsections=3, rows=4, seats_per_row=10, rounds=1, batch=5, tasks=10, samples=20, rival_subsections=3,
    seat_fill_seeds=1,
)  # fmt: skip


@dataclass(slots=True)
class Stage:
    """The store under test, and what audits have found wrong so far."""

    store: Store
    sizes: Sizes
    inventory: Inventory = field(init=False)
    oversold: int = 0
    drift: int = 0
    _events: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.inventory = Inventory(self.store)

    def new_halls(self, subsections: int = 0) -> list[Hall]:
        """The subsections of an event nobody has used: A-1 to A-10, B-1, ...; all of them unless told how many."""
        event, shape = next(self._events), self.sizes.shape
        halls = []
        for rank in range(subsections or self.sizes.subsections):
            section, number = divmod(rank, SUBSECTIONS_PER_SECTION)
            place = Place(event, chr(ord("A") + section), number + 1)
            halls.append(Hall(place, shape, PRICE, limit=shape.seats, rank=rank))
        return halls

    async def open(self, halls: Sequence[Hall]) -> None:
        await self.inventory.open(halls, epoch=EPOCH)
        await self.inventory.switch([hall.place for hall in halls], epoch=EPOCH, on_sale=True)

    async def clear(self, halls: Sequence[Hall]) -> None:
        keys = [key for hall in halls for key in self.inventory.keys(hall.place)]
        await self.store.call("DEL", *keys, event_sections(self.store.prefix, halls[0].place.event))

    async def audit_sold_out(self, halls: Sequence[Hall], sold: Sequence[tuple[Place, Outcome]]) -> None:
        """Count the seats that two claims were given, and the subsections that are not exactly sold out."""
        given = [(place, seat) for place, outcome in sold for seat in outcome.seats]
        self.oversold += len(given) - len(set(given))
        snapshots = await read_snapshots(self.store, [hall.place for hall in halls])
        for hall, snapshot in zip(halls, snapshots, strict=True):
            exact = (
                isinstance(snapshot, Snapshot)
                and not audit(hall.place, snapshot)
                and len(snapshot.owners) == hall.shape.seats
            )
            self.drift += not exact
