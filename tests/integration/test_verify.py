"""Verification names every kind of drift, in one line each, and changes nothing."""

import pytest

from aisle.reservation.audit import FINDINGS_PER_PLACE_MAX
from aisle.reservation.claims import Claim, Kind, Settlement, Verb
from aisle.reservation.inspect import look_at_facts
from aisle.reservation.keys import Place, event_sections, holding
from aisle.reservation.pool import Pool, PoolPlace
from aisle.reservation.pools import Pools
from aisle.reservation.sweeper import sweep_once
from aisle.reservation.verify import verify
from tests.integration.lively_hall import A1, A2, EPOCH, LivelyHall, lively_hall
from tests.invariants import assert_store_consistent


async def findings(hall: LivelyHall) -> list[str]:
    """Findings of event 1, after proof that looking did not touch anything."""
    before = await hall.dump()
    report = await verify(hall.store, 1)
    assert await hall.dump() == before, "verification must not write"
    return [f"{finding.kind}: {finding.detail}" for finding in report.findings]


async def test_a_lively_hall_is_clean_and_counted(config, metrics):
    async with lively_hall(config, metrics) as hall:
        report = await verify(hall.store, 1)
        assert report.findings == []
        assert (report.events, report.places, report.seats) == (1, 2, 45)
        assert (await verify(hall.store)).places == 2


async def test_a_hall_stays_clean_through_every_operation(config, metrics):
    async with lively_hall(config, metrics) as hall:
        store, inventory = hall.store, hall.inventory
        assert (await inventory.convert(A1, ["held"], booking="from-hold", owner="cleo", epoch=EPOCH)).ok
        await assert_store_consistent(store, 1)
        paid = Settlement(Verb.REOPEN, "paid", "ann", "refund", seats=(2,))
        assert [answer.code for answer in await inventory.settle(A1, [paid], epoch=EPOCH)] == ["ok"]
        await assert_store_consistent(store, 1)
        late = Claim(id="late", owner="eve", kind=Kind.HOLD, size=2, hold_ms=1)
        assert (await inventory.claim(A1, [late], epoch=EPOCH))[0].ok
        await assert_store_consistent(store, 1)
        released = []
        while not released:
            released = await sweep_once(store)
        assert released[0][1].claim == "late"
        await assert_store_consistent(store, 1)


DAMAGE = {
    "a seat is set in the map alone": (
        ("SETRANGE", "seats_bf", 8, b"\x08"),
        ["record: seat 5-7 is sold and no record has it"],
    ),
    "a sold seat is free in the map": (
        ("SETRANGE", "seats_bf", 0, b"\xf2"),
        ["map: seat 1-3 is available in the map and sold by record paid"],
    ),
    "padding is set": (("SETRANGE", "seats_bf", 8, b"\x01"), ["map: seats_bf: the last 2 bits are padding"]),
    "the map is short": (("SET", "seats_bf", b"\0" * 8), ["map: seats_bf: 8 bytes for 35 seats; 9 expected"]),
    "the map is gone": (("DEL", "seats_bf"), ["map: seats_bf is missing"]),
    "a counter is off by one": (
        ("HINCRBY", "section_stats", "reserved", 1),
        ["stats: section_stats says 7 reserved, the map has 6"],
    ),
    "a counter is no number": (("HSET", "section_stats", "sold", "few"), ["stats: section_stats says few sold"]),
    "the version is gone": (("HDEL", "section_stats", "version"), ["stats: section_stats has no version"]),
    "a row counts wrong": (("HINCRBY", "row_avail", 3, -1), ["rows: row_avail says", "in row 3, the map has"]),
    "a row too many": (("HSET", "row_avail", 6, 7), ["rows: row_avail has row '6', which does not exist"]),
    "a free seat has an owner": (
        ("HSET", "seat_meta", "5-1", "paid"),
        ["owner: seat 5-1 is paid's in seat_meta and nobody's"],
    ),
    "a sold seat has no owner": (
        ("HDEL", "seat_meta", "1-3"),
        ["owner: seat 1-3 is nobody's in seat_meta and paid's"],
    ),
    "an owner of no seat": (("HSET", "seat_meta", "9-9", "paid"), ["owner: seat_meta has '9-9', which is no seat"]),
    "a record is unreadable": (
        ("HSET", "holds", "strange", b"L|h|\xff"),
        ["record: record strange: a record cannot be read"],
    ),
    "two records share a seat": (
        ("HSET", "holds", "twin", "S|b|ann|3000|1760000000000|0|1||2+1"),
        ["record: ", "both have seat 1-3"],
    ),
    "a record reaches outside": (
        ("HSET", "holds", "far", "S|b|ann|3000|1760000000000|0|1||34+2"),
        ["record: record far: its run 34+2 is out of order or outside of 35 seats"],
    ),
    "a record crosses rows": (
        ("HSET", "holds", "bent", "S|b|ann|3000|1760000000000|0|1||20+2"),
        ["record: record bent: its run 20+2 goes on into the next row"],
    ),
    "a booking has a deadline": (
        ("HSET", "holds", "waiting", "L|b|bob|3000|1760000000000|1760000000001|1||5+2"),
        ["record: record waiting: a live hold has a deadline and nothing else has one"],
    ),
    "a hold is not in the index": (("ZREM", "locks:exp", "held"), ["index: locks:exp lacks held", "no sweep"]),
    "an ended record is not in the index": (("ZREM", "locks:exp", "ended"), ["index: locks:exp lacks ended, ended"]),
    "a deadline differs": (("ZADD", "locks:exp", 5, "held"), ["index: locks:exp has held at 5; its deadline is 1"]),
    "a sale is in the index": (("ZADD", "locks:exp", 5, "paid"), ["locks:exp has paid at 5; its deadline is none"]),
    "an entry without record": (
        ("ZADD", "locks:exp", 5, "ghost"),
        ["index: locks:exp has ghost, which has no readable record"],
    ),
    "the configuration is gone": (("DEL", "section_config"), ["config: section_config is missing"]),
    "a field of it is gone": (("HDEL", "section_config", "limit"), ["config: section_config: limit is missing"]),
    "its state is odd": (("HSET", "section_config", "state", "ajar"), ["config: section_config: state is 'ajar'"]),
    "its shape is impossible": (("HSET", "section_config", "rows", 0), ["config: section_config: rows must be"]),
    "its walls are short": (("HSET", "section_config", "accessible", "x"), ["config: section_config: accessible: 1"]),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_named(config, metrics, damage):
    (command, name, *arguments), words = DAMAGE[damage]
    async with lively_hall(config, metrics) as hall:
        await hall.store.call(command, hall.key(name), *arguments)
        found = await findings(hall)
        for word in words:
            assert any(word in line for line in found), found


@pytest.mark.parametrize(
    "name", ["seats_bf", "section_config", "section_stats", "row_avail", "seat_meta", "holds", "locks:exp"]
)
async def test_a_key_of_the_wrong_type_is_a_finding_and_not_a_failure(config, metrics, name):
    async with lively_hall(config, metrics) as hall:
        await hall.store.call("DEL", hall.key(name))
        await hall.store.call("RPUSH", hall.key(name), "x")
        found = await findings(hall)
        assert any(line.startswith("type: cannot be read: snapshot: WRONGTYPE") for line in found), found
        assert any(line.startswith("type: is a list, not a ") for line in found), found


async def test_a_wiped_map_is_reported_in_bounded_words(config, metrics):
    async with lively_hall(config, metrics) as hall:
        fields = [item for seat in range(500) for item in (f"90-{seat}", "x")]
        await hall.store.call("HSET", hall.key("seat_meta"), *fields)
        found = await findings(hall)
        assert len(found) == FINDINGS_PER_PLACE_MAX + 1
        assert found[-1] == "more: 400 more findings in this subsection"


async def test_orphans_are_reported_and_never_deleted(config, metrics):
    async with lively_hall(config, metrics) as hall:
        prefix = hall.store.prefix
        await hall.store.call("SET", f"{prefix}seats_bf:{{1:Z-9}}", b"\0")
        await hall.store.call("SET", f"{prefix}seats_bf:1:A-1", b"\0")
        await hall.store.call("HSET", f"{prefix}pool_holds:{{1:GA}}", "x", "y")
        await hall.store.call("ZREM", event_sections(prefix, 1), str(A2))
        await hall.store.call("SET", f"{prefix}somebody_elses", "1")
        before = await hall.dump()
        report = await verify(hall.store)
        assert await hall.dump() == before
        found = {finding.place.removeprefix(prefix): finding.detail for finding in report.findings}
        assert {finding.kind for finding in report.findings} == {"orphan"}
        assert found["seats_bf:{1:Z-9}"] == "belongs to 1:Z-9, which has no section_config"
        assert found["seats_bf:1:A-1"] == "the rest of its name cannot be read"
        assert found["pool_holds:{1:GA}"] == "belongs to 1:GA, and there is no such pool"
        assert found["section_config:{1:A-2}"] == "belongs to 1:A-2, which event_sections:1 does not name"
        assert "somebody_elses" not in found


async def test_a_listed_subsection_that_does_not_exist_is_found(config, metrics):
    async with lively_hall(config, metrics) as hall:
        await hall.store.call("ZADD", event_sections(hall.store.prefix, 1), 9, "1:B-7", 9, "nonsense")
        found = await findings(hall)
        assert "config: section_config is missing" in found
        assert any("names no subsection: 'nonsense'" in line for line in found)


async def test_live_holds_that_no_sweeper_will_visit_are_found(config, metrics):
    async with lively_hall(config, metrics) as hall:
        await hall.store.call("ZREM", holding(hall.store.prefix), str(A1))
        assert await findings(hall) == ["index: has live holds and is not in `holding`: no sweeper will come"]


async def test_a_pool_that_disagrees_with_itself_is_found(config, metrics):
    async with lively_hall(config, metrics) as hall:
        place = PoolPlace(1, "GA")
        await Pools(hall.store).open([Pool(place, capacity=10, price=100, limit=4)], epoch=EPOCH)
        assert await findings(hall) == []
        await hall.store.call("HSET", f"{hall.store.prefix}pool:{{1:GA}}", "held", 3)
        assert await findings(hall) == ["pool: held is 3, but the records have 0"]


async def test_an_event_that_is_not_there_is_not_clean_but_unknown(config, metrics):
    async with lively_hall(config, metrics) as hall:
        with pytest.raises(LookupError, match="event 77 is not in the store"):
            await verify(hall.store, 77)


async def test_the_store_is_compared_with_the_facts(config, metrics):
    async with lively_hall(config, metrics) as hall:
        facts = await look_at_facts(hall.store, 1)
        assert [claim.id for known in facts.halls for claim in known.claims] == ["paid", "waiting"]
        assert (await verify(hall.store, 1, facts)).findings == []
        assert (await hall.inventory.settle(A1, [Settlement(Verb.CONFIRM, "waiting", "bob")], epoch=EPOCH))[0].ok
        assert (await hall.inventory.claim(A2, [Claim(id="new", owner="eve", size=1)], epoch=EPOCH))[0].ok
        await hall.inventory.switch([A2], epoch=EPOCH, on_sale=True, price=2500)
        report = await verify(hall.store, 1, facts)
        assert [str(finding) for finding in report.findings] == [
            "1:A-1  facts  booking waiting is reserved in fact and sold in the store",
            "1:A-2  facts  price: 2500 in the store, 2000 in fact",
            "1:A-2  facts  booking new has 1 seats in the store and none in fact",
        ]


async def test_many_events_are_verified_in_one_go(config, metrics):
    async with lively_hall(config, metrics) as hall:
        from aisle.reservation.inventory import Hall
        from aisle.reservation.subsection import Subsection

        places = [Place(event, "B", number) for event in (2, 3) for number in range(1, 21)]
        await hall.inventory.open([Hall(place, Subsection(10, 20), 100, 10) for place in places], epoch=1)
        report = await verify(hall.store)
        assert (report.events, report.places, report.seats) == (3, 42, 40 * 200 + 45)
        assert report.clean
