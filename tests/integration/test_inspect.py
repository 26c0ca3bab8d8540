"""What operators see is what the store holds; looking changes nothing and never uses KEYS."""

import pytest

from aisle.reservation.claims import Claim, Kind
from aisle.reservation.inspect import (
    Unreadable,
    look_at_facts,
    look_at_holds,
    look_at_keys,
    look_at_seats,
    look_at_sections,
    places_of_event,
)  # fmt: skip
from aisle.reservation.inspect_text import holds_text, keys_text, seats_text, sections_text
from aisle.reservation.inventory import Hall
from aisle.reservation.keys import Place, event_sections
from aisle.reservation.subsection import Subsection
from tests.integration.lively_hall import A1, A2, EPOCH, lively_hall


async def test_sections_show_the_counts_of_the_store(config, metrics):
    async with lively_hall(config, metrics) as hall:
        first, second = await look_at_sections(hall.store, await places_of_event(hall.store, 1))
        assert (first.place, first.state, first.epoch, first.price) == ("1:A-1", "open", EPOCH, 3000)
        assert (first.available, first.reserved, first.sold, first.blocked, first.total) == (24, 6, 3, 2, 35)
        assert (second.place, second.available) == ("1:A-2", 10)
        head, one, two = sections_text([first, second]).splitlines()
        assert head.split()[:4] == ["place", "state", "available", "reserved"]
        assert one.split()[:6] == ["1:A-1", "open", "24", "6", "3", "2"]
        assert two.startswith("1:A-2")


async def test_the_hall_is_drawn_seat_by_seat(config, metrics):
    async with lively_hall(config, metrics) as hall:
        view = await look_at_seats(hall.store, A1)
        assert view.rows == ["xx###oo", "oooo...", ".......", ".......", "......a"]
        assert seats_text(view).splitlines()[2:5] == ["   1", "1  xx###oo", "2  oooo..."]


async def test_the_ruler_numbers_every_tenth_seat(config, metrics):
    async with lively_hall(config, metrics) as hall:
        wide = Place(2, "W", 1)
        await hall.inventory.open([Hall(wide, Subsection(12, 23), 1, 1)], epoch=1)
        lines = seats_text(await look_at_seats(hall.store, wide)).splitlines()
        ruler, first, last = lines[2], lines[3], lines[14]
        assert (first, last) == (" 1  " + "." * 23, "12  " + "." * 23)
        assert [ruler[4], ruler[12:14], ruler[22:24]] == ["1", "10", "20"]


async def test_holds_say_who_has_what_and_how_long(config, metrics):
    async with lively_hall(config, metrics) as hall:
        soonest, *bookings = await look_at_holds(hall.store, [A1, A2])
        assert (soonest.id, soonest.owner, soonest.kind, soonest.state) == ("held", "cleo", "hold", "live")
        assert soonest.seats == ["2-1", "2-2", "2-3", "2-4"]
        assert 0 < soonest.left_ms <= 600_000
        assert [(booking.id, booking.state, booking.deadline_ms) for booking in bookings] == [
            ("paid", "sold", None),
            ("waiting", "live", None),
        ]
        assert "ended" not in holds_text([soonest, *bookings])


async def test_an_overdue_hold_is_marked(config, metrics):
    async with lively_hall(config, metrics) as hall:
        await hall.store.call("HSET", hall.key("holds"), "held", "L|h|cleo|3000|1760000000000|1760000600000|1||7+4")
        held, *_ = await look_at_holds(hall.store, [A1])
        assert held.left_ms < 0
        assert "overdue" in holds_text([held])


async def test_keys_are_counted_and_weighed_and_orphans_named(config, metrics):
    async with lively_hall(config, metrics) as hall:
        await hall.store.call("SET", f"{hall.store.prefix}seats_bf:{{1:Q-1}}", b"\0")
        await hall.store.call("SET", f"{hall.store.prefix}neighbour", "x")
        before = await hall.dump()
        view = await look_at_keys(hall.store)
        assert await hall.dump() == before
        counts = {kind.name: (kind.type, kind.keys) for kind in view.kinds}
        assert counts["seats_bf"] == ("string", 3)
        assert counts["section_config"] == ("hash", 2)
        assert counts["locks:exp"] == ("zset", 1)
        assert all(kind.bytes > 0 for kind in view.kinds)
        assert view.other_keys == 1
        assert len(view.orphans) == 1
        assert "seats_bf:{1:Q-1}" in view.orphans[0]
        assert view.orphans[0] in keys_text(view)


async def test_keys_of_one_event_leave_the_others_out(config, metrics):
    async with lively_hall(config, metrics) as hall:
        await hall.inventory.open([Hall(Place(2, "B", 1), Subsection(2, 2), 1, 1)], epoch=1)
        assert {kind.name: kind.keys for kind in (await look_at_keys(hall.store, 2)).kinds} == {
            "event_sections": 1, "row_avail": 1, "seats_bf": 1, "section_config": 1, "section_stats": 1,
        }  # fmt: skip


async def test_what_is_not_there_is_said_to_be_not_there(config, metrics):
    async with lively_hall(config, metrics) as hall:
        with pytest.raises(LookupError, match="event 8 is not in the store"):
            await places_of_event(hall.store, 8)
        with pytest.raises(LookupError, match="1:B-1 is not in the store"):
            await look_at_seats(hall.store, Place(1, "B", 1))


async def test_what_cannot_be_shown_is_said_clearly(config, metrics):
    async with lively_hall(config, metrics) as hall:
        await hall.store.call("SET", hall.key("seats_bf"), b"short")
        with pytest.raises(Unreadable, match="1:A-1: 5 bytes for 35 seats; 9 expected"):
            await look_at_seats(hall.store, A1)
        with pytest.raises(Unreadable, match="`aisle verify --event 1` shows all findings"):
            await look_at_facts(hall.store, 1)
        await hall.store.call("DEL", hall.key("section_stats"))
        await hall.store.call("SET", hall.key("section_stats"), "x")
        with pytest.raises(Unreadable, match="WRONGTYPE"):
            await look_at_sections(hall.store, [A1])
        await hall.store.call("DEL", event_sections(hall.store.prefix, 1))
        await hall.store.call("SET", event_sections(hall.store.prefix, 1), "x")
        with pytest.raises(Unreadable, match="WRONGTYPE"):
            await places_of_event(hall.store, 1)


async def test_facts_are_bookings_and_leave_holds_out(config, metrics):
    async with lively_hall(config, metrics) as hall:
        hold = Claim(id="another", owner="eve", kind=Kind.HOLD, size=1, hold_ms=60_000)
        assert (await hall.inventory.claim(A2, [hold], epoch=EPOCH))[0].ok
        facts = await look_at_facts(hall.store, 1)
        assert {claim.id: claim.sold for known in facts.halls for claim in known.claims} == {
            "paid": True,
            "waiting": False,
        }
        assert [(known.hall.rank, known.epoch) for known in facts.halls] == [(1, EPOCH), (2, EPOCH)]
