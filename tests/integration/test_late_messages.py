"""Messages that overtake each other between topics: whatever the order, tickets end with whom the booking says.

A booking that its buyer cancelled at once is on two topics: its seats on the way to their tickets, its end on the way
to release them. The first test shows what happens to a worker that only looks at the tickets.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg
import pytest

from aisle.booking import order_store
from aisle.booking import store as booking_store
from aisle.booking.booking import Request, State
from aisle.booking.order_store import Placing
from aisle.booking.store import ended_bookings
from aisle.messages import BookingExpired, Part, SeatsReleased, SeatsReserved, TicketsRefused
from aisle.ticketing import store as event_store
from aisle.ticketing.event import plan_hall
from aisle.ticketing.worker import TicketingWorker
from tests.unit.test_event import describe

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
PARTS = (Part("A", 1, (0, 1), 3000),)


class Case:
    """An event, one booking that was cancelled, and the two messages about it."""

    def __init__(self, database: asyncpg.Pool, event: event_store.Event, booking: UUID, buyer: UUID) -> None:
        self.database, self.event, self.booking = database, event, booking
        shared = {"lane": "shared", "event": event.id, "section": "A", "partition": 0, "epoch": 1, "parts": PARTS}
        shared |= {"booking": str(booking), "buyer": str(buyer)}
        self.reserved = SeatsReserved(id=f"{booking}.reserved", **shared)
        self.expired = BookingExpired(id=f"{booking}.expired", **shared)

    async def tickets_of_the_booking(self) -> int:
        return await self.database.fetchval(
            "select count(*) from ticketing.tickets where event_id = $1 and booking = $2", self.event.id, self.booking
        )


@asynccontextmanager
async def cancelled(database_url: str) -> AsyncIterator[Case]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=5) as database:
        async with database.acquire() as connection, connection.transaction():
            event = await event_store.insert_event(
                connection, uuid4(), describe(), plan_hall(describe()), own_lane_from_seats=5000, now=NOW
            )
            placing = Placing(uuid4(), event.id, "shared", uuid4(), Request(quantity=2), "key", b"hash", 10)
            await order_store.place(connection, [placing], now=NOW)
            await booking_store.to_pending_payment(connection, [(placing.id, PARTS)], deadline=NOW)
            await booking_store.end(connection, [(placing.id, "cancelled")], State.CANCELLED, now=NOW)
        yield Case(database, event, placing.id, placing.buyer)


async def nobody_has_ended(connection: asyncpg.Connection, bookings: list[UUID]) -> set[UUID]:
    return set()


async def test_a_worker_that_does_not_ask_leaves_tickets_with_a_cancelled_booking(database_url):
    async with cancelled(database_url) as case:
        worker = TicketingWorker(case.database, ended=nobody_has_ended)
        await worker.handle([case.expired])
        await worker.handle([case.reserved])
        assert await case.tickets_of_the_booking() == 2, "the order no longer matters: the tests below prove nothing"


@pytest.mark.parametrize("order", itertools.permutations(["reserved", "expired", "reserved"]), ids="-".join)
@pytest.mark.parametrize("together", [True, False], ids=["one-batch", "one-by-one"])
async def test_a_cancelled_booking_ends_without_tickets_in_any_order(database_url, order, together):
    async with cancelled(database_url) as case:
        worker = TicketingWorker(case.database, ended=ended_bookings)
        messages = [getattr(case, name) for name in order]
        batches = [messages] if together else [[message] for message in messages]
        answers = [answer for batch in batches for answer in await worker.handle(batch)]
        assert await case.tickets_of_the_booking() == 0
        released = [answer for answer in answers if isinstance(answer, SeatsReleased)]
        assert released, "the store is told to offer the seats again"
        assert all(answer.parts == PARTS for answer in released)


async def test_a_release_waits_for_the_reservation_that_is_being_written(database_url):
    """Two processes: one has written the tickets and not committed, the other one gives them back meanwhile."""
    async with cancelled(database_url) as case:
        written, go_on = asyncio.Event(), asyncio.Event()

        async def not_ended_yet(connection: asyncpg.Connection, bookings: list[UUID]) -> set[UUID]:
            written.set()
            await go_on.wait()
            return set()

        reserving = asyncio.create_task(TicketingWorker(case.database, ended=not_ended_yet).handle([case.reserved]))
        await written.wait()
        releasing = asyncio.create_task(TicketingWorker(case.database, ended=ended_bookings).handle([case.expired]))
        async with asyncio.timeout(60):
            while not await case.database.fetchval(
                "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            ):
                await asyncio.sleep(0.01)
        go_on.set()
        await asyncio.gather(reserving, releasing)
        assert await case.tickets_of_the_booking() == 0


async def test_seats_that_postgresql_does_not_have_are_refused_and_none_of_them_is_kept(database_url):
    """The seed never asked how many rows its update had matched: a booking could wait for payment without a seat."""
    async with cancelled(database_url) as case:
        owner = uuid4()
        await case.database.execute(
            "update ticketing.tickets set state = 1, booking = $2 where event_id = $1 and place = 0 and seat = 1",
            case.event.id,
            owner,
        )
        answers = await TicketingWorker(case.database, ended=nobody_has_ended).handle([case.reserved])
        assert [type(answer) for answer in answers] == [TicketsRefused, SeatsReleased]
        assert await case.tickets_of_the_booking() == 0
        assert (
            await case.database.fetchval(
                "select count(*) from ticketing.tickets where event_id = $1 and booking = $2", case.event.id, owner
            )
            == 1
        )
