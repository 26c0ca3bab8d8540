"""Many want the same seat at the same moment. The first test shows that the danger is real.

The tasks of one test share a line, so their commands leave together and meet in the store as closely as they can.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from aisle.reservation.claims import Claim, Code, Kind, Settlement, Verb
from aisle.reservation.inventory import SWEEP, Hall, Inventory
from aisle.reservation.keys import Place
from aisle.reservation.seating import Choice, Party, choose
from aisle.reservation.subsection import SeatState, Subsection, pack, unpack
from aisle.reservation.sweeper import sweep_keys
from aisle.store import open_store
from tests.integration.inventory_model import audit, look

pytest_plugins = ["tests.integration.stores"]

EPOCH = 1
PLACE = Place(1, "A", 1)


async def on_sale(store, shape, **hall):
    inventory = Inventory(store)
    await inventory.open([Hall(PLACE, shape, price=100, **({"limit": min(10, shape.seats)} | hall))], epoch=EPOCH)
    await inventory.switch([PLACE], epoch=EPOCH, on_sale=True)
    return inventory


async def test_a_claim_that_reads_first_and_writes_later_sells_a_seat_twice(config, metrics):
    shape = Subsection(1, 1)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)

        async def read_then_write() -> bool:
            key = inventory.keys(PLACE)[0]
            states = unpack(shape, await store.call("GET", key))
            choice = choose(shape, states, Party(1))
            if not isinstance(choice, Choice):
                return False
            states[choice.seats[0]] = SeatState.RESERVED
            await store.call("SETRANGE", key, 0, pack(shape, states))
            return True

        winners = sum(await asyncio.gather(*(read_then_write() for _ in range(500))))
        assert winners > 1, "the race no longer shows, so the tests below prove nothing"


async def test_of_five_hundred_who_want_the_last_seat_one_gets_it(any_config, metrics):
    shape = Subsection(1, 1)
    async with open_store(any_config, metrics) as store:
        inventory = await on_sale(store, shape)
        named = itertools.cycle([None, (0,)])
        claims = [Claim(id=f"c{n}", owner=f"o{n}", size=1, seats=next(named)) for n in range(500)]
        outcomes = await asyncio.gather(*(inventory.claim(PLACE, [claim], epoch=EPOCH) for claim in claims))
        by_code = Counter((claim.seats, outcome.code) for claim, [outcome] in zip(claims, outcomes, strict=True))
        [winner] = [key for key in by_code if key[1] is Code.OK]
        assert by_code[winner] == 1
        refused = Counter({(None, Code.SOLD_OUT): 250, ((0,), Code.TAKEN): 250})
        refused[(winner[0], Code.TAKEN if winner[0] else Code.SOLD_OUT)] -= 1
        assert by_code == refused + Counter([winner])
        view = await look(store, PLACE, shape)
        assert audit(view, shape) == []
        [won] = view.records
        assert view.owners == {"1-1": won}
        # Everybody asks again, as after a time-out: the winner hears the same, the others still have nothing.
        again = await asyncio.gather(*(inventory.claim(PLACE, [claim], epoch=EPOCH) for claim in claims))
        assert again == outcomes
        assert await look(store, PLACE, shape) == view


async def test_one_claim_sent_a_hundred_times_at_once_takes_its_seats_once(config, metrics):
    shape = Subsection(5, 10)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        claim = Claim(id="c", owner="o", size=3, kind=Kind.HOLD, hold_ms=60_000)
        outcomes = await asyncio.gather(*(inventory.claim(PLACE, [claim], epoch=EPOCH) for _ in range(100)))
        assert all(outcome == outcomes[0] for outcome in outcomes)
        view = await look(store, PLACE, shape)
        assert (view.stats["reserved"], view.stats["version"]) == (3, 2)
        assert audit(view, shape) == []


async def test_a_release_and_a_payment_at_once_leave_the_seats_sold_or_free_never_both(config, metrics):
    shape = Subsection(10, 10)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        claims = [Claim(id=f"c{n}", owner="o", size=2) for n in range(50)]
        await inventory.claim(PLACE, claims, epoch=EPOCH)
        verbs = [Settlement(verb, claim.id, "o") for claim in claims for verb in (Verb.RELEASE, Verb.CONFIRM)]
        random.Random(5).shuffle(verbs)
        answers = await asyncio.gather(*(inventory.settle(PLACE, [s], epoch=EPOCH) for s in verbs))
        code_of = {(s.id, s.verb): answer.code for s, [answer] in zip(verbs, answers, strict=True)}
        view = await look(store, PLACE, shape)
        assert audit(view, shape) == []
        for claim in claims:
            codes = (code_of[claim.id, Verb.RELEASE], code_of[claim.id, Verb.CONFIRM])
            ended = {"S": (Code.SOLD, Code.OK), "E": (Code.OK, Code.EXPIRED)}[view.records[claim.id].state]
            assert codes == ended


@pytest.mark.parametrize("sweepers", [2, 5])
async def test_sweepers_at_once_release_each_hold_once_while_others_claim_the_seats_again(config, metrics, sweepers):
    shape = Subsection(10, 10)
    async with open_store(config, metrics) as store:
        inventory = await on_sale(store, shape)
        keys = inventory.keys(PLACE)
        holds = [Claim(id=f"h{n}", owner="o", kind=Kind.HOLD, size=2, hold_ms=60_000) for n in range(50)]
        assert all(outcome.ok for outcome in await inventory.claim(PLACE, holds, epoch=EPOCH))
        await expire_all(store, keys, (await look(store, PLACE, shape)).records)

        async def sweep() -> list[str]:
            released: list[str] = []
            more = 1
            while more:
                gone, _, more, _ = msgspec.msgpack.decode(await store.run(SWEEP, sweep_keys(store.prefix, PLACE), (3,)))
                released += [name for name, _, _ in gone]
            return released

        async def claim_again(n: int) -> str | None:
            claim = Claim(id=f"again{n}", owner="p", size=2)
            for _ in range(100):
                [outcome] = await inventory.claim(PLACE, [claim], epoch=EPOCH)
                if outcome.ok:
                    return claim.id
            return None

        *released, first, second = await asyncio.gather(
            *(sweep() for _ in range(sweepers)),
            asyncio.gather(*(claim_again(n) for n in range(30))),
            asyncio.gather(*(claim_again(n) for n in range(30, 60))),
        )
        assert sorted(itertools.chain(*released)) == sorted(hold.id for hold in holds), "each once, none left out"
        won = [name for name in [*first, *second] if name]
        view = await look(store, PLACE, shape)
        assert audit(view, shape) == []
        assert {name for name, r in view.records.items() if r.state == "L"} == set(won)
        assert view.stats["reserved"] == 2 * len(won)
        assert {view.records[hold.id].note for hold in holds} == {"expired"}


async def expire_all(store, keys, records):
    past = time.time_ns() // 1_000_000 - 5000
    await store.call_many(
        [("HSET", keys[5], name, replace(r, deadline=past).text) for name, r in records.items()]
        + [("ZADD", keys[6], past, name) for name in records]
    )
