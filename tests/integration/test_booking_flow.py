"""A booking's way through the three services over a real log, observed in the store and the database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg
import pytest

from aisle.booking import order_store
from aisle.booking import store as booking_store
from aisle.booking.booking import Request, State
from aisle.booking.worker import BookingWorker
from aisle.config import Config
from aisle.log import LogWriter, ensure_lane, open_reader, open_writer
from aisle.messages import (
    BOOKING,
    RESERVATION,
    TICKETING,
    Message,
    SeatsInitialized,
    Subhall,
    TicketReserveRequested,
    group,
    topics_to,
)
from aisle.metrics import Metrics
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place
from aisle.reservation.pools import Pools
from aisle.reservation.reads import statuses
from aisle.reservation.worker import ReservationWorker
from aisle.store import Store, open_store
from aisle.ticketing import store as event_store
from aisle.ticketing.event import plan_hall
from aisle.ticketing.worker import TicketingWorker
from aisle.worker import run_worker
from tests.apache_kafka import ON_KAFKA
from tests.brokers import penstock
from tests.unit.test_event import describe

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture(scope="module", params=["penstock", pytest.param("kafka", marks=ON_KAFKA)])
def bootstrap(request, tmp_path_factory, servers, worker_id):
    if request.param == "kafka":
        yield request.getfixturevalue("kafka")
        return
    with penstock(tmp_path_factory.mktemp("broker") / "data", servers.store_url, f"flow-{worker_id}") as address:
        yield address


class Stage:
    """Three services at work for one event in a lane of its own."""

    def __init__(self, database: asyncpg.Pool, store: Store, writer: LogWriter, event: event_store.Event) -> None:
        self.database, self.store, self.writer, self.event = database, store, writer, event
        self.inventory = Inventory(store)

    async def place(self, *requests: Request) -> list[UUID]:
        placings = [
            order_store.Placing(uuid4(), self.event.id, self.event.lane, uuid4(), request, "k", b"h", 10)
            for request in requests
        ]
        async with self.database.acquire() as connection:
            await order_store.place(connection, placings, now=NOW)
        await self.writer.publish([self.message(placing) for placing in placings])
        return [placing.id for placing in placings]

    def message(self, placing: order_store.Placing) -> TicketReserveRequested:
        request = placing.request
        return TicketReserveRequested(
            id=str(placing.id), lane=self.event.lane, event=self.event.id, section=request.section or "A", partition=0,
            epoch=1, booking=str(placing.id), buyer=str(placing.buyer), quantity=request.quantity,
            in_section=request.section, in_subsection=request.subsection, seats=request.seats,
        )  # fmt: skip

    async def settled(self, ids: list[UUID]) -> dict[UUID, booking_store.Booking]:
        """The bookings once none of them is PROCESSING any more."""
        async with asyncio.timeout(60):
            while True:
                async with self.database.acquire() as connection:
                    found = await booking_store.bookings_of(connection, ids)
                if all(b.state is not State.PROCESSING for b in found):
                    return {b.id: b for b in found}
                await asyncio.sleep(0.02)

    async def tickets(self) -> list[asyncpg.Record]:
        return await self.database.fetch(
            "select place, seat, booking from ticketing.tickets where event_id = $1 and state <> 0 order by 1, 2",
            self.event.id,
        )

    async def wait_for_tickets(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(await self.tickets()) != count:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def stage(config: Config, metrics: Metrics, bootstrap: str) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(asyncpg.create_pool(config.database_url, min_size=1, max_size=5))
        store = await stack.enter_async_context(open_store(config, metrics))
        writer = await stack.enter_async_context(open_writer(bootstrap))
        event = await create_event(database)
        await ensure_lane(bootstrap, event.lane)
        handlers = {
            RESERVATION: ReservationWorker(store, Inventory(store), Pools(store)).handle,
            TICKETING: TicketingWorker(database, ended=booking_store.ended_bookings).handle,
            BOOKING: BookingWorker(database, payment_seconds=900, clock=lambda: NOW).handle,
        }
        for service, handle in handlers.items():
            reader = await stack.enter_async_context(
                open_reader(bootstrap, group(service, event.lane), topics_to(service, event.lane))
            )
            task = asyncio.create_task(run_worker(service, event.lane, reader, writer, handle))
            stack.push_async_callback(stop, task)
        ready = Stage(database, store, writer, event)
        await open_seats(ready)
        yield ready


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def create_event(database: asyncpg.Pool) -> event_store.Event:
    description = describe(own_lane=True)
    async with database.acquire() as connection, connection.transaction():
        return await event_store.insert_event(
            connection, uuid4(), description, plan_hall(description), own_lane_from_seats=5000, now=NOW
        )


async def open_seats(ready: Stage) -> None:
    event = ready.event
    messages: list[Message] = []
    for n, section in enumerate("AB"):
        halls = tuple(
            Subhall(s.subsection, s.rows, s.seats_per_row, s.price, s.place, s.blocked, s.accessible)
            for s in plan_hall(describe())
            if s.section == section
        )
        messages.append(
            SeatsInitialized(
                id=f"{event.id}.{section}", lane=event.lane, event=event.id, section=section, partition=n, epoch=1,
                halls=halls, limit=10,
            )
        )  # fmt: skip
    await ready.writer.publish(messages)
    places = [Place(event.id, "A", 1), Place(event.id, "A", 2), Place(event.id, "B", 7)]
    async with asyncio.timeout(60):
        while None in await statuses(ready.store, places):
            await asyncio.sleep(0.02)
    await ready.inventory.switch(places, epoch=1, on_sale=True)


async def test_bookings_get_seats_everywhere_at_once(config, metrics, bootstrap):
    async with stage(config, metrics, bootstrap) as hall:
        ids = await hall.place(
            Request(quantity=2, section="A", subsection=1),
            Request(quantity=3, section="A"),
            Request(quantity=2, section="B", subsection=7, seats=(2, 3)),
            Request(quantity=4),
        )
        bookings = await hall.settled(ids)
        assert [bookings[id].state for id in ids] == [State.PENDING_PAYMENT] * 4
        assert bookings[ids[0]].total == 6000
        assert bookings[ids[2]].parts[0].seats == (2, 3)
        await hall.wait_for_tickets(2 + 3 + 2 + 4 + 1)
        by_booking = {}
        for ticket in await hall.tickets():
            by_booking.setdefault(ticket["booking"], []).append((ticket["place"], ticket["seat"]))
        assert {id: len(by_booking[id]) for id in ids} == dict(zip(ids, (2, 3, 2, 4), strict=True))
        [a1] = await statuses(hall.store, [Place(hall.event.id, "A", 1)])
        assert (a1.available, a1.reserved) == (11, 9)


async def test_a_booking_without_seats_fails_with_the_reason(config, metrics, bootstrap):
    async with stage(config, metrics, bootstrap) as hall:
        first = await hall.place(Request(quantity=2, section="B", subsection=7, seats=(2, 3)))
        await hall.settled(first)
        second = await hall.place(Request(quantity=2, section="B", subsection=7, seats=(3,)))
        bookings = await hall.settled(second)
        assert (bookings[second[0]].state, bookings[second[0]].reason) == (State.FAILED, "taken")


async def test_a_seat_that_the_store_gave_away_but_postgresql_does_not_have_is_nobodys(config, metrics, bootstrap):
    """The store lies (it was restored from an old copy, say): PostgreSQL keeps the first owner, the booking ends."""
    async with stage(config, metrics, bootstrap) as hall:
        owner = uuid4()
        await hall.database.execute(
            "update ticketing.tickets set state = 1, booking = $2 where event_id = $1 and place = 0 and seat = 1",
            hall.event.id,
            owner,
        )
        [id] = await hall.place(Request(quantity=2, section="A", subsection=1))
        async with asyncio.timeout(60):
            while (await hall.settled([id]))[id].state is State.PENDING_PAYMENT:
                await asyncio.sleep(0.02)
            while (await statuses(hall.store, [Place(hall.event.id, "A", 1)]))[0].reserved:
                await asyncio.sleep(0.02)
        assert (await hall.settled([id]))[id].state in (State.CANCELLED, State.FAILED)
        taken = [(t["seat"], t["booking"]) for t in await hall.tickets() if t["place"] == 0]
        assert taken == [(1, owner)], "the first owner keeps the seat, the half that matched is free again"


async def test_the_same_request_twice_is_one_booking(config, metrics, bootstrap):
    async with stage(config, metrics, bootstrap) as hall:
        request = Request(quantity=2, section="A", subsection=2)
        placing = order_store.Placing(uuid4(), hall.event.id, hall.event.lane, uuid4(), request, "k", b"h", 10)
        async with hall.database.acquire() as connection:
            await order_store.place(connection, [placing], now=NOW)
        await hall.writer.publish([hall.message(placing)] * 5)
        await hall.settled([placing.id])
        await hall.wait_for_tickets(2 + 1)
        [a2] = await statuses(hall.store, [Place(hall.event.id, "A", 2)])
        assert a2.reserved == 2
