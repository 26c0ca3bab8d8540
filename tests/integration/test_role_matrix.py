"""Every route with every kind of caller, against the one table. A route without a row fails here."""

import asyncio
from uuid import uuid4

import httpx
import pytest
from litestar import Litestar, asgi, get
from litestar.di import Provide
from litestar.types import Receive, Scope, Send

from aisle.accounts.access import (
    ACCESS,
    ANONYMOUS,
    ANYONE_LOGGED_IN,
    NOBODY,
    PUBLIC,
    Access,
    CurrentActor,
    actor_in,
    actor_of,
)
from aisle.accounts.account import Role
from aisle.envelope import SECURITY_HEADERS
from aisle.problems import exception_answers
from tests.integration.desks import account_in, opened_desk
from tests.integration.visitors import COOKIE
from tests.running import serving

OUTSIDE_THE_DOCUMENT = ("/static/", "/docs/", "/api/v1/openapi.json")
# Pages for people; what they may be shown is tested in tests/browser.
PAGES = {"/", "/events/{event_id}", "/login", "/register", "/cart", "/account", "/bookings", "/bookings/{booking_id}"}
PAGES |= {"/seller", "/seller/new", "/seller/events/{event_id}", "/door", "/door-worker.js", "/ops", "/ops/store"}
CALLERS = [ANONYMOUS, *Role]
HARDENED = [name.decode() for name in SECURITY_HEADERS]


async def headers_for(desk, caller: str, origin: str = "http://aisle.test") -> dict[str, str]:
    """A fresh session for each request, since some requests end it."""
    own = {"origin": origin}
    if caller == ANONYMOUS:
        return own
    role = Role(caller)
    return {**own, "cookie": f"{COOKIE}={await desk.sessions.open(await account_in(desk, role), role)}"}


def concrete(path: str, operation: dict) -> str:
    """The path with ids of the right kind in it; that nothing has them does not matter here."""
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            schema = parameter["schema"]
            sample = str(uuid4()) if schema.get("format") == "uuid" else "1" if schema["type"] == "integer" else "A"
            path = path.replace(f"{{{parameter['name']}}}", sample)
    return path.replace("{file_path}", "api.css").replace("{path}", "x")


def expected(callers: frozenset[str], caller: str) -> set[int]:
    if not callers:
        return {403}
    if caller in callers:
        return set(range(200, 600)) - {401, 403}
    return {401} if caller == ANONYMOUS else {403}


def documented(address: str) -> dict[tuple[str, str], dict]:
    paths = httpx.get(f"{address}/api/v1/openapi.json").json()["paths"]
    return {(method.upper(), path): operation for path, ways in paths.items() for method, operation in ways.items()}


def test_every_route_answers_every_caller_as_the_table_says(config):
    with serving(config) as (_, address):
        routes = documented(address)
        assert set(routes) <= set(ACCESS), f"routes without a row: {sorted(set(routes) - set(ACCESS))}"
        left = {
            row
            for row in set(ACCESS) - set(routes)
            if not row[1].startswith(OUTSIDE_THE_DOCUMENT) and row[1] not in PAGES
        }
        assert not left, f"rows without a route: {sorted(left)}"
        assert asyncio.run(wrong_answers(config, address, routes)) == []


async def wrong_answers(config, address, routes) -> list[tuple[str, str, str, int]]:
    """Sessions are made here, in another process than the one that is asked: they share keys and store."""
    wrong = []
    async with opened_desk(config) as desk, httpx.AsyncClient(base_url=address, timeout=60) as client:
        for (method, path), callers in sorted(ACCESS.items()):
            url = concrete(path, routes.get((method, path), {}))
            for caller in CALLERS:
                headers = await headers_for(desk, caller, origin=address)
                body = {} if method in ("POST", "PUT", "PATCH") else None
                # Only the head of the answer is read: a stream of updates has no end.
                async with client.stream(method, url, headers=headers, json=body) as answer:
                    if answer.status_code not in expected(callers, caller):
                        wrong.append((method, path, caller, answer.status_code))
                    wrong += [(method, path, caller, name) for name in HARDENED if name not in answer.headers]
                    personal = callers and ANONYMOUS not in callers
                    if personal and answer.headers["cache-control"] != "no-store":
                        wrong.append((method, path, caller, "may be kept by a cache"))
    return wrong


def test_the_table_has_more_than_open_doors():
    """Without closed rows the walk above could not fail."""
    assert ANYONE_LOGGED_IN in ACCESS.values()
    assert PUBLIC in ACCESS.values()
    assert NOBODY in ACCESS.values()


@pytest.fixture
def careless_app():
    """An application whose author forgot the rows of some routes, and gave one to an `@asgi` handler."""

    @get("/forgotten", sync_to_thread=False)
    def forgotten() -> str:
        return "secret"

    @asgi("/forgotten_raw", copy_scope=False)
    async def forgotten_raw(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"secret"})

    @asgi("/raw", copy_scope=False)
    async def raw(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(actor_in(scope).account_id).encode()})

    @get("/typed", sync_to_thread=False)
    def typed(actor: CurrentActor) -> str:
        return str(actor.account_id)

    sellers = frozenset({Role.SELLER})
    table = {("GET", "/raw"): sellers, ("GET", "/typed"): sellers}

    def build(desk) -> Litestar:
        return Litestar(
            [forgotten, forgotten_raw, raw, typed],
            middleware=[Access(desk, table).around],
            dependencies={"actor": Provide(actor_of, sync_to_thread=False)},
            exception_handlers=exception_answers(),
            openapi_config=None,
        )

    return build


async def test_a_route_without_a_row_is_closed_to_everybody_even_to_operators(config, careless_app):
    async with opened_desk(config) as desk:
        transport = httpx.ASGITransport(careless_app(desk))
        async with httpx.AsyncClient(transport=transport, base_url="http://aisle.test") as client:
            for path in ("/forgotten", "/forgotten_raw"):
                for caller in CALLERS:
                    answer = await client.get(path, headers=await headers_for(desk, caller))
                    assert (answer.status_code, "secret" in answer.text) == (403, False), (path, caller)


@pytest.mark.parametrize("path", ["/raw", "/typed"])
async def test_a_handler_behind_a_role_gets_the_actor(config, careless_app, path):
    async with opened_desk(config) as desk:
        transport = httpx.ASGITransport(careless_app(desk))
        async with httpx.AsyncClient(transport=transport, base_url="http://aisle.test") as client:
            account_id = await account_in(desk, Role.SELLER)
            session = await desk.sessions.open(account_id, Role.SELLER)
            answer = await client.get(path, headers={"cookie": f"{COOKIE}={session}"})
            assert (answer.status_code, answer.text.strip('"')) == (200, str(account_id))
            assert (await client.get(path)).status_code == 401
            buyer = await headers_for(desk, Role.BUYER)
            assert (await client.get(path, headers=buyer)).status_code == 403
            post = await client.post(path, headers={**buyer, "content-type": "application/json"})
            assert post.status_code in (403, 405), "a method without a row"


async def test_the_callers_of_a_request_do_not_see_each_other(config, careless_app):
    """A burst of sellers on one process: each is told its own account."""
    async with opened_desk(config) as desk:
        accounts = [await account_in(desk, Role.SELLER) for _ in range(10)]
        sessions = [await desk.sessions.open(account, Role.SELLER) for account in accounts]
        transport = httpx.ASGITransport(careless_app(desk))
        async with httpx.AsyncClient(transport=transport, base_url="http://aisle.test") as client:
            answers = await asyncio.gather(
                *(client.get("/raw", headers={"cookie": f"{COOKIE}={s}"}) for s in sessions * 5)
            )
        assert [answer.text for answer in answers] == [str(account) for account in accounts * 5]
