"""A buyer's bookings live: every change of state arrives, only at its buyer's browsers, whatever connection is lost."""

import asyncio
import itertools
import os
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from aisle.booking import order_store
from aisle.booking import store as booking_store
from aisle.booking.booking import Request, State
from aisle.config import Config
from tests.brokers import penstock
from tests.integration.live_stage import PATIENCE_SECONDS, Browser, browsing, own_database
from tests.integration.visitors import ADDRESS_LIMITS_OFF, COOKIE, Visitor, new_email
from tests.running import serving, wait_until

UPDATES = "/bookings/updates"
HALL = {
    "name": "Night Train",
    "starts_at": "2027-12-31T20:00:00+08:00",
    "currency": "TWD",
    "seats_per_buyer": 10,
    "sections": [{"name": "A", "price": 3000, "subsections": [{"rows": 4, "seats_per_row": 25}]}],
}

_keys = itertools.count()


@pytest.fixture(scope="module")
def settings(servers, worker_id, tmp_path_factory):
    name = f"live_{worker_id}_{os.getpid()}"
    folder = tmp_path_factory.mktemp("broker") / "data"
    with own_database(servers, name) as url, penstock(folder, servers.store_url, f"live-{worker_id}") as kafka:
        yield Config(
            database_url=url,
            store_url=servers.store_url,
            store_prefix=f"{name}:",
            kafka=kafka,
            live_recheck_seconds=0.2,
            **ADDRESS_LIMITS_OFF,
        )


@pytest.fixture(scope="module")
def address(settings):
    with serving(settings, roles="api,booking,reservation,ticketing") as (_, address):
        yield address


@pytest.fixture(scope="module")
def event(address) -> int:
    with visitor(address, "seller") as seller:
        id = seller.post("/events", HALL).json()["id"]
        wait_until(lambda: seller.post(f"/events/{id}/open", {}).status_code == 200, "the sale is open")
        return id


@pytest.fixture
def ana(address):
    with visitor(address, "buyer") as ana:
        yield ana


@pytest.fixture
def ben(address):
    with visitor(address, "buyer") as ben:
        yield ben


def visitor(address: str, role: str) -> Visitor:
    person, email = Visitor(address), new_email()
    assert person.register(email, role=role).status_code == 201
    assert person.log_in(email).status_code in (200, 201)
    return person


def watching(address: str, who: Visitor, **headers: str):
    return browsing(address, UPDATES, cookie=f"{COOKIE}={who.cookie}", **headers)


async def book(who: Visitor, event: int, quantity: int = 2) -> str:
    headers = {"idempotency-key": f"live-key-{next(_keys)}"}
    order = {"event_id": event, "quantity": quantity}
    answer = await asyncio.to_thread(who.send, "POST", "/bookings", json=order, headers=headers)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


async def states_until(browser: Browser, booking: str, last: str) -> list[str]:
    """The states of a booking as they were told, up to `last`."""
    states: list[str] = []
    while not states or states[-1] != last:
        told = await browser.next()
        assert told is not None, f"the stream ended after {states}"
        for item in told.data["bookings"] if told.name == "snapshot" else [told.data]:
            if item.get("id") == booking:
                states.append(item["state"])
    return states


async def test_a_buyer_sees_the_seats_come_and_nobody_else_does(address, event, ana, ben):
    async with watching(address, ana) as anas, watching(address, ben) as bens:
        assert (await anas.next()).data == {"bookings": []}
        assert (await bens.next()).data == {"bookings": []}
        booking = await book(ana, event)
        pending = await anas.until("booking")
        assert (pending.data["id"], pending.data["state"]) == (booking, "PENDING_PAYMENT")
        shown = await asyncio.to_thread(ana.get, f"/bookings/{booking}")
        assert pending.data == shown.json(), "what is told is what the booking's own page says"
        await asyncio.to_thread(ana.post, f"/bookings/{booking}/cancel", {})
        assert (await anas.until("booking")).data["state"] == "CANCELLED"
        # Only what happens to Ben reaches Ben.
        own = await book(ben, event)
        assert (await bens.next()).data["id"] == own
        assert [told.data["id"] for told in bens.told if told.name == "booking"] == [own]


async def test_a_buyer_starts_from_what_the_bookings_are(address, event, ana):
    booking = await book(ana, event)
    async with watching(address, ana) as browser:
        assert (await states_until(browser, booking, "PENDING_PAYMENT"))[0] in ("PROCESSING", "PENDING_PAYMENT")
    async with watching(address, ana, **{"last-event-id": str(browser.last_id)}) as again:
        assert (await again.next()).name == "reset", "what happened meanwhile is told by what is"
        snapshot = await again.next()
        assert [b["state"] for b in snapshot.data["bookings"]] == ["PENDING_PAYMENT"]
        assert snapshot.id > browser.last_id


async def test_two_browsers_of_one_buyer_are_told_the_same(address, event, ana):
    async with watching(address, ana) as one, watching(address, ana) as other:
        booking = await book(ana, event)
        for browser in (one, other):
            await states_until(browser, booking, "PENDING_PAYMENT")


async def test_strangers_and_sellers_get_no_stream(address):
    with visitor(address, "seller") as seller:
        async with browsing(address, UPDATES) as anonymous, watching(address, seller) as foreign:
            assert (anonymous.answer.status_code, foreign.answer.status_code) == (401, 403)


async def test_a_program_watches_with_its_token_until_it_is_revoked(address, event, ana):
    made = (await asyncio.to_thread(ana.post, "/tokens", {"name": "watcher"})).json()
    async with browsing(address, UPDATES, authorization=f"Bearer {made['token']}") as browser:
        booking = await book(ana, event)
        await states_until(browser, booking, "PENDING_PAYMENT")
        revoked = await asyncio.to_thread(ana.delete, f"/tokens/{made['id']}")
        assert revoked.status_code == 204
        assert await browser.next() is None


async def test_a_stream_ends_with_its_session(address, ana):
    async with watching(address, ana) as browser:
        await browser.until("snapshot")
        await asyncio.to_thread(ana.delete, "/sessions/current")
        assert await browser.next() is None


async def test_to_watch_does_not_keep_an_idle_session_alive(settings, ana):
    """The stream's session is looked at many times; its time to live only ever shrinks."""
    with serving(Config(**{**as_dict(settings), "session_idle_seconds": 3}), roles="live") as (_, own):
        async with watching(own, ana) as browser:
            await browser.until("snapshot")
            assert await browser.next() is None, "the idle time is over, though the browser is still connected"


def as_dict(config: Config) -> dict[str, object]:
    return {name: getattr(config, name) for name in Config.__struct_fields__}


async def test_an_account_has_ten_streams_at_most(address, ana):
    async with AsyncExitStack() as stack:
        for _ in range(10):
            stream = await stack.enter_async_context(watching(address, ana))
            assert stream.answer.status_code == 200
        async with watching(address, ana) as surplus:
            assert surplus.answer.status_code == 429
            assert int(surplus.answer.headers["retry-after"]) > 0


async def test_nothing_is_lost_with_the_connection_that_listens(settings, address, event, ana):
    database = await asyncpg.connect(settings.database_url)
    try:
        async with watching(address, ana) as browser:
            booking = await book(ana, event)
            await states_until(browser, booking, "PENDING_PAYMENT")
            killed = await database.fetch(
                """select pg_terminate_backend(pid) from pg_stat_activity
                   where application_name = 'aisle live' and datname = current_database()"""
            )
            assert len(killed) >= 1
            async with database.transaction():
                await booking_store.end(database, [(UUID(booking), "expired")], State.CANCELLED, now=datetime.now(UTC))
            assert (await states_until(browser, booking, "CANCELLED"))[-1] == "CANCELLED"
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not any(told.name == "reset" for told in browser.told):
                    assert await browser.next() is not None
            [why] = [told.data["reason"] for told in browser.told if told.name == "reset"]
            assert why == "connection_lost"
            later = await book(ana, event)
            await states_until(browser, later, "PENDING_PAYMENT")
    finally:
        await database.close()


async def test_a_batch_larger_than_a_notification_is_heard_whole(settings, address, event, ana):
    """A notification carries less than 8,000 bytes, which is a hundred bookings; a batch has up to five hundred."""
    buyer = UUID((await asyncio.to_thread(ana.get, "/me")).json()["id"])
    now = datetime.now(UTC)
    database = await asyncpg.connect(settings.database_url)
    ids = [UUID(int=buyer.int ^ n) for n in range(1, 251)]
    try:
        for id in ids:
            placing = order_store.Placing(
                id, event, "no-such-lane", buyer, Request(quantity=1), str(id), b"h", seats_max=1000
            )
            assert (await order_store.place(database, [placing], now=now))[0].new
        async with watching(address, ana) as browser:
            await browser.until("snapshot")
            async with database.transaction():
                await booking_store.end(database, [(id, "sold_out") for id in ids], State.FAILED, now=now)
            failed: set[str] = set()
            while len(failed) < len(ids):
                told = await browser.until("booking")
                assert told.data["state"] == "FAILED"
                failed.add(told.data["id"])
            assert failed == {str(id) for id in ids}
    finally:
        await database.close()


async def test_what_is_rolled_back_is_not_told(settings, address, event, ana):
    database = await asyncpg.connect(settings.database_url)
    try:
        async with watching(address, ana) as browser:
            booking = await book(ana, event)
            await states_until(browser, booking, "PENDING_PAYMENT")
            undone = database.transaction()
            await undone.start()
            await booking_store.end(database, [(UUID(booking), "expired")], State.CANCELLED, now=datetime.now(UTC))
            await undone.rollback()
            later = await book(ana, event)
            await states_until(browser, later, "PENDING_PAYMENT")
            assert {told.data["state"] for told in browser.told if told.name == "booking"} == {"PENDING_PAYMENT"}
    finally:
        await database.close()
