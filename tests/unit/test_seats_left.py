"""Where nothing is left, and how old that knowledge may be."""

import asyncio

from aisle.booking.booking import Request
from aisle.seats_left import FRESH_SECONDS, ROOMY_SECONDS, SeatsLeft, empty_places
from aisle.ticketing.api import Counts


def counts(section: str, subsection: int, available: int) -> Counts:
    return Counts(section, subsection, available, 10 - available, 0, 0, 10, 1)


def test_a_section_is_empty_when_all_its_parts_are_and_a_pool_is_no_part_of_the_hall():
    full_but_for_one = [counts("A", 1, 0), counts("A", 2, 0), counts("B", 1, 0), counts("B", 2, 1), counts("GA", 0, 0)]
    assert set(empty_places(full_but_for_one)) == {("A", 1), ("A", 2), ("A", None), ("B", 1), ("GA", 0)}
    assert (None, None) in empty_places([counts("A", 1, 0), counts("GA", 0, 5)])
    assert empty_places([]) == []


async def test_many_askers_cause_one_count_and_a_seat_that_came_back_is_seen_a_moment_later():
    now, asked, left = [100.0], [], [0]

    async def count(event: int) -> list[Counts]:
        asked.append(event)
        await asyncio.sleep(0)
        return [counts("A", 1, left[0])]

    seats_left = SeatsLeft(count, clock=lambda: now[0])
    request = Request(quantity=2, section="A", subsection=1)
    assert await asyncio.gather(*(seats_left.nothing_for(1, request) for _ in range(100))) == [True] * 100
    assert asked == [1]
    left[0] = 2
    assert await seats_left.nothing_for(1, request)
    now[0] += FRESH_SECONDS
    assert not await seats_left.nothing_for(1, request)
    assert asked == [1, 1]


async def test_where_there_is_room_everywhere_it_is_looked_at_less_often():
    now, looks, left = [100.0], [], [9]

    async def count(event: int) -> list[Counts]:
        looks.append(now[0])
        return [counts("A", 1, left[0]), counts("A", 2, 10)]

    seats_left = SeatsLeft(count, clock=lambda: now[0])
    request = Request(quantity=2, section="A", subsection=1)
    for available, pause in ((9, ROOMY_SECONDS), (1, FRESH_SECONDS), (0, FRESH_SECONDS)):
        left[0], looks[:] = available, []
        assert await seats_left.nothing_for(1, request) == (available == 0)
        now[0] += pause - 0.01
        await seats_left.nothing_for(1, request)
        assert len(looks) == 1
        now[0] += 0.02
    await seats_left.nothing_for(1, request)
    assert len(looks) == 2


async def test_a_place_that_was_not_counted_is_left_to_the_store():
    async def count(event: int) -> list[Counts]:
        return []

    assert not await SeatsLeft(count).nothing_for(1, Request(quantity=1))


async def test_counts_that_cannot_be_read_refuse_nobody():
    async def count(event: int) -> list[Counts]:
        raise ValueError("held is 'many'")

    assert not await SeatsLeft(count).nothing_for(1, Request(quantity=1))
