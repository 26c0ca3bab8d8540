"""The store is rebuilt from PostgreSQL and compared with it: what was sold survives the loss of the store."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg

from aisle.booking import order_store
from aisle.booking.booking import Request
from aisle.epochs import rebuild_event
from aisle.reservation.claims import Claim
from aisle.reservation.inventory import Inventory
from aisle.reservation.verify import verify_places
from aisle.store import open_store
from aisle.ticket_facts import facts_of
from aisle.ticketing import store as tickets
from aisle.ticketing import ticket_store
from aisle.ticketing.event import plan_hall
from tests.unit.test_event import describe

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


async def sell_some(database: asyncpg.Pool, inventory: Inventory) -> tuple[int, list[UUID]]:
    """An event with two bookings, alike in PostgreSQL and in the store; the second is sold."""
    description = describe()
    async with database.acquire() as connection:
        async with connection.transaction():
            event = await tickets.insert_event(
                connection, uuid4(), description, plan_hall(description), own_lane_from_seats=5000, now=NOW
            )
        facts = await facts_of(database, event.id)
        await inventory.open([hall.hall for hall in facts.halls], epoch=1)
        place = facts.halls[0].hall.place
        await inventory.switch([place], epoch=1, on_sale=True)
        made = []
        for _ in range(2):
            placing = order_store.Placing(uuid4(), event.id, "shared", uuid4(), Request(quantity=2), "key", b"h", 10)
            await order_store.place(connection, [placing], now=NOW)
            claim = Claim(id=str(placing.id), owner=str(placing.buyer), size=2)
            [outcome] = await inventory.claim(place, [claim], epoch=1)
            seats = [ticket_store.SeatRef(event.id, 0, seat, placing.id, outcome.price) for seat in outcome.seats]
            await ticket_store.reserve(connection, seats)
            made.append(placing.id)
    return event.id, made


async def test_a_flushed_store_is_rebuilt_with_every_booking(config, metrics):
    async with (
        asyncpg.create_pool(config.database_url, min_size=1, max_size=2) as database,
        open_store(config, metrics) as store,
    ):
        inventory = Inventory(store)
        event, made = await sell_some(database, inventory)
        facts = await facts_of(database, event)
        assert [claim.id for claim in facts.halls[0].claims] == [str(id) for id in made]
        assert (await verify_places(store, facts.halls)).findings == []
        for hall in facts.halls:
            await store.call("DEL", *inventory.keys(hall.hall.place))
        assert (await verify_places(store, facts.halls)).findings != []
        await rebuild_event(database, store, event)
        assert (await verify_places(store, (await facts_of(database, event)).halls)).findings == []


async def test_a_seat_that_only_one_of_them_knows_is_found(config, metrics):
    async with (
        asyncpg.create_pool(config.database_url, min_size=1, max_size=2) as database,
        open_store(config, metrics) as store,
    ):
        event, [first, _] = await sell_some(database, Inventory(store))
        await database.execute(
            "update ticketing.tickets set state = 0, booking = null where event_id = $1 and booking = $2", event, first
        )
        findings = (await verify_places(store, (await facts_of(database, event)).halls)).findings
        assert any(str(first) in str(finding) for finding in findings)
