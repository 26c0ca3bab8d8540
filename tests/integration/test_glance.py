"""The operator's window into the store: it shows what the store holds, a bounded part of it, and changes nothing."""

import pytest

from aisle.reservation import glance
from aisle.reservation.claims import Kind
from aisle.reservation.glance import glance_at_event, glance_at_holds, glance_at_keys, glance_at_seat
from aisle.reservation.inspect import Unreadable, look_at_sections
from aisle.reservation.inventory import Hall
from aisle.reservation.keys import Place
from aisle.reservation.pool import Pool, PoolPlace, Take
from aisle.reservation.pools import Pools
from aisle.reservation.subsection import Subsection
from tests.conftest import with_settings
from tests.integration.lively_hall import A1, A2, lively_hall
from tests.proxy import recording

GA = PoolPlace(1, "GA")


async def with_pool(hall):
    pools = Pools(hall.store)
    await pools.open([Pool(GA, capacity=30, price=500, limit=8)], epoch=1)
    await pools.switch([GA], epoch=1, on_sale=True)
    takes = [
        Take(id="pool-booking", owner="ann", quantity=3),
        Take(id="pool-hold", owner="bob", quantity=2, kind=Kind.HOLD, hold_ms=600_000),
    ]
    assert all(taken.ok for taken in await pools.take(GA, takes, epoch=1))


async def test_an_event_shows_its_subsections_as_the_full_inspection_does(config, metrics):
    async with lively_hall(config, metrics) as hall:
        await with_pool(hall)
        before = await hall.dump()
        seen = await glance_at_event(hall.store, 1, ["GA", "gone"], after=0)
        assert seen.sections == await look_at_sections(hall.store, [A1, A2])
        [pool] = seen.pools
        assert (pool.place, pool.state, pool.available, pool.held, pool.capacity) == ("1:GA", "open", 25, 5, 30)
        assert seen.next is None
        assert await hall.dump() == before


async def test_places_come_a_page_at_a_time(config, metrics, monkeypatch):
    monkeypatch.setattr(glance, "PLACES_MAX", 3)
    async with lively_hall(config, metrics) as hall:
        places = [Place(2, "B", number) for number in range(1, 8)]
        await hall.inventory.open([Hall(p, Subsection(1, 2), 1, 1, rank=p.subsection) for p in places], epoch=1)
        seen, after = [], 0
        while after is not None:
            page = await glance_at_event(hall.store, 2, ["GA"] if after == 0 else [], after=after)
            assert len(page.sections) <= 3
            seen += [section.place for section in page.sections]
            after = page.next
        assert seen == list(map(str, places))


async def test_holds_are_those_that_end_soonest(config, metrics, monkeypatch):
    async with lively_hall(config, metrics) as hall:
        await with_pool(hall)
        [held] = await glance_at_holds(hall.store, A1)
        assert (held.id, held.owner, held.seats, held.places) == ("held", "cleo", ["2-1", "2-2", "2-3", "2-4"], 4)
        assert 0 < held.left_ms <= 600_000
        [pooled] = await glance_at_holds(hall.store, GA)
        assert (pooled.id, pooled.owner, pooled.seats, pooled.places) == ("pool-hold", "bob", [], 2)
        assert await glance_at_holds(hall.store, A2) == []
        with pytest.raises(LookupError, match="1:B-1 is not in the store"):
            await glance_at_holds(hall.store, Place(1, "B", 1))
        with pytest.raises(LookupError, match="1:VIP is not in the store"):
            await glance_at_holds(hall.store, PoolPlace(1, "VIP"))
        monkeypatch.setattr(glance, "HOLDS_MAX", 0)
        assert await glance_at_holds(hall.store, A1) == []


async def test_a_seat_names_its_holder(config, metrics):
    async with lively_hall(config, metrics) as hall:
        seats = {name: await glance_at_seat(hall.store, A1, *map(int, name.split("-"))) for name in SEATS}
        assert {name: (seen.state, seen.holder and seen.holder.id) for name, seen in seats.items()} == SEATS
        with pytest.raises(LookupError, match="1:A-1 has 5 rows of 7 seats"):
            await glance_at_seat(hall.store, A1, 6, 1)
        with pytest.raises(LookupError, match="1:B-1 is not in the store"):
            await glance_at_seat(hall.store, Place(1, "B", 1), 1, 1)


SEATS = {
    "1-1": ("unavailable", None),
    "1-3": ("sold", "paid"),
    "1-6": ("reserved", "waiting"),
    "2-4": ("reserved", "held"),
    "2-5": ("available", None),
    "5-7": ("available", None),
}


async def test_keys_are_found_with_scan_page_by_page(config, metrics, monkeypatch):
    monkeypatch.setattr(glance, "KEYS_MIN", 2)
    monkeypatch.setattr(glance, "SCAN_COUNT", 2)
    monkeypatch.setattr(glance, "SCANS_MAX", 3)
    async with (
        recording(config.store_url) as record,
        lively_hall(with_settings(config, store_url=record.url), metrics) as hall,
    ):
        await with_pool(hall)
        await hall.store.call("SET", f"{hall.store.prefix}session:secret", "x")
        record.commands.clear()
        found, cursor, pages = {}, "", 0
        while cursor is not None:
            page = await glance_at_keys(hall.store, name="", event=1, start=cursor)
            found |= {key.key.removeprefix(hall.store.prefix): key.type for key in page.items}
            cursor, pages = page.next, pages + 1
        assert pages > 2
        assert {"seats_bf:{1:A-1}", "pool:{1:GA}", "event_sections:1"} <= found.keys()
        assert found["holds:{1:A-1}"] == "hash"
        assert not any("secret" in key for key in found), "who is logged in is nobody's business here"
        assert {command[0] for command in record.commands} == {b"SCAN", b"TYPE", b"MEMORY"}


async def test_what_cannot_be_read_is_said(config, metrics):
    async with lively_hall(config, metrics) as hall:
        await hall.store.call("SET", hall.key("section_stats", A2), "x")
        with pytest.raises(Unreadable, match="WRONGTYPE"):
            await glance_at_event(hall.store, 1, [], after=0)
        await hall.store.call("HSET", hall.key("holds"), "held", "nonsense")
        with pytest.raises(Unreadable, match="a record cannot be read"):
            await glance_at_holds(hall.store, A1)
        with pytest.raises(LookupError, match="event 9 is not in the store"):
            await glance_at_event(hall.store, 9, [], after=0)
