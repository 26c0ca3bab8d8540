"""Clients that mean harm, or come all at once: refused in a moment, without memory, files or patience of the others."""

import asyncio
import gzip
import json
import socket
import time
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from aisle.config import Config
from aisle.http_server import CONNECTIONS_MIN, connections_that_fit
from aisle.limits import SPARE_FILES
from tests.conftest import with_settings
from tests.integration.live_stage import eventually, live_hall, open_streams
from tests.running import PATIENCE_SECONDS, serving

MEGABYTE = 2**20
CONNECTIONS_MAX = 400
STREAMS_MAX = 300
STORM = 1_500


@pytest.fixture(scope="module")
def settings(servers, database_url, worker_id):
    return Config(
        database_url=database_url, store_url=servers.store_url, store_prefix=f"{worker_id}.hostile:",
        kafka=servers.kafka, connections_max=CONNECTIONS_MAX,
    )  # fmt: skip


@pytest.fixture(scope="module")
def server(settings):
    with serving(settings) as (process, address):
        yield psutil.Process(process.pid), address


def dial(address: str) -> socket.socket:
    url = urlsplit(address)
    return socket.create_connection((url.hostname, url.port), timeout=PATIENCE_SECONDS)


def said(client: socket.socket) -> bytes:
    """The head of what comes back; empty if the other end just closed."""
    try:
        return client.recv(65_536)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("path", ["/api/v1/users", "/api/v1/bookings"], ids=["framework", "rush"])
def test_a_hundred_megabytes_are_refused_early_and_never_kept(server, path):
    process, address = server
    before = process.memory_info().rss
    with dial(address) as client:
        client.sendall(
            f"POST {path} HTTP/1.1\r\nhost: {urlsplit(address).netloc}\r\norigin: {address}\r\n"
            f"content-type: application/json\r\ncontent-length: {100 * MEGABYTE}\r\n\r\n".encode()
        )
        client.setblocking(False)
        sent, answer, deadline = 0, b"", time.monotonic() + PATIENCE_SECONDS
        while not answer and sent < 100 * MEGABYTE and time.monotonic() < deadline:
            try:
                answer = client.recv(65_536)
                break
            except BlockingIOError:
                pass
            except ConnectionError:
                break
            try:
                sent += client.send(b"x" * 65_536)
            except BlockingIOError:
                time.sleep(0.001)
            except ConnectionError:
                break
    assert answer.split(b" ", 2)[1] in (b"413", b"401"), (sent, answer[:200])
    assert process.memory_info().rss - before < 30 * MEGABYTE
    assert httpx.get(f"{address}/livez").status_code == 200


@pytest.mark.parametrize("path", ["/api/v1/users", "/api/v1/payments/webhooks/sandbox"])
@pytest.mark.parametrize(
    "body", [b"[" * 60_000, b'{"email":' * 7_000, b"9" * 60_000, b'"' + b"\\u0000" * 10_000], ids=range(4)
)
def test_deep_and_odd_json_is_a_bad_request(server, path, body):
    _, address = server
    answer = httpx.post(
        f"{address}{path}", content=body, headers={"content-type": "application/json", "origin": address}
    )
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_bomb_stays_packed(server):
    process, address = server
    bomb = gzip.compress(json.dumps({"email": "a" * 50 * MEGABYTE}).encode())
    assert len(bomb) < 65_536, "it passes as a body"
    before = process.memory_info().rss
    answer = httpx.post(
        f"{address}/api/v1/users",
        content=bomb,
        headers={"content-type": "application/json", "content-encoding": "gzip", "origin": address},
    )
    assert answer.status_code in (400, 415)
    assert process.memory_info().rss - before < 20 * MEGABYTE


@pytest.mark.parametrize(
    "query", ["limit=1000000", "limit=-1", "limit=1e9", "after=" + "A" * 101, "search=" + "x" * 101]
)
def test_a_page_that_is_too_large_is_not_turned(server, query):
    _, address = server
    assert httpx.get(f"{address}/api/v1/events?{query}").status_code == 400


def test_clients_that_trickle_do_not_keep_others_waiting(server):
    _, address = server
    slow = [dial(address) for _ in range(CONNECTIONS_MAX // 2)]
    try:
        for number, client in enumerate(slow):
            # Half a head, or a whole one and half a body.
            body = b"content-type: application/json\r\ncontent-length: 500\r\n\r\n{" if number % 2 else b"x-a: b"
            client.sendall(b"POST /api/v1/users HTTP/1.1\r\nhost: x\r\n" + body)
        assert {httpx.get(f"{address}/livez", timeout=PATIENCE_SECONDS).status_code for _ in range(20)} == {200}
    finally:
        for client in slow:
            client.close()


def test_more_connections_than_fit_are_told_to_come_back(server):
    process, address = server
    wait_for_room(process)
    crowd = [dial(address) for _ in range(CONNECTIONS_MAX + 50)]
    try:
        refused = [said(client) for client in crowd[-20:]]
        assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in refused), refused[:2]
        assert all(b"retry-after: 1" in answer and b"too_many_connections" in answer for answer in refused)
        crowd[0].sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        assert said(crowd[0]).startswith(b"HTTP/1.1 200 "), "who is in is served"
    finally:
        for client in crowd:
            client.close()
    wait_for_room(process)
    assert httpx.get(f"{address}/livez").status_code == 200


def wait_for_room(process: psutil.Process) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(process.net_connections()) > CONNECTIONS_MAX // 2:
        assert time.monotonic() < deadline, "connections that were closed stay open"
        time.sleep(0.05)


@pytest.mark.parametrize(("files", "room"), [(1_048_576, 25_000), (1_024, 1_024 - SPARE_FILES), (64, CONNECTIONS_MIN)])
def test_connections_leave_files_for_the_servers_we_need(monkeypatch, files, room):
    monkeypatch.setattr("aisle.http_server.resource.getrlimit", lambda _: (files, files))
    assert connections_that_fit(Config()) == room


async def test_a_storm_of_viewers_is_let_in_up_to_the_limit_and_leaves_nothing_behind(settings):
    settings = with_settings(settings, connections_max=25_000, live_connections_max=STREAMS_MAX)
    with serving(settings, roles="live") as (process, address):
        watched = psutil.Process(process.pid)
        async with live_hall(settings) as hall:
            files = watched.num_fds()
            memory = 0
            for _ in range(3):
                statuses = await storm(address, f"/api/v1/events/{hall.event}/updates")
                assert statuses[200] <= STREAMS_MAX
                assert statuses[200] >= STREAMS_MAX // 2
                assert set(statuses) <= {200, 503}
                memory = memory or watched.memory_info().rss

                async def empty() -> bool:
                    return await open_streams(address) == 0

                await eventually(empty)
            assert watched.memory_info().rss - memory < 60 * MEGABYTE, "every storm would cost more"
            assert watched.num_fds() < files + 50


async def storm(address: str, path: str) -> dict[int, int]:
    """Everybody connects at once, hears the first line and goes away again."""
    url = urlsplit(address)
    statuses: dict[int, int] = {}

    async def connect() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        statuses[status] = statuses.get(status, 0) + 1
        assert status == 200 or b"retry-after" in head.lower()
        return writer

    async with asyncio.timeout(PATIENCE_SECONDS * 2):
        writers = await asyncio.gather(*(connect() for _ in range(STORM)))
    for writer in writers:
        writer.transport.abort()
    return statuses
