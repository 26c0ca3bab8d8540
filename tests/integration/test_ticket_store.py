"""Events and tickets in PostgreSQL, the last line against a double sale."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg
import pytest

from aisle.limits import TICKETS_PER_COPY
from aisle.ticketing.event import TicketState, plan_hall
from aisle.ticketing.store import insert_event
from aisle.ticketing.ticket_store import SeatRef, analyze_tickets, release, reserve
from tests.unit.test_event import describe

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
HELD = (TicketState.RESERVED,)


async def created(connection: asyncpg.Connection, **changes: object) -> int:
    description = describe(**changes)
    async with connection.transaction():
        event = await insert_event(
            connection, uuid4(), description, plan_hall(description), own_lane_from_seats=5000, now=NOW
        )
    return event.id


def refs(event: int, booking: UUID, *seats: int) -> list[SeatRef]:
    return [SeatRef(event, 0, seat, booking, 3000) for seat in seats]


async def states(connection: asyncpg.Connection, event: int) -> list[tuple[int, UUID | None]]:
    rows = await connection.fetch(
        "select state, booking from ticketing.tickets where event_id = $1 and place = 0 order by seat", event
    )
    return [(row["state"], row["booking"]) for row in rows]


@pytest.mark.parametrize("rows_at_once", [TICKETS_PER_COPY, 7, 11, 44])
async def test_an_event_has_a_row_for_every_seat_however_many_are_written_at_once(
    database_url, rows_at_once, monkeypatch
):
    monkeypatch.setattr("aisle.ticketing.store.TICKETS_PER_COPY", rows_at_once)
    connection = await asyncpg.connect(database_url)
    event = await created(connection)
    counts = await connection.fetch(
        "select place, state, count(*) from ticketing.tickets where event_id = $1 group by 1, 2 order by 1, 2", event
    )
    assert [tuple(row) for row in counts] == [(0, 0, 20), (1, 0, 20), (2, 0, 3), (2, 3, 1)]
    partitions = await connection.fetch(
        "select section, partition from ticketing.sections where event_id = $1 order by rank", event
    )
    assert [tuple(row) for row in partitions] == [("A", 0), ("B", 1)]
    await connection.close()


async def test_fifty_thousand_rows_are_written_in_one_go(database_url):
    connection = await asyncpg.connect(database_url)
    big = [
        {"name": s, "price": 1, "subsections": [{"rows": 25, "seats_per_row": 20, "count": 10}]} for s in "ABCDEFGHIJ"
    ]
    event = await created(connection, sections=big)
    await analyze_tickets(connection)
    row = await connection.fetchrow("select lane, seats from ticketing.events where id = $1", event)
    assert tuple(row) == (str(event), 50_000)
    assert await connection.fetchval("select count(*) from ticketing.tickets where event_id = $1", event) == 50_000
    await connection.close()


async def test_a_seat_is_reserved_for_one_booking_however_often_it_is_asked(database_url):
    connection = await asyncpg.connect(database_url)
    event, first, second = await created(connection), uuid4(), uuid4()
    assert await reserve(connection, refs(event, first, 0, 1)) == {first: 2}
    assert await reserve(connection, refs(event, first, 0, 1)) == {first: 2}, "the same message again"
    assert await reserve(connection, refs(event, second, 1, 2)) == {second: 1}, "one of two: the count tells"
    assert (await states(connection, event))[1] == (1, first)
    await connection.close()


async def test_a_release_frees_only_the_bookings_own_seats(database_url):
    connection = await asyncpg.connect(database_url)
    event, first, second = await created(connection), uuid4(), uuid4()
    await reserve(connection, refs(event, first, 0, 1))
    assert await release(connection, refs(event, second, 0, 1), from_states=HELD) == {}
    assert await release(connection, refs(event, first, 0, 1), from_states=HELD) == {first: 2}
    assert await release(connection, refs(event, first, 0, 1), from_states=HELD) == {}, "once"
    assert (await states(connection, event))[0] == (0, None)
    await connection.close()


async def test_a_late_reserve_does_not_take_back_a_sold_ticket(database_url):
    """Messages overtake each other: paid may come before reserved."""
    connection = await asyncpg.connect(database_url)
    event, booking = await created(connection), uuid4()
    await reserve(connection, refs(event, booking, 0))
    await connection.execute(
        "update ticketing.tickets set state = 2 where event_id = $1 and place = 0 and seat = 0", event
    )
    assert await reserve(connection, refs(event, booking, 0)) == {booking: 1}
    assert (await states(connection, event))[0] == (2, booking)
    await connection.close()


async def test_a_ticket_without_an_owner_cannot_be_reserved_in_the_table(database_url):
    connection = await asyncpg.connect(database_url)
    event = await created(connection)
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute(
            "update ticketing.tickets set state = 1 where event_id = $1 and place = 0 and seat = 0", event
        )
    await connection.close()
