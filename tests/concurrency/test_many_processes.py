"""Two thousand parties for five hundred seats, from four processes that know nothing of each other but the store."""

import asyncio
import multiprocessing
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import uvloop

from aisle.config import Config
from aisle.metrics import Metrics
from aisle.reservation.claims import Claim, Code, Outcome, Rung
from aisle.reservation.inventory import Hall, Inventory
from aisle.reservation.keys import Place
from aisle.reservation.subsection import SeatState, Subsection
from aisle.store import Store, open_store
from tests.integration.inventory_model import audit, look

EPOCH = 1
PLACE = Place(1, "A", 1)
SHAPE = Subsection(20, 25)
PROCESSES, TASKS, FIRST = 4, 500, 10

Answer = tuple[Claim, Outcome]


def test_every_seat_is_sold_once_and_nobody_gets_a_part_of_a_party(config, metrics):
    async def prepare() -> None:
        async with open_store(config, metrics) as store:
            inventory = Inventory(store)
            await inventory.open([Hall(PLACE, SHAPE, price=100, limit=6)], epoch=EPOCH)
            await inventory.switch([PLACE], epoch=EPOCH, on_sale=True)

    async def inspect():
        async with open_store(config, metrics) as store:
            return await look(store, PLACE, SHAPE)

    asyncio.run(prepare())
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        answers = [answer for part in pool.map(buy, [config] * PROCESSES, range(PROCESSES)) for answer in part]
    assert len(answers) == PROCESSES * TASKS

    won = [(claim, outcome) for claim, outcome in answers if outcome.ok]
    assert {outcome.code for _, outcome in answers} <= {Code.OK, Code.SOLD_OUT, Code.NO_BLOCK}
    seats = Counter(seat for _, outcome in won for seat in outcome.seats)
    assert set(seats.values()) == {1}, "a seat was sold twice"
    assert sorted(seats) == list(range(SHAPE.seats)), "with so many single buyers, no seat is left"
    for claim, outcome in won:
        assert len(outcome.seats) == claim.size or (claim.allow_partial and outcome.how is Rung.PARTIAL)

    view = asyncio.run(inspect())
    assert audit(view, SHAPE) == []
    assert view.states == [SeatState.RESERVED] * SHAPE.seats
    assert view.stats["available"] == 0
    assert {name: record.runs for name, record in view.records.items()} == {c.id: o.runs for c, o in won}
    buyers = Counter(claim.owner for claim, _ in won)
    assert len(buyers) == PROCESSES, f"the processes did not compete: {buyers}"


def buy(config: Config, number: int) -> list[Answer]:
    """Runs in a process of its own: all its tasks at once, when all processes are ready."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_buy(config, number))


async def _buy(config: Config, number: int) -> list[Answer]:
    rnd = random.Random(number)
    claims = [
        Claim(id=f"p{number}-{n}", owner=f"process{number}", size=rnd.randint(1, 6), allow_partial=rnd.random() < 0.1)
        for n in range(TASKS)
    ]
    async with open_store(config, Metrics()) as store:
        inventory = Inventory(store)

        async def one(claim: Claim) -> Answer:
            [outcome] = await inventory.claim(PLACE, [claim], epoch=EPOCH)
            return claim, outcome

        # A process that is slow to begin gets its share all the same: the seats outlast the first claims of everybody.
        await everybody_is_here(store, "started")
        first = await asyncio.gather(*map(one, claims[:FIRST]))
        await everybody_is_here(store, "bought")
        return first + await asyncio.gather(*map(one, claims[FIRST:]))


async def everybody_is_here(store: Store, what: str) -> None:
    await store.call("INCR", f"{store.prefix}{what}")
    async with asyncio.timeout(60):
        while int(await store.call("GET", f"{store.prefix}{what}")) < PROCESSES:
            await asyncio.sleep(0.001)
