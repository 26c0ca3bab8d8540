"""The one reader of seats: how often it reads, for whom, and that a store that is away costs nobody a change."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from aisle.errors import Problem, StoreUnavailable
from aisle.live.hall import SeatMap, Subsection
from aisle.live.mailbox import Mailbox
from aisle.live.seats import SeatWatch, Upstream, Wish

A1 = Subsection(1, "A", 1, 1, 4)
B1 = Subsection(1, "B", 1, 1, 4)
OTHER = Subsection(2, "A", 1, 1, 4)


class Seats:
    """What the reader looks at; counts the looks and can be away."""

    def __init__(self) -> None:
        self.maps = {A1: SeatMap(1, b"\x00"), B1: SeatMap(1, b"\x00"), OTHER: SeatMap(1, b"\x00")}
        self.away = False
        self.version_reads = self.map_reads = 0
        self.looked_at: list[Subsection] = []

    def change(self, subsection: Subsection, packed: bytes) -> None:
        self.maps[subsection] = SeatMap(self.maps[subsection].version + 1, packed)

    async def check_public(self, event: int) -> None:
        if event not in (1, 2):
            raise Problem(404, "not_found", "no such event")

    async def subsections(self, event: int) -> list[Subsection]:
        return [s for s in (A1, B1, OTHER) if s.event == event]

    async def read_versions(self, asked):
        self.version_reads += 1
        self.looked_at += asked
        return [found and found.version for found in await self._look(asked)]

    async def read_maps(self, asked):
        self.map_reads += len(asked)
        return await self._look(asked)

    async def _look(self, asked):
        await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable("away")
        return [self.maps.get(s) for s in asked]

    def upstream(self) -> Upstream:
        return Upstream(self.check_public, self.subsections, self.read_versions, self.read_maps)


@asynccontextmanager
async def watching(seats: Seats, metrics):
    watch = SeatWatch(seats.upstream(), metrics)
    poll = asyncio.create_task(watch.poll_for_ever())
    try:
        async with asyncio.timeout(60):
            yield watch
    finally:
        poll.cancel()


async def text_until(mailbox: Mailbox, wanted: bytes) -> bytes:
    text = b""
    while wanted not in text:
        text += b"".join(message.data for message in await mailbox.take())
    return text


async def test_a_thousand_browsers_that_come_at_once_cause_one_read(metrics):
    seats = Seats()
    async with watching(seats, metrics) as watch:
        boxes = [Mailbox(4) for _ in range(1_000)]
        await asyncio.gather(*(watch.join(box, Wish(1)) for box in boxes))
        assert seats.map_reads == 2, "each subsection once"
        first = [(await box.take())[0].data for box in boxes]
        assert all(data is first[0] for data in first), "and they share the bytes"


async def test_only_what_changed_is_read_and_told(metrics):
    seats = Seats()
    async with watching(seats, metrics) as watch:
        box = Mailbox(4)
        await watch.join(box, Wish(1))
        seats.change(B1, b"\x40")
        text = await text_until(box, b"event: delta")
        assert b'"place":"B-1"' in text
        assert seats.map_reads == 3


async def test_an_event_that_nobody_watches_is_not_read(metrics):
    seats = Seats()
    async with watching(seats, metrics) as watch:
        box = Mailbox(4)
        await watch.join(box, Wish(1))
        watch.leave(box, Wish(1))
        await watch.join(Mailbox(4), Wish(2))
        seats.looked_at.clear()
        while seats.looked_at.count(OTHER) < 3:
            await asyncio.sleep(0.01)
        assert set(seats.looked_at) == {OTHER}
        seats.change(A1, b"\x80")
        assert b'"version":3' in (await watch.hall(1)).data, "who asks gets the seats as they are now"


async def test_a_store_that_was_away_costs_no_change(metrics):
    seats = Seats()
    async with watching(seats, metrics) as watch:
        box = Mailbox(4)
        await watch.join(box, Wish(1, with_seats=True))
        seats.away = True
        reads = seats.version_reads
        while seats.version_reads < reads + 2:
            await asyncio.sleep(0.01)
        seats.change(A1, b"\x40")
        seats.change(A1, b"\x50")
        seats.away = False
        text = await text_until(box, b"event: delta")
        assert b'"from":1,"version":3' in text
        assert b"reset" not in text


async def test_a_store_that_is_away_or_empty_is_no_hall_without_seats(metrics):
    seats = Seats()
    async with watching(seats, metrics) as watch:
        seats.away = True
        with pytest.raises(StoreUnavailable):
            await watch.join(Mailbox(4), Wish(1))
        seats.away = False
        del seats.maps[B1]
        with pytest.raises(Problem) as refused:
            await watch.hall(1)
        assert (refused.value.status, refused.value.code) == (503, "seats_unknown")


async def test_bits_that_fit_no_hall_do_not_stop_the_reader(metrics):
    seats = Seats()
    async with watching(seats, metrics) as watch:
        box = Mailbox(4)
        await watch.join(box, Wish(1))
        await box.take()
        seats.change(A1, b"\x40\x00")
        reads = seats.version_reads
        while seats.version_reads < reads + 2:
            await asyncio.sleep(0.01)
        seats.change(A1, b"\x40")
        assert b'"from":1,"version":3' in await text_until(box, b"event: delta")
