"""Routes that answer without the framework: over a socket they are told from the others only by their speed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from litestar import Litestar, get, post
from litestar.params import FromPath

from aisle import http_server
from aisle.config import Config
from aisle.envelope import SECURITY_HEADERS, RequestTimes, envelope
from aisle.errors import Problem
from aisle.hot_route import HotRoutes, hot, hot_answer
from aisle.metrics import Metrics
from aisle.problems import exception_answers

LIMIT = 100
ID = UUID("01234567-89ab-7def-8123-456789abcdef")

Talk = Callable[[bytes], Awaitable[bytes]]


class Stage:
    """An application whose hot routes tell what reached them, and wait where they are told to."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.began = asyncio.Event()
        self.metrics = Metrics()

        async def echo(scope: Any, body: bytes) -> tuple[int, bytes]:
            return 202, body

        async def slow(scope: Any, body: bytes) -> tuple[int, bytes]:
            self.began.set()
            await self.gate.wait()
            return 200, b'"slow"'

        async def broken(scope: Any, body: bytes) -> tuple[int, bytes]:
            raise RuntimeError("a secret")

        async def refusing(scope: Any, body: bytes) -> tuple[int, bytes]:
            raise Problem(503, "busy", "come back", retry_after_s=7)

        async def thing(scope: Any, body: bytes) -> tuple[int, bytes]:
            return 200, repr(scope["path_params"]).encode()

        async def documented() -> None: ...
        async def documented_thing(n: FromPath[int]) -> None: ...
        async def documented_name(name: FromPath[UUID]) -> None: ...
        async def cold() -> str:
            return "cold"

        routes: list[Any] = [post("/echo", opt=hot(echo))(documented), get("/cold")(cold)]
        routes += [get(f"/{answer.__name__}", opt=hot(answer))(documented) for answer in (slow, broken, refusing)]
        routes += [get("/things/{n:int}", opt=hot(thing))(documented_thing)]
        routes += [get("/names/{name:uuid}", opt=hot(thing))(documented_name)]

        def around(app: Any) -> Any:
            async def through(scope: Any, receive: Any, send: Any) -> None:
                await (hot_answer(scope) or app)(scope, receive, send)

            return through

        self.app = Litestar(
            routes, middleware=[around], request_max_body_size=LIMIT, exception_handlers=exception_answers()
        )


async def admit_all(scope: Any) -> None: ...


def played(scenario: Callable[[Stage, Talk], Awaitable[None]]) -> None:
    async def run() -> None:
        stage, times = Stage(), RequestTimes(Metrics())
        hot_routes = HotRoutes(stage.app, admit_all)
        server = http_server.http_server(envelope(stage.app, times), Config(port=0), hot_routes, times)
        listener = http_server.listen(Config(port=0))
        serving = asyncio.create_task(server.serve(sockets=[listener]))

        async def talk(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(data)
            try:
                return await asyncio.wait_for(reader.read(), 60)
            finally:
                writer.close()

        try:
            await scenario(stage, talk)
        finally:
            server.should_exit = True
            await serving

    asyncio.run(run())


def request(method: str, path: str, body: bytes = b"", *, last: bool = True, more: str = "") -> bytes:
    close = "connection: close\r\n" if last else ""
    return f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{close}{more}\r\n".encode() + body


def test_an_answer_carries_what_every_answer_carries():
    async def scenario(stage, talk):
        answer = await talk(request("POST", "/echo", b'{"a":1}', more="x-request-id: mine-12345\r\n"))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 202 Accepted\r\n")
        assert body == b'{"a":1}'
        lines = set(head.split(b"\r\n"))
        assert {b"%s: %s" % pair for pair in SECURITY_HEADERS.items()} <= lines
        assert {b"content-type: application/json", b"x-request-id: mine-12345", b"connection: close"} <= lines

    played(scenario)


def test_numbers_and_ids_in_a_path_are_made_of_their_letters():
    async def scenario(stage, talk):
        assert (await talk(request("GET", "/things/17?x=1"))).endswith(b"{'n': 17}")
        assert (await talk(request("GET", f"/names/{ID}"))).endswith(repr({"name": ID}).encode())
        assert b" 404 " in await talk(request("GET", "/things/abc"))

    played(scenario)


@pytest.mark.parametrize("path", ["/%65cho", "/echo/"])
def test_a_path_in_other_letters_goes_the_frameworks_way_to_the_same_answer(path):
    async def scenario(stage, talk):
        answer = await talk(request("POST", path, b'{"a":1}'))
        assert answer.startswith(b"HTTP/1.1 202 ")
        assert answer.endswith(b'{"a":1}')

    played(scenario)


def test_a_client_that_asks_before_it_sends_the_body_is_told_to():
    async def scenario(stage, talk):
        answer = await talk(request("POST", "/echo", b"1", more="expect: 100-continue\r\n"))
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 ")

    played(scenario)


def test_pipelined_requests_are_answered_in_their_order_hot_or_not():
    async def scenario(stage, talk):
        pipelined = [
            request("GET", "/slow", last=False),
            request("POST", "/echo", b"1", last=False),
            request("GET", "/cold", last=False),
            request("POST", "/echo", b"2"),
        ]
        talking = asyncio.create_task(talk(b"".join(pipelined)))
        await stage.began.wait()
        stage.gate.set()
        bodies = [part.partition(b"\r\n\r\n")[2] for part in (await talking).split(b"HTTP/1.1 ")[1:]]
        assert bodies == [b'"slow"', b"1", b"cold", b"2"]

    played(scenario)


def test_a_body_over_the_limit_is_refused_and_the_connection_stays():
    async def scenario(stage, talk):
        large, small = request("POST", "/echo", b"x" * (LIMIT + 1), last=False), request("POST", "/echo", b"1")
        answer = await talk(large + small)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b'"code":"body_too_large"' in answer
        assert answer.endswith(b"\r\n\r\n1")

    played(scenario)


def test_a_body_that_comes_in_pieces_is_put_together():
    async def scenario(stage, talk):
        answer = await talk(
            b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
            b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"
        )
        assert answer.endswith(b"\r\n\r\nabcde")

    played(scenario)


def test_a_refusal_is_a_problem_with_its_headers():
    async def scenario(stage, talk):
        answer = await talk(request("GET", "/refusing"))
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 7\r\n" in answer
        assert b"content-type: application/problem+json\r\n" in answer
        assert b'"code":"busy"' in answer

    played(scenario)


def test_our_mistake_is_a_500_without_its_text_and_ends_the_connection():
    async def scenario(stage, talk):
        answer = await talk(request("GET", "/broken", last=False))
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert b"connection: close\r\n" in answer
        assert b"a secret" not in answer

    played(scenario)


def test_an_old_client_is_answered_and_let_go():
    async def scenario(stage, talk):
        assert (await talk(b"GET /things/3 HTTP/1.0\r\n\r\n")).endswith(b"{'n': 3}")

    played(scenario)


def test_a_client_that_left_hurts_nobody():
    async def scenario(stage, talk):
        talking = asyncio.create_task(talk(request("GET", "/slow")))
        await stage.began.wait()
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        stage.gate.set()
        assert (await talk(request("POST", "/echo", b"1"))).endswith(b"1")

    played(scenario)
