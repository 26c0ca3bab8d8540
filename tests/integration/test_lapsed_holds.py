"""Holds that run out in a cart are counted once each, whoever sweeps, dies half-way or tells the same twice."""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import asyncpg
import pytest

from aisle.bridges import report_lapsed
from aisle.reservation.claims import Settlement, Verb
from aisle.reservation.keys import lapsed
from aisle.reservation.rebuild import rebuild
from aisle.reservation.subsection import Subsection
from aisle.reservation.sweeper import Lapsed, announce, sweep_once
from aisle.sales.store import count
from tests.integration.halls import OpenHall, open_hall
from tests.integration.lively_hall import A1, lively_hall
from tests.integration.test_rebuild import look_at_facts

SHAPE = Subsection(4, 10)


@pytest.fixture
def told():
    """What was told, and a report that can be made to fail before or after it writes."""

    class Told:
        def __init__(self) -> None:
            self.holds: list[Lapsed] = []
            self.may = True

        async def __call__(self, holds: Sequence[Lapsed]) -> bool:
            self.holds += holds
            return self.may

    return Told()


async def run_out(hall: OpenHall, *ids: str, place=None) -> None:
    place = place or hall.places[0]
    await announce(hall.store, [place])
    for id in ids:
        await hall.hold(place, id, 1, hold_ms=1)
    await asyncio.sleep(0.005)


async def test_what_runs_out_is_told_once_and_then_forgotten(config, metrics, told):
    async with open_hall(config, metrics, SHAPE) as hall:
        await run_out(hall, "h1", "h2")
        await hall.hold(hall.places[0], "h3", 1)
        await asyncio.gather(*(sweep_once(hall.store, told) for _ in range(8)))
        assert {(one.event, one.hold, one.owner) for one in told.holds} == {(1, "h1", "ana"), (1, "h2", "ana")}
        told.holds.clear()
        await sweep_once(hall.store, told)
        assert told.holds == []
        assert await hall.store.call("EXISTS", lapsed(hall.store.prefix, hall.places[0])) == 0


async def test_what_was_given_back_or_booked_did_not_run_out(config, metrics, told):
    async with open_hall(config, metrics, SHAPE) as hall:
        place = hall.places[0]
        await announce(hall.store, [place])
        await hall.hold(place, "back", 1, hold_ms=60_000)
        await hall.hold(place, "booked", 1, hold_ms=60_000)
        await hall.inventory.settle(place, [Settlement(Verb.RELEASE, "back", "ana")], epoch=1)
        await hall.inventory.convert(place, ["booked"], booking="b1", owner="ana", epoch=1)
        await sweep_once(hall.store, told)
        assert told.holds == []


async def test_a_note_stays_until_it_was_written_down(config, metrics, told):
    async with open_hall(config, metrics, SHAPE) as hall:
        await run_out(hall, "h1")
        told.may = False
        for _ in range(3):
            await sweep_once(hall.store, told)
        assert [one.hold for one in told.holds] == ["h1"] * 3
        told.may = True
        await sweep_once(hall.store, told)
        await sweep_once(hall.store, told)
        assert len(told.holds) == 4


async def test_more_than_one_visit_can_tell_are_all_told(config, metrics, told):
    async with open_hall(config, metrics, Subsection(30, 10)) as hall:
        await run_out(hall, *(f"h{n}" for n in range(250)))
        for _ in range(4):
            await sweep_once(hall.store, told)
        assert len({one.hold for one in told.holds}) == len(told.holds) == 250


async def test_a_sweeper_killed_anywhere_in_between_leaves_one_row(config, metrics):
    """Killed after the seats were released, after the row was written, and twice over."""

    class Killed(BaseException):
        pass

    async with open_hall(config, metrics, SHAPE, (("A", 1), ("A", 2))) as hall, database_of(config) as database:
        write, event = report_lapsed(database), 10**6 + uuid4().int % 10**6

        async def dies_before(holds):
            raise Killed

        async def dies_after(holds):
            await write([one._replace(event=event) for one in holds])
            raise Killed

        async def lives(holds):
            return await write([one._replace(event=event) for one in holds])

        # One hold with seats in two subsections, and one beside it.
        await run_out(hall, "split", "h1")
        await run_out(hall, "split", place=hall.places[1])
        for death in (dies_before, dies_after, dies_after):
            with pytest.raises(Killed):
                await sweep_once(hall.store, death)
        await sweep_once(hall.store, lives)
        await sweep_once(hall.store, lives)
        rows = await database.fetch("select hold, owner from sales.lapsed_holds where event_id = $1 order by 1", event)
        assert [tuple(row) for row in rows] == [("h1", "ana"), ("split", "ana")]


async def test_a_cart_counts_once_however_many_holds_it_had(config, metrics):
    async with database_of(config) as database:
        write, event = report_lapsed(database), 10**6 + uuid4().int % 10**6
        ana, ben = str(uuid4()), str(uuid4())
        holds = [Lapsed(event, "h1", ana, 1_000), Lapsed(event, "h2", ana, 1_000)]
        holds += [Lapsed(event, "h3", ana, 2_000), Lapsed(event, "h4", ben, 1_000)]
        assert all(await asyncio.gather(*(write(holds[::order]) for order in (1, -1) * 10)))
        async with database.acquire() as connection:
            counted = await count(connection, event, {})
        assert (counted.lapsed.holds, counted.lapsed.carts) == (4, 3)


async def test_a_database_that_is_away_delays_the_count_only(config, metrics, told):
    async with open_hall(config, metrics, SHAPE) as hall:
        gone = await asyncpg.create_pool(config.database_url, min_size=1, max_size=1)
        await gone.close()
        await run_out(hall, "h1")
        await sweep_once(hall.store, report_lapsed(gone))
        assert await hall.taken(hall.places[0]) == [], "seats do not wait for the count"
        await sweep_once(hall.store, told)
        assert [one.hold for one in told.holds] == ["h1"]


async def test_a_rebuild_keeps_the_notes_and_adds_what_ran_out_meanwhile(config, metrics, told):
    async with lively_hall(config, metrics) as hall:
        facts = await look_at_facts(hall.store, 1)
        await hall.store.call("ZADD", lapsed(hall.store.prefix, A1), 5, "earlier|eve")
        line = (await hall.store.call("HGET", hall.key("holds"), "held")).decode().split("|")
        line[5] = "1760000000000"
        await hall.store.call("HSET", hall.key("holds"), "held", "|".join(line))
        await hall.store.call("ZADD", hall.key("locks:exp"), line[5], "held")
        await rebuild(hall.store, facts)
        await sweep_once(hall.store, told)
        assert {(one.hold, one.owner) for one in told.holds} == {("earlier", "eve"), ("held", "cleo")}


def database_of(config):
    return asyncpg.create_pool(config.database_url, min_size=1, max_size=8)
