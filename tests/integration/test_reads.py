"""Reading the hall: counts, seats with their version, who has a seat."""

from aisle.reservation.claims import Settlement, Verb
from aisle.reservation.keys import Place
from aisle.reservation.reads import hall_map, places_of, seat_maps, statuses, who_has
from aisle.reservation.record import ClaimState, Record
from aisle.reservation.subsection import SeatState, Subsection, unpack
from tests.integration.halls import EPOCH, open_hall

SHAPE = Subsection(2, 3)


async def test_counts_follow_what_happens(config, metrics):
    async with open_hall(config, metrics, SHAPE, (("A", 1), ("A", 2))) as hall:
        await hall.book(hall.places[0], "b1", 2)
        await hall.inventory.settle(hall.places[0], [Settlement(Verb.CONFIRM, "b1", "ana")], epoch=EPOCH)
        await hall.book(hall.places[0], "b2", 1)
        first, second, nothing = await statuses(hall.store, [*hall.places, Place(1, "Z", 9)])
        assert (first.available, first.reserved, first.sold, first.total, first.version) == (3, 1, 2, 6, 4)
        assert (second.available, second.version) == (6, 1)
        assert nothing is None


async def test_places_come_best_first(config, metrics):
    async with open_hall(config, metrics, SHAPE, (("C", 1), ("A", 2), ("B", 1))) as hall:
        assert await places_of(hall.store, 1) == hall.places
        assert await places_of(hall.store, 2) == []


async def test_the_hall_map_has_every_seat_and_a_version_that_grows_with_each_change(config, metrics):
    async with open_hall(config, metrics, SHAPE, (("A", 1), ("A", 2))) as hall:
        before = await hall_map(hall.store, 1)
        await hall.book(hall.places[1], "b1", 2)
        after = await hall_map(hall.store, 1)
        assert after.version == before.version + 1
        assert [m.place for m in after.maps] == hall.places
        states = unpack(SHAPE, after.maps[1].packed)
        assert states.count(SeatState.RESERVED) == 2
        assert await seat_maps(hall.store, [Place(1, "Z", 1)]) == [None]


async def test_who_has_a_seat(config, metrics):
    async with open_hall(config, metrics, SHAPE) as hall:
        await hall.hold(hall.places[0], "h1", 2)
        first, second, free = await who_has(hall.store, hall.places[0], ["1-1", "1-2", "1-3"])
        assert first.claim == second.claim == "h1"
        assert (first.record.state, first.record.owner, first.record.seats) == (ClaimState.LIVE, "ana", (0, 1))
        assert free is None


async def test_a_record_reads_back_as_it_was_written(config, metrics):
    async with open_hall(config, metrics, SHAPE) as hall:
        await hall.hold(hall.places[0], "h1", 4)
        line = await hall.store.call("HGET", hall.inventory.keys(hall.places[0])[5], "h1")
        assert Record.parse(line).line() == line
