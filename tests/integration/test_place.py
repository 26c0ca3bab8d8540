"""Writing bookings: one statement a batch, with limits and idempotency as constraints inside it."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg

from aisle.booking import order_store
from aisle.booking.booking import Request, State
from aisle.booking.order_store import Placed, Placing, place
from aisle.booking.store import bookings_of
from tests.patience import PATIENCE_SECONDS

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
_events = itertools.count(1_000_000)  # not those of events that other tests create


def placing(buyer: UUID, key: str, quantity: int = 2, *, event: int, limit: int = 4, body: bytes = b"same") -> Placing:
    return Placing(uuid4(), event, "shared", buyer, Request(quantity=quantity), key, body, limit)


async def seats_counted(connection: asyncpg.Connection, event: int, buyer: UUID) -> int:
    return await connection.fetchval(
        "select seats from booking.purchases where (event_id, buyer) = ($1, $2)", event, buyer
    )


async def test_a_batch_is_written_and_counted(database_url):
    connection = await asyncpg.connect(database_url)
    event, buyers = next(_events), [uuid4() for _ in range(50)]
    placings = [placing(buyer, "k", event=event) for buyer in buyers]
    answers = await place(connection, placings, now=NOW)
    assert [answer.id for answer in answers if answer.new] == [p.id for p in placings]
    found = {booking.id: booking for booking in await bookings_of(connection, [p.id for p in placings])}
    assert {booking.state for booking in found.values()} == {State.PROCESSING}
    assert await seats_counted(connection, event, buyers[0]) == 2
    await connection.close()


async def test_the_same_key_gives_the_same_booking_and_is_counted_once(database_url):
    connection = await asyncpg.connect(database_url)
    event, buyer = next(_events), uuid4()
    [first] = await place(connection, [placing(buyer, "k", event=event)], now=NOW)
    [again] = await place(connection, [placing(buyer, "k", event=event)], now=NOW)
    [other] = await place(connection, [placing(buyer, "k", event=event, body=b"other")], now=NOW)
    assert again.id == first.id
    assert not again.new
    assert (other.id, other.other_request) == (first.id, True)
    assert await seats_counted(connection, event, buyer) == 2
    await connection.close()


async def test_the_limit_holds_and_a_refusal_leaves_nothing_behind(database_url):
    connection = await asyncpg.connect(database_url)
    event, buyer = next(_events), uuid4()
    for n, expected in enumerate([False, False, True, True]):
        [answer] = await place(connection, [placing(buyer, f"k{n}", event=event)], now=NOW)
        assert answer.over_limit == expected
    assert await seats_counted(connection, event, buyer) == 4
    assert await connection.fetchval("select count(*) from booking.bookings where buyer = $1", buyer) == 2
    await connection.close()


async def test_fifty_processes_worth_of_the_same_key_make_one_booking(database_url):
    event, buyer = next(_events), uuid4()
    connections = [await asyncpg.connect(database_url) for _ in range(20)]

    async def placed(connection: asyncpg.Connection) -> list[Placed]:
        try:
            return await place(connection, [placing(buyer, "k", event=event)], now=NOW)
        except asyncpg.UniqueViolationError:  # as `in_one_go` does
            return await place(connection, [placing(buyer, "k", event=event)], now=NOW)

    answers = await asyncio.gather(*map(placed, connections))
    assert len({answer.id for [answer] in answers}) == 1
    assert sum(answer.new for [answer] in answers) == 1
    assert await seats_counted(connections[0], event, buyer) == 2
    for connection in connections:
        await connection.close()


async def test_a_buyer_cannot_pass_the_limit_from_many_devices_at_once(database_url):
    event, buyer = next(_events), uuid4()
    connections = [await asyncpg.connect(database_url) for _ in range(20)]
    answers = await asyncio.gather(
        *(place(c, [placing(buyer, f"k{n}", event=event, quantity=1)], now=NOW) for n, c in enumerate(connections))
    )
    assert sum(answer.new for [answer] in answers) == 4
    assert await seats_counted(connections[0], event, buyer) == 4
    for connection in connections:
        await connection.close()


async def test_batches_of_the_same_buyers_in_any_order_do_not_deadlock(database_url):
    event, buyers = next(_events), [uuid4() for _ in range(40)]
    connections = [await asyncpg.connect(database_url) for _ in range(6)]

    async def many(connection: asyncpg.Connection, order: list[UUID], n: int) -> None:
        for turn in range(5):
            batch = [placing(b, f"{n}.{turn}", event=event, limit=1000) for b in order]
            await place(connection, batch, now=NOW)

    await asyncio.gather(*(many(c, buyers if n % 2 else buyers[::-1], n) for n, c in enumerate(connections)))
    assert await seats_counted(connections[0], event, buyers[0]) == 2 * 5 * 6
    for connection in connections:
        await connection.close()


@asynccontextmanager
async def everybody_has_looked(
    database_url: str, placings: list[Placing]
) -> AsyncIterator[list[asyncio.Task[list[Placed]]]]:
    """Each in a process of its own, held up after its look by somebody who has the row of the buyer's limit."""
    [before] = {(p.event_id, p.buyer) for p in placings}
    holder = await asyncpg.connect(database_url)
    await place(holder, [placing(before[1], "before", 1, event=before[0], limit=placings[0].seats_max)], now=NOW)
    connections = [await asyncpg.connect(database_url) for _ in placings]
    async with holder.transaction():
        await holder.execute("select 1 from booking.purchases where (event_id, buyer) = ($1, $2) for update", *before)
        tasks = [asyncio.create_task(place(c, [p], now=NOW)) for c, p in zip(connections, placings, strict=True)]
        waiting = "select count(*) from pg_stat_activity where pid = any($1::int[]) and wait_event_type = 'Lock'"
        pids = [connection.get_server_pid() for connection in connections]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await holder.fetchval(waiting, pids) < len(placings):
                await asyncio.sleep(0.01)
    try:
        yield tasks
    finally:
        for connection in (holder, *connections):
            await connection.close()


async def test_without_the_constraint_on_keys_the_same_key_makes_many_bookings(database_url):
    event, buyer = next(_events), uuid4()
    owner = await asyncpg.connect(database_url)
    await owner.execute("alter table booking.bookings drop constraint bookings_buyer_idempotency_key_key")
    try:
        twins = [placing(buyer, "k", event=event, limit=100) for _ in range(10)]
        async with everybody_has_looked(database_url, twins) as tasks:
            answers = await asyncio.gather(*tasks)
    finally:
        await owner.execute("delete from booking.bookings where event_id = $1", event)
        await owner.execute("alter table booking.bookings add unique (buyer, idempotency_key)")
        await owner.close()
    assert sum(answer.new for [answer] in answers) == 10, "the race no longer shows: the others prove nothing"


async def test_with_it_one_of_them_is_written_and_nothing_of_the_others(database_url):
    event, buyer = next(_events), uuid4()
    twins = [placing(buyer, "k", event=event, limit=100) for _ in range(10)]
    async with everybody_has_looked(database_url, twins) as tasks:
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        connection = await asyncpg.connect(database_url)
        assert await seats_counted(connection, event, buyer) == 1 + 2
        await connection.close()
    assert Counter(map(type, answers)) == {list: 1, asyncpg.UniqueViolationError: 9}


async def test_a_limit_that_is_not_compared_while_the_row_is_held_is_passed(database_url, monkeypatch):
    event, buyer = next(_events), uuid4()
    owner = await asyncpg.connect(database_url)
    monkeypatch.setattr(
        order_store, "PLACE", order_store.PLACE.replace("where p.seats + excluded.seats <= excluded.seats_max", "")
    )
    rule = await owner.fetchval("select pg_get_constraintdef(oid) from pg_constraint where conname = 'purchases_check'")
    await owner.execute("alter table booking.purchases drop constraint purchases_check")
    try:
        devices = [placing(buyer, f"k{n}", 1, event=event, limit=4) for n in range(10)]
        async with everybody_has_looked(database_url, devices) as tasks:
            answers = await asyncio.gather(*tasks)
        assert await seats_counted(owner, event, buyer) == 11, "the race no longer shows: the others prove nothing"
    finally:
        await owner.execute("delete from booking.purchases where event_id = $1", event)
        await owner.execute(f"alter table booking.purchases add constraint purchases_check {rule}")
        await owner.close()
    assert all(answer.new for [answer] in answers)
