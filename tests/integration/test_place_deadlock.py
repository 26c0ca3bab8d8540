"""Buyers' limits are rows that bookings and cancellations both lock: nobody gets a server error for their meeting."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import asyncpg

from aisle.booking import order_store
from aisle.booking.booking import Request
from aisle.booking.place import Order, Placer, Sale
from aisle.log import open_writer

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
FIRST, SECOND = UUID(int=1), UUID(int=2)
LOCK = "select 1 from booking.purchases where buyer = $1 and event_id = 900_077 for update"


SALE = Sale(900_077, "shared", 1, True, 10, 100, {"A": 0}, "TWD", {("A", 1): (1, 10)})


async def something_left(event: int, request: Request) -> bool:
    return False


def order(buyer: UUID, key: str) -> Order:
    return Order(sale=SALE, request=Request(quantity=2), buyer=buyer, idempotency_key=key)


async def somebody_waits(database: asyncpg.Pool) -> None:
    waiting = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    async with asyncio.timeout(60):
        while not await database.fetchval(waiting):
            await asyncio.sleep(0.01)


async def test_a_batch_that_loses_a_deadlock_is_written_again(database_url, config):
    async with (
        asyncpg.create_pool(database_url, min_size=1, max_size=5) as database,
        open_writer(config.kafka) as writer,
    ):
        placer = Placer(database, writer, something_left, clock=lambda: NOW)
        await asyncio.gather(*(placer.place(order(buyer, "before")) for buyer in (FIRST, SECOND)))
        async with database.acquire() as rival, rival.transaction():
            # The batch, not the rival, looks for a deadlock first, and is given up.
            await rival.execute("set local deadlock_timeout = '60s'")
            await rival.execute(LOCK, SECOND)
            batch = asyncio.gather(*(placer.place(order(buyer, "during")) for buyer in (FIRST, SECOND)))
            await somebody_waits(database)
            await rival.execute(LOCK, FIRST)  # returns when PostgreSQL has given up the batch
        placed = await batch
        rows = await database.fetch(
            "select id from booking.bookings where event_id = 900_077 and idempotency_key = 'during'"
        )
        assert {row["id"] for row in rows} == {booking.id for booking in placed}
        counted = await database.fetch("select seats from booking.purchases where event_id = 900_077")
        assert [row["seats"] for row in counted] == [4, 4]
        await placer.aclose()


async def test_seats_that_stop_counting_are_locked_in_the_order_in_which_bookings_lock_them(database_url):
    """Whoever waits for the first row holds no later one, so nobody who comes in order can be in its way."""
    buyers = [UUID(int=n) for n in range(1, 200)]
    async with asyncpg.create_pool(database_url, min_size=1, max_size=5) as database:
        # Their order in the table is another one.
        insert = "insert into booking.purchases select 900_078, b, 5, 10 from unnest($1::uuid[]) b"
        await database.execute(insert, buyers[::-1])
        await database.execute("analyze booking.purchases")
        counts = [order_store.Count(900_078, buyer, "", 1) for buyer in buyers[::-1]]
        async with database.acquire() as holder, database.acquire() as connection:
            async with holder.transaction():
                await holder.execute(
                    "select 1 from booking.purchases where event_id = 900_078 and buyer = $1 for update", FIRST
                )
                going = asyncio.create_task(order_store.uncount(connection, counts))
                await somebody_waits(database)
                free = await database.fetch(
                    "select buyer from booking.purchases where event_id = 900_078 for update skip locked"
                )
            await going
        assert {row["buyer"] for row in free} == set(buyers) - {FIRST}
        assert await database.fetchval("select sum(seats) from booking.purchases where event_id = 900_078") == 4 * 199
