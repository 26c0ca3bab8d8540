"""Best seats of a section or of the whole event, taken across subsections."""

import asyncio

import pytest

from aisle.reservation.claims import Claim, Code, Rung, Settlement, Verb
from aisle.reservation.hall import HallChooser, share_out
from aisle.reservation.keys import Place
from aisle.reservation.plan import Plan, adopt
from aisle.reservation.subsection import Subsection
from tests.integration.halls import EPOCH, open_hall

THREE = (("A", 1), ("A", 2), ("B", 1))
ROW_OF_FOUR = Subsection(1, 4)


def party(id: str, size: int, **more: object) -> Claim:
    return Claim(id=id, owner="ana", size=size, **more)


async def test_the_best_subsection_is_filled_first(config, metrics):
    async with open_hall(config, metrics, ROW_OF_FOUR, THREE) as hall:
        chooser = HallChooser(hall.store, hall.inventory, 1)
        for n in range(6):
            seated = await chooser.claim_best(party(f"b{n}", 2), epoch=EPOCH)
            assert seated.code is Code.OK
        assert [len(await hall.taken(place)) for place in hall.places] == [4, 4, 4]
        assert (await chooser.claim_best(party("late", 1), epoch=EPOCH)).code is Code.SOLD_OUT


async def test_sitting_together_in_a_worse_subsection_beats_being_parted_in_the_best(config, metrics):
    async with open_hall(config, metrics, ROW_OF_FOUR, THREE) as hall:
        await hall.book(hall.places[0], "in-the-way", 1, seats=(1,))  # leaves o.oo
        seated = await HallChooser(hall.store, hall.inventory, 1).claim_best(party("b", 3), epoch=EPOCH)
        [(place, outcome)] = seated.outcomes
        assert (place, outcome.how) == (hall.places[1], Rung.ADJACENT_ORPHAN)


async def test_a_section_asked_for_is_the_only_one_looked_at(config, metrics):
    async with open_hall(config, metrics, ROW_OF_FOUR, THREE) as hall:
        chooser = HallChooser(hall.store, hall.inventory, 1)
        seated = await chooser.claim_best(party("b", 4), epoch=EPOCH, section="B")
        assert [place for place, _ in seated.outcomes] == [hall.places[2]]
        assert (await chooser.claim_best(party("c", 1), epoch=EPOCH, section="B")).code is Code.SOLD_OUT
        assert (await chooser.claim_best(party("d", 1), epoch=EPOCH, section="Z")).code is Code.CLOSED
        assert await hall.taken(hall.places[0]) == []


async def test_a_party_too_large_for_any_subsection_is_shared_out_all_or_nothing(config, metrics):
    async with open_hall(config, metrics, ROW_OF_FOUR, THREE) as hall:
        chooser = HallChooser(hall.store, hall.inventory, 1)
        seated = await chooser.claim_best(party("big", 6), epoch=EPOCH)
        assert [(place, len(o.seats)) for place, o in seated.outcomes] == [(hall.places[0], 4), (hall.places[1], 2)]
        assert (await chooser.claim_best(party("bigger", 7), epoch=EPOCH)).code is Code.NO_BLOCK
        assert sum([len(await hall.taken(place)) for place in hall.places]) == 6


async def test_a_party_that_accepts_fewer_gets_all_there_are(config, metrics):
    async with open_hall(config, metrics, ROW_OF_FOUR, (("A", 1), ("A", 2))) as hall:
        chooser = HallChooser(hall.store, hall.inventory, 1)
        seated = await chooser.claim_best(party("b", 10, allow_partial=True), epoch=EPOCH)
        assert sum(len(outcome.seats) for _, outcome in seated.outcomes) == 8


async def test_repeating_a_request_finds_the_same_seats_even_if_better_ones_came_free(config, metrics):
    async with open_hall(config, metrics, ROW_OF_FOUR, THREE) as hall:
        await hall.book(hall.places[0], "first", 4)
        before = await HallChooser(hall.store, hall.inventory, 1).claim_best(party("b", 2), epoch=EPOCH)
        await hall.inventory.settle(hall.places[0], [Settlement(Verb.RELEASE, "first", "ana")], epoch=EPOCH)
        again = await HallChooser(hall.store, hall.inventory, 1).claim_best(party("b", 2), epoch=EPOCH)
        assert again == before
        assert sum([len(await hall.taken(place)) for place in hall.places]) == 2, (
            "a repeat must not seat the party twice"
        )


async def test_a_crash_between_the_plan_and_the_seats_is_picked_up_where_it_stopped(config, metrics):
    async with open_hall(config, metrics, ROW_OF_FOUR, THREE) as hall:
        await adopt(hall.store, "b", known=Plan(), plan=Plan(((hall.places[2], 2),)))
        seated = await HallChooser(hall.store, hall.inventory, 1).claim_best(party("b", 2), epoch=EPOCH)
        assert [place for place, _ in seated.outcomes] == [hall.places[2]]


async def test_a_party_that_took_the_last_seats_before_a_crash_still_has_them(config, metrics):
    """The hall is full because of this very party: a repeat must find its seats, not an empty hand."""
    async with open_hall(config, metrics, ROW_OF_FOUR, THREE[:1]) as hall:
        seated = await HallChooser(hall.store, hall.inventory, 1).claim_best(party("b", 4), epoch=EPOCH)
        assert seated.code is Code.OK
        after_the_crash = HallChooser(hall.store, hall.inventory, 1)
        assert await after_the_crash.claim_best(party("b", 4), epoch=EPOCH) == seated
        assert (await after_the_crash.claim_best(party("c", 1), epoch=EPOCH)).code is Code.SOLD_OUT


async def test_a_plan_that_no_longer_fits_is_replaced(config, metrics):
    async with open_hall(config, metrics, ROW_OF_FOUR, THREE) as hall:
        await adopt(hall.store, "b", known=Plan(), plan=Plan(((hall.places[2], 2),)))
        await hall.book(hall.places[2], "faster", 4)
        seated = await HallChooser(hall.store, hall.inventory, 1).claim_best(party("b", 2), epoch=EPOCH)
        assert [place for place, _ in seated.outcomes] == [hall.places[0]]


@pytest.mark.parametrize("workers", [2, 8])
async def test_the_same_request_run_by_many_workers_at_once_seats_the_party_once(config, metrics, workers):
    async with open_hall(config, metrics, ROW_OF_FOUR, THREE) as hall:
        choosers = [HallChooser(hall.store, hall.inventory, 1) for _ in range(workers)]
        seated = await asyncio.gather(*(chooser.claim_best(party("b", 6), epoch=EPOCH) for chooser in choosers))
        assert {s.code for s in seated} == {Code.OK}
        assert sum([len(await hall.taken(place)) for place in hall.places]) == 6


async def test_a_rush_on_the_whole_hall_fills_it_exactly(config, metrics):
    sections = [("A", n) for n in range(1, 7)]
    async with open_hall(config, metrics, Subsection(3, 7), sections) as hall:
        chooser = HallChooser(hall.store, hall.inventory, 1)
        sizes = [1 + n % 4 for n in range(120)]
        seated = await asyncio.gather(
            *(chooser.claim_best(party(f"b{n}", size), epoch=EPOCH) for n, size in enumerate(sizes))
        )
        granted = sum(size for size, s in zip(sizes, seated, strict=True) if s.code is Code.OK)
        for size, s in zip(sizes, seated, strict=True):
            assert s.code in (Code.OK, Code.NO_BLOCK, Code.SOLD_OUT)
            if s.code is Code.OK:
                assert sum(len(outcome.seats) for _, outcome in s.outcomes) == size
        assert sum([len(await hall.taken(place)) for place in hall.places]) == granted
        assert granted >= 6 * 21 - 3, "at most a party's worth of seats is left"


def test_sharing_out_leaves_nobody_alone_if_somebody_can_be_spared():
    a, b, c = (Place(1, "A", n) for n in (1, 2, 3))
    assert share_out([(a, 4), (b, 3)], party("x", 5)) == [(a, 3), (b, 2)]
    assert share_out([(a, 2), (b, 3)], party("x", 3)) == [(b, 3)]
    assert share_out([(a, 2), (b, 1)], party("x", 3)) == [(a, 2), (b, 1)]
    assert share_out([(a, 1), (b, 1), (c, 4)], party("x", 5)) == [(b, 1), (c, 4)]
    assert share_out([(a, 1), (b, 1)], party("x", 5)) == []
