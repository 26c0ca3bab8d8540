"""What every answer carries and what a bad request gets, from a served Aisle."""

import socket
import time

import httpx
import pytest
from litestar import Litestar

from aisle.envelope import SECURITY_HEADERS, RequestTimes
from aisle.hot_route import HotRoutes
from aisle.limits import HEADER_BYTES_MAX
from aisle.metrics import Metrics
from tests.running import serving


@pytest.fixture(scope="module")
def address(database_url, servers, worker_id):
    from aisle.config import Config

    config = Config(
        database_url=database_url,
        store_url=servers.store_url,
        store_prefix=f"{worker_id}.http:",
        body_bytes_max=1024,
        kafka=servers.kafka,
    )
    with serving(config) as (_, address):
        yield address


def raw(address: str, data: bytes) -> bytes:
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(data)
        chunks = []
        while chunk := connection.recv(65536):
            chunks.append(chunk)
        return b"".join(chunks)


def test_health_routes_answer(address):
    assert httpx.get(f"{address}/livez").json() == {"status": "alive"}
    assert httpx.get(f"{address}/readyz").json() == {"status": "ready"}
    assert set(httpx.get(f"{address}/version").json()) == {"aisle", "python"}
    metrics = httpx.get(f"{address}/metrics")
    assert 'http_server_request_duration_seconds_count{method="GET",route="/livez",status="200"}' in metrics.text


@pytest.mark.parametrize("path", ["/livez", "/docs/api", "/static/api.css", "/nothing/here", "/api/v1/openapi.json"])
def test_every_answer_carries_the_security_headers_and_a_request_id(address, path):
    answer = httpx.get(f"{address}{path}")
    for name in SECURITY_HEADERS:
        assert name.decode() in answer.headers, f"{path} lacks {name.decode()}"
    assert "unsafe-inline" not in answer.headers["content-security-policy"]
    assert len(answer.headers["x-request-id"]) == 32
    assert "server" not in answer.headers


def test_a_request_id_is_echoed_only_if_it_can_be_nothing_else(address):
    kept = httpx.get(f"{address}/livez", headers={"x-request-id": "order-42-retry"})
    assert kept.headers["x-request-id"] == "order-42-retry"
    replaced = httpx.get(f"{address}/livez", headers={"x-request-id": 'x" injected="1'})
    assert len(replaced.headers["x-request-id"]) == 32


def test_openapi_document_is_version_3_1_and_the_page_shows_every_route(address):
    document = httpx.get(f"{address}/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    page = httpx.get(f"{address}/docs/api")
    assert page.headers["content-type"].startswith("text/html")
    for path in document["paths"]:
        assert f"<code>{path}</code>" in page.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nothing", 404, "not_found"), ("POST", "/livez", 405, "method_not_allowed")],
)
def test_errors_are_problem_json_with_a_stable_code(address, method, path, status, code):
    answer = httpx.request(method, f"{address}{path}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"status": status, "code": code, "type": f"urn:aisle:problem:{code}"}.items() <= answer.json().items()


def test_bytes_that_are_not_http_get_a_400_problem(address):
    answer = raw(address, b"\x00\x01 nonsense\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"malformed_request"' in answer


def test_a_head_over_the_limit_is_refused_whole_or_in_pieces(address):
    head = b"GET /livez HTTP/1.1\r\nhost: x\r\n"
    whole = raw(address, head + b"x-big: " + b"a" * HEADER_BYTES_MAX + b"\r\n\r\n")
    assert whole.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"headers_too_large"' in whole
    endless = raw(address, head + b"x-big: " + b"a" * (HEADER_BYTES_MAX + 1))  # no end in sight
    assert endless.startswith(b"HTTP/1.1 431 ")


def test_many_requests_on_one_connection_are_answered_after_each_other(address):
    with httpx.Client() as client:
        assert {client.get(f"{address}/livez").status_code for _ in range(50)} == {200}


def test_a_pipelined_pair_is_answered_twice(address):
    one = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
    last = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    assert raw(address, one + last).count(b"HTTP/1.1 200 OK") == 2


def test_a_request_that_never_ends_is_closed(address, monkeypatch):
    """The limit is 30 s in a served process; here the same class runs with a short one."""
    import asyncio

    from aisle import http_server
    from aisle.config import Config

    monkeypatch.setattr(http_server, "REQUEST_SECONDS_MAX", 0.2)

    async def app(scope, receive, send):
        pytest.fail("half a request must not reach the application")

    async def scenario() -> bytes:
        hot = HotRoutes(Litestar([]), admit=pytest.fail)
        server = http_server.http_server(app, Config(port=0), hot, RequestTimes(Metrics()))
        listener = http_server.listen(Config(port=0))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"POST /x HTTP/1.1\r\nhost: x\r\n")
        answer = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        server.should_exit = True
        await task
        return answer

    started = time.monotonic()
    answer = asyncio.run(scenario())
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - started < 30
