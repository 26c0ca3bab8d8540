"""Seats as a browser sees them live: what moves in the store arrives in order, without a gap, and ends as the truth."""

import asyncio
import itertools
import random
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest

from aisle.config import Config
from aisle.reservation.claims import Kind, Verb
from aisle.reservation.keys import Place
from aisle.ticketing.event import EventState
from tests.conftest import with_settings
from tests.integration.live_stage import PATIENCE_SECONDS, browsing, eventually, live_hall, open_streams
from tests.running import serving


@pytest.fixture(scope="module")
def settings(servers, database_url, worker_id) -> Config:
    return Config(
        database_url=database_url, store_url=servers.store_url, store_prefix=f"live-{worker_id}:", kafka=servers.kafka
    )


@pytest.fixture(scope="module")
def address(settings):
    with serving(settings, roles="live") as (_, address):
        yield address


@pytest.fixture(scope="module")
def other_address(settings):
    with serving(settings, roles="api") as (_, address):
        yield address


async def test_a_claim_in_the_store_arrives_as_a_delta(settings, address):
    async with live_hall(settings) as hall, browsing(address, f"/events/{hall.event}/updates?seats=true") as browser:
        assert browser.answer.headers["content-type"].startswith("text/event-stream")
        start = await browser.until("snapshot")
        assert start.data["version"] == await hall.version()
        assert browser.seats == await hall.truth()
        assert {s["section"]: (s["available"], s["total"]) for s in start.data["sections"]} == {
            "A": (40, 40),
            "B": (3, 4),
        }
        await hall.claim(hall.place("A", 2), "b1", size=3)
        delta = await browser.until("delta")
        assert delta.data["place"] == "A-2"
        assert delta.data["counts"] == {"available": 17, "reserved": 3, "sold": 0, "unavailable": 0}
        assert browser.seats == await hall.truth()
        assert len(browser.retries) == 1


async def test_every_stream_has_headers_of_its_own(settings, address):
    async with live_hall(settings) as hall:
        path = f"/events/{hall.event}/updates"
        async with browsing(address, path) as one, browsing(address, path) as other:
            assert len(one.answer.headers.get_list("x-request-id")) == 1
            assert len(other.answer.headers.get_list("x-request-id")) == 1
            assert one.answer.headers["x-request-id"] != other.answer.headers["x-request-id"]
            assert other.answer.headers.get_list("cache-control") == ["no-store"]


async def test_whatever_frees_a_seat_shows_too(settings, address):
    async with live_hall(settings) as hall, browsing(address, f"/events/{hall.event}/updates?seats=true") as browser:
        await browser.until("snapshot")
        await hall.claim(hall.place("B", 7), "b1", seats=(2, 3))
        await browser.until_seats(await hall.truth())
        await hall.settle(hall.place("B", 7), "b1", Verb.RELEASE)
        await browser.until_seats(await hall.truth())
        assert browser.seats["B-7"] == [0, 3, 0, 0]


async def test_a_browser_that_comes_back_gets_what_it_missed_and_nothing_else(settings, address):
    async with live_hall(settings) as hall:
        path = f"/events/{hall.event}/updates?seats=true"
        async with browsing(address, path) as browser:
            await browser.until("snapshot")
            await hall.claim(hall.place("A", 1), "b1", size=2)
            await browser.until_seats(await hall.truth())
        await hall.claim(hall.place("A", 1), "b2", size=2)
        await hall.claim(hall.place("A", 2), "b3", size=2)
        async with browsing(address, path, **{"last-event-id": str(browser.last_id)}) as again:
            again.seats, again._versions, again.last_id = browser.seats, browser._versions, browser.last_id
            await again.until_seats(await hall.truth())
            await hall.claim(hall.place("B", 7), "b4", size=1)
            await again.until_seats(await hall.truth())
            assert {told.name for told in again.told} == {"delta"}


@pytest.mark.parametrize("last_id", ["17", "none-of-ours", "9" * 40])
async def test_a_browser_that_cannot_resume_is_told_so_and_starts_anew(settings, address, last_id):
    async with (
        live_hall(settings) as hall,
        browsing(address, f"/events/{hall.event}/updates?seats=true", **{"last-event-id": last_id}) as browser,
    ):
        assert (await browser.next()).name == "reset"
        assert (await browser.next()).name == "snapshot"
        assert browser.seats == await hall.truth()


async def test_the_last_id_of_another_process_does_not_resume(settings, address, other_address):
    """Two processes may have seen two changes in different order under the same version."""
    async with live_hall(settings) as hall:
        path = f"/events/{hall.event}/updates?seats=true"
        async with browsing(address, path) as browser:
            await browser.until("snapshot")
        async with browsing(other_address, path, **{"last-event-id": str(browser.last_id)}) as again:
            assert (await again.next()).name == "reset"


async def test_two_processes_tell_the_same(settings, address, other_address):
    async with live_hall(settings) as hall:
        path = f"/events/{hall.event}/updates?seats=true"
        async with browsing(address, path) as one, browsing(other_address, path) as other:
            await one.until("snapshot")
            await other.until("snapshot")
            for n in range(5):
                await hall.claim(hall.place("A", 1 + n % 2), f"b{n}", size=2)
            truth = await hall.truth()
            await one.until_seats(truth)
            await other.until_seats(truth)


async def test_after_a_random_burst_every_browser_has_the_truth(settings, address):
    chance = random.Random(4)
    async with live_hall(settings) as hall, AsyncExitStack() as stack:
        path = f"/events/{hall.event}/updates?seats=true"
        browsers = [await stack.enter_async_context(browsing(address, path))]
        await browsers[0].until("snapshot")
        booked: list[tuple[Place, str]] = []
        for n in range(150):
            if n in (50, 100):
                browsers.append(await stack.enter_async_context(browsing(address, path)))
            await move_something(hall, booked, chance, f"b{n}")
        truth = await hall.truth()
        assert sum(states.count(0) for states in truth.values()) < 43
        for browser in browsers:
            await browser.until_seats(truth)
            assert [told.name for told in browser.told if told.name != "delta"] == ["snapshot"]


async def move_something(hall, booked: list[tuple[Place, str]], chance: random.Random, id: str) -> None:
    if booked and chance.random() < 0.45:
        place, ended = booked.pop(chance.randrange(len(booked)))
        await hall.settle(place, ended, chance.choice([Verb.RELEASE, Verb.RELEASE, Verb.CONFIRM]))
        return
    place = chance.choice(list(hall.shapes))
    if (await hall.truth())[f"{place.section}-{place.subsection}"].count(0) == 0:
        return
    if chance.random() < 0.2:
        await hall.claim(place, id, size=1, kind=Kind.HOLD, hold_ms=600_000)
    else:
        await hall.claim(place, id, size=1)
        booked.append((place, id))


async def test_a_section_is_told_alone(settings, address):
    async with (
        live_hall(settings) as hall,
        browsing(address, f"/events/{hall.event}/updates?section=B&seats=true") as browser,
    ):
        await browser.until("snapshot")
        assert set(browser.seats) == {"B-7"}
        await hall.claim(hall.place("A", 1), "b1", size=2)
        await hall.claim(hall.place("B", 7), "b2", size=1)
        assert (await browser.next()).data["place"] == "B-7"


async def test_what_is_not_there_is_not_found(settings, address):
    async with live_hall(settings) as hall, live_hall(settings, state=EventState.READY) as hidden:
        for path, code in (
            ("/events/999999999/updates", "not_found"),
            (f"/events/{hidden.event}/updates", "not_found"),
            (f"/events/{hidden.event}/seatmap", "not_found"),
            (f"/events/{hall.event}/updates?section=Z", "unknown_section"),
        ):
            async with browsing(address, path) as browser:
                assert browser.answer.status_code == 404, path
                await browser.answer.aread()
                assert browser.answer.json()["code"] == code


async def test_the_seat_map_is_the_stores_and_answers_not_modified(settings, address):
    async with live_hall(settings) as hall, httpx.AsyncClient(base_url=f"{address}/api/v1", timeout=60) as client:
        path = f"/events/{hall.event}/seatmap"
        await hall.claim(hall.place("A", 1), "b1", size=2)
        first = await client.get(path)
        body = first.json()
        assert body["version"] == await hall.version()
        assert body["places"] == [["A", 1, 2, 10, 2], ["A", 2, 2, 10, 1], ["B", 7, 1, 4, 1]]
        etag = first.headers["etag"]
        assert (await client.get(path, headers={"if-none-match": etag})).status_code == 304
        await hall.claim(hall.place("A", 1), "b2", size=2)

        async def changed() -> bool:
            return (await client.get(path, headers={"if-none-match": etag})).status_code == 200

        await eventually(changed)
        assert (await client.get(path)).json()["version"] == await hall.version()


async def test_a_full_process_says_when_to_come_back(settings):
    with serving(with_settings(settings, live_connections_max=1), roles="live") as (_, address):
        async with live_hall(settings) as hall:
            path = f"/events/{hall.event}/updates"
            async with browsing(address, path) as first, browsing(address, path) as second:
                assert (first.answer.status_code, second.answer.status_code) == (200, 503)
                assert int(second.answer.headers["retry-after"]) > 0

            async def empty() -> bool:
                return await open_streams(address) == 0

            await eventually(empty)


async def test_a_process_that_is_told_to_stop_sends_its_browsers_away_for_a_while(settings):
    with serving(settings, roles="live") as (process, address):
        async with live_hall(settings) as hall:
            async with browsing(address, f"/events/{hall.event}/updates") as browser:
                await browser.until("snapshot")
                process.send_signal(signal.SIGTERM)
                assert await browser.next() is None
                assert len(browser.retries) == 2, "how long to wait comes last"
            assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == 0


BIG = {"sections": [{"name": "A", "price": 1, "subsections": [{"rows": 40, "seats_per_row": 250, "count": 5}]}]}


async def test_a_browser_that_does_not_keep_up_starts_anew_instead_of_missing_something(settings):
    with serving(with_settings(settings, live_queue_messages=1), roles="live") as (_, address):
        async with live_hall(settings, **BIG) as hall, a_slow_reader(address, hall) as client:
            await move_many_seats_until(hall, address, 'aisle_sse_dropped_total{reason="slow"} 1.0')
            text = b""
            async with asyncio.timeout(PATIENCE_SECONDS):
                while b"event: snapshot" not in text.partition(b"event: reset")[2]:
                    text += await asyncio.get_running_loop().sock_recv(client, 65536)
            assert b'{"reason":"slow"}' in text
            ids = [int(found) for found in re.findall(rb"\nid: (\d+)\n", text)]
            assert len(ids) > 2
            assert ids == sorted(set(ids)), "ids strictly increase, across the fresh start too"


async def test_a_browser_that_never_reads_is_cut_off(settings):
    with serving(with_settings(settings, write_stall_seconds=1), roles="live") as (_, address):
        async with live_hall(settings, **BIG) as hall, a_slow_reader(address, hall):
            await move_many_seats_until(hall, address, "aisle_sse_connections 0.0")


@asynccontextmanager
async def a_slow_reader(address: str, hall) -> AsyncIterator[socket.socket]:
    """A client with a tiny buffer that asks for the updates and then reads nothing by itself."""
    host, port = address.removeprefix("http://").split(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, (host, int(port)))
        request = f"GET /api/v1/events/{hall.event}/updates?seats=true HTTP/1.1\r\nhost: x\r\n\r\n"
        await loop.sock_sendall(client, request.encode())

        async def connected() -> bool:
            return await open_streams(address) == 1

        await eventually(connected)
        yield client


async def move_many_seats_until(hall, address: str, line: str) -> None:
    """Every poll finds nearly fifty thousand seats changed, until the buffers on the way are full."""
    many = tuple(range(9_900))
    async with asyncio.timeout(2 * PATIENCE_SECONDS), httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        for n in itertools.count():
            await asyncio.gather(*(hall.claim(place, f"b{n}", seats=many) for place in hall.shapes))
            await asyncio.sleep(0.3)
            await asyncio.gather(*(hall.settle(place, f"b{n}", Verb.RELEASE) for place in hall.shapes))
            await asyncio.sleep(0.3)
            if line in (await client.get(f"{address}/metrics")).text:
                return
