"""Writing bookings: one statement a batch, with limits and idempotency as constraints inside it."""

import asyncio
import itertools
from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg

from aisle.booking.booking import Request, State
from aisle.booking.store import Placed, Placing, bookings_of, place

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
