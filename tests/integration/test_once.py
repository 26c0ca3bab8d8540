"""The same Idempotency-Key is the same change and the same answer, on every route that takes one."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from aisle.accounts.account import Role
from aisle.errors import StoreUnavailable
from aisle.once import asked, forget_old_answers, recall, remember
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place
from aisle.ticketing import api as events_api
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.event import EventState
from tests.http_client import connections
from tests.people import a_hall, expect, new_key, refused

HALL = a_hall(("A", 3000, 2, 5))
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def events(stage):
    return stage.fetch("select count(*) from ticketing.events")[0][0]


def test_an_event_is_created_once(stage, seller):
    before, key = events(stage), new_key()
    first = expect(201, seller.post("/events", HALL, key=key))
    assert expect(201, seller.post("/events", HALL, key=key)) == first
    refused(422, "key_reused", seller.post("/events", {**HALL, "name": "Another"}, key=key))
    assert events(stage) == before + 1
    assert expect(201, seller.post("/events", HALL, key=new_key()))["id"] != first["id"]


def test_a_key_belongs_to_whoever_used_it(stage, seller):
    key = new_key()
    first = expect(201, seller.post("/events", HALL, key=key))
    with stage.person("seller") as other:
        assert expect(201, other.post("/events", HALL, key=key))["id"] != first["id"]


def test_a_refusal_is_not_kept(stage, seller):
    key, before = new_key(), events(stage)
    refused(422, "bad_event", seller.post("/events", {**HALL, "time_zone": "Mars/Olympus"}, key=key))
    expect(201, seller.post("/events", HALL, key=key))
    assert events(stage) == before + 1


def test_a_late_repeat_of_open_does_not_undo_a_close(seller):
    event, key = seller.creates(HALL), new_key()
    opened = expect(200, seller.post(f"/events/{event}/open", key=key))
    expect(200, seller.post(f"/events/{event}/close", key=new_key()))
    assert expect(200, seller.post(f"/events/{event}/open", key=key)) == opened
    assert expect(200, seller.get(f"/seller/events/{event}"))["state"] == "closed"
    refused(422, "key_reused", seller.post(f"/events/{event}/close", key=key))


def test_a_sale_is_not_opened_while_the_store_is_in_another_epoch(stage, seller):
    """As a rebuild leaves it that was cut off: nothing is on sale then, and the seller is told to come back."""
    event = seller.creates(HALL)

    def in_epoch(epoch: int) -> None:
        async def move(_, store):
            config = Inventory(store).keys(Place(event, "A", 1))[1]
            await store.call("HSET", config, "epoch", epoch)

        stage.look(move)

    in_epoch(2)
    refused(503, "store_unverified", seller.post(f"/events/{event}/open", key=new_key()))
    assert stage.fetch("select state from ticketing.events where id = $1", event)[0][0] == "ready"
    in_epoch(1)
    assert expect(200, seller.post(f"/events/{event}/open", key=new_key()))["state"] == "on_sale"


def test_a_booking_is_cancelled_once(stage, seller):
    event, key = seller.opens(HALL), new_key()
    with stage.person("buyer") as buyer:
        one, two = (buyer.waits_for(buyer.books(event, 1), "PENDING_PAYMENT")["id"] for _ in range(2))
        cancelled = expect(200, buyer.post(f"/bookings/{one}/cancel", key=key))
        assert expect(200, buyer.post(f"/bookings/{one}/cancel", key=key)) == cancelled
        refused(422, "key_reused", buyer.post(f"/bookings/{two}/cancel", key=key))
        assert buyer.booking(two)["state"] == "PENDING_PAYMENT"
    stage.settle(event)


@pytest.mark.parametrize("key", ["short", "x" * 65, "with spaces here"])
def test_a_key_that_is_none_is_refused(stage, seller, key):
    before = events(stage)
    refused(400, "invalid_request", seller.post("/events", HALL, key=key))
    assert events(stage) == before


async def test_twenty_twins_create_one_event(stage):
    [token] = await stage.tokens(1, role=Role.SELLER)
    key = new_key()
    async with connections(stage.address, 20) as opened:
        answers = await asyncio.gather(*(c.request("POST", "/events", HALL, token=token, key=key) for c in opened))
    assert {answer.status for answer in answers} == {201}
    assert len({answer.json["id"] for answer in answers}) == 1


async def test_without_the_claim_twins_both_make_the_change(database_url):
    """Looking for the answer is not enough: both look before one of them writes. The key's row makes them queue."""
    request = asked(uuid4(), new_key(), "POST /events", 1)
    made = []
    async with asyncpg.create_pool(database_url, min_size=2, max_size=2) as database:
        both_have_looked = asyncio.Barrier(2)

        async def careless():
            found = await database.fetchval("select 1 from public.answers where key = $1", request.key)
            await both_have_looked.wait()
            if not found:
                made.append("careless")

        async def careful():
            async with database.acquire() as connection, connection.transaction():
                if await recall(connection, request, str, now=NOW) is None:
                    await asyncio.sleep(0.05)
                    made.append("careful")
                    await remember(connection, request, "answer")

        await asyncio.gather(careless(), careless())
        await asyncio.gather(careful(), careful())
    assert made == ["careless", "careless", "careful"]


async def test_what_was_rolled_back_is_done_again_and_old_answers_are_forgotten(database_url):
    request = asked(uuid4(), new_key(), "POST /events", 1)
    async with asyncpg.create_pool(database_url, min_size=1, max_size=2) as database:
        async with database.acquire() as connection:
            given_up = connection.transaction()
            await given_up.start()
            assert await recall(connection, request, str, now=NOW) is None
            await given_up.rollback()
            for expected in (None, "answer"):
                async with connection.transaction():
                    assert await recall(connection, request, str, now=NOW) == expected
                    await remember(connection, request, "answer")
        await forget_old_answers(database, now=NOW + timedelta(days=6))
        assert await database.fetchval("select count(*) from public.answers where key = $1", request.key) == 1
        await forget_old_answers(database, now=NOW + timedelta(days=8))
        assert await database.fetchval("select count(*) from public.answers where key = $1", request.key) == 0


async def test_a_sale_that_the_store_did_not_open_is_not_open(stage, seller):
    """The store answers 503 while the sale is opened: the event stays ready, and the same key opens it later."""
    event = await asyncio.to_thread(seller.creates, HALL)

    async def away(listing, on_sale):
        raise StoreUnavailable("the store is away")

    async with stage.behind() as (database, store):
        desk = events_api.EventDesk(
            database, Catalogue(database, store), None, lambda: NOW, 5000, None, None, away, None
        )
        row = await database.fetchrow("select seller from ticketing.events where id = $1", event)
        request = asked(row["seller"], new_key(), f"POST /events/{event}/open")
        with pytest.raises(StoreUnavailable):
            await events_api._switch(desk, event, request, EventState.ON_SALE)
        assert await database.fetchval("select state from ticketing.events where id = $1", event) == "ready"

        async def back(listing, on_sale):
            assert on_sale

        opened = await events_api._switch(replace(desk, switch=back), event, request, EventState.ON_SALE)
        assert msgspec.structs.asdict(opened)["state"] == "on_sale"
