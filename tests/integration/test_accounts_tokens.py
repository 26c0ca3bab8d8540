"""Bearer tokens of programs: made, used, listed, revoked; and what a stolen or foreign one cannot do."""

import asyncio
from datetime import UTC, datetime

import asyncpg
import pytest

from aisle.accounts.store import TOKENS_PER_ACCOUNT_MAX, AccountsStore
from aisle.config import Config
from aisle.embedded.server import free_port
from aisle.errors import Problem
from tests.integration.desks import Clock, account_in, opened_desk
from tests.integration.visitors import GOOD_PASSWORD, Visitor, new_email, visiting_settings
from tests.running import serving


@pytest.fixture(scope="module")
def settings(database_url, servers, worker_id):
    return visiting_settings(servers, database_url, f"{worker_id}.bearer:")


@pytest.fixture(scope="module")
def address(settings):
    with serving(settings) as (_, address):
        yield address


@pytest.fixture
def program(address):
    """Somebody registered, and nothing but e-mail and password to begin with."""
    with Visitor(address) as visitor:
        visitor.email = new_email()
        visitor.register(visitor.email)
        yield visitor


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def make(program: Visitor, **more: object) -> str:
    body = {"name": "box office", "email": program.email, "password": GOOD_PASSWORD, **more}
    answer = program.post("/tokens", body)
    assert answer.status_code == 201, answer.text
    return answer.json()["token"]


def digests(settings: Config) -> list[bytes]:
    async def read() -> list[bytes]:
        connection = await asyncpg.connect(settings.database_url)
        try:
            return [row["digest"] for row in await connection.fetch("select digest from accounts.tokens")]
        finally:
            await connection.close()

    return asyncio.run(read())


def test_a_program_with_a_token_is_who_made_it_and_needs_no_origin(program, settings):
    text = make(program)
    answer = program.send("GET", "/me", headers=bearer(text))
    assert answer.json()["email"] == program.email
    unsafe = program.send("DELETE", "/sessions", headers={**bearer(text), "origin": "https://elsewhere.example"})
    assert unsafe.status_code == 204
    assert bytes.fromhex(program.session_digest(text)) in digests(settings), "kept, and only as a digest"


def test_a_revoked_token_is_over_at_once_and_listed_no_more(program, settings):
    text = make(program)
    [listed] = program.send("GET", "/tokens", headers=bearer(text)).json()["items"]
    assert set(listed) == {"id", "name", "created_at", "expires_at"}
    assert program.send("DELETE", f"/tokens/{listed['id']}", headers=bearer(text)).status_code == 204
    assert program.send("GET", "/me", headers=bearer(text)).status_code == 401
    assert bytes.fromhex(program.session_digest(text)) not in digests(settings)


def test_nobody_revokes_or_sees_the_token_of_another(program, address):
    text = make(program)
    [listed] = program.send("GET", "/tokens", headers=bearer(text)).json()["items"]
    with Visitor(address) as other:
        email = new_email()
        other.register(email)
        other.log_in(email)
        foreign = other.delete(f"/tokens/{listed['id']}")
        assert (foreign.status_code, foreign.json()["code"]) == (404, "not_found")
        assert other.get("/tokens").json() == {"items": []}
    assert program.send("GET", "/me", headers=bearer(text)).status_code == 200


def test_a_token_cannot_make_another_but_a_session_can(program):
    text = make(program)
    refused = program.send("POST", "/tokens", json={"name": "heir"}, headers=bearer(text))
    assert (refused.status_code, refused.json()["code"]) == (403, "session_required")
    program.log_in(program.email)
    assert program.post("/tokens", {"name": "heir"}).status_code == 201


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid_request"),
        ({"name": ""}, 400, "invalid_request"),
        ({"name": "x\u0000"}, 400, "invalid_request"),
        ({"name": "x", "days": 0}, 400, "invalid_request"),
        ({"name": "x", "days": 366}, 400, "invalid_request"),
        ({"name": "x", "role": "operator"}, 400, "invalid_request"),
        ({"name": "x"}, 401, "not_logged_in"),
        ({"name": "x", "email": "a@example.com"}, 422, "incomplete_credentials"),
        ({"name": "x", "email": "a@example.com", "password": "long but wrong"}, 401, "wrong_credentials"),
    ],
)
def test_a_token_is_not_made_from_nothing(address, settings, body, status, code):
    before = digests(settings)
    with Visitor(address) as nobody:
        answer = nobody.post("/tokens", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert digests(settings) == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-1],
        lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"),
        lambda text: text + "A",
        lambda text: "s" + text[1:],
        lambda text: "x",
        lambda text: "\u00e9" * 10,
    ],
)
def test_a_spoiled_token_is_refused_even_beside_a_good_cookie(program, spoil):
    program.log_in(program.email)
    header = f"Bearer {spoil(make(program))}".encode()
    answer = program.send("GET", "/me", headers={"authorization": header})
    assert (answer.status_code, answer.json()["code"]) == (401, "not_logged_in")


def test_a_token_in_the_cookie_and_a_session_in_the_header_are_refused(program):
    text = make(program)
    assert program.get("/me", cookie=text).status_code == 401
    program.log_in(program.email)
    assert program.send("GET", "/me", headers=bearer(program.cookie)).status_code == 401
    assert program.send("GET", "/me", headers={"authorization": f"Basic {text}"}).status_code == 401


async def test_a_token_ends_with_its_days_and_makes_room_for_another(config):
    clock = Clock()
    async with opened_desk(config, clock) as desk:
        account_id = await account_in(desk)
        made = [await desk.bearers.issue(account_id, "short", 1) for _ in range(TOKENS_PER_ACCOUNT_MAX)]
        with pytest.raises(Problem, match="at most"):
            await desk.bearers.issue(account_id, "one too many", 1)
        assert await desk.bearers.find(made[0].text.encode()) is not None
        clock.now += 86_400
        assert await desk.bearers.find(made[0].text.encode()) is None
        assert await desk.bearers.live(account_id) == []
        await desk.bearers.issue(account_id, "next day", 1)
        assert [token.name for token in await desk.bearers.live(account_id)] == ["next day"]


async def test_two_requests_cannot_both_take_the_last_place_for_a_token(config):
    async with opened_desk(config) as desk:
        account_id = await account_in(desk)
        attempts = [desk.bearers.issue(account_id, f"n{n}", 1) for n in range(TOKENS_PER_ACCOUNT_MAX + 10)]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(isinstance(o, Problem) and o.code == "too_many_tokens" for o in outcomes) == 10
        assert len(await desk.bearers.live(account_id)) == TOKENS_PER_ACCOUNT_MAX


async def test_without_the_database_a_token_is_neither_good_nor_bad_but_unavailable():
    nowhere = f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"
    pool = await asyncpg.create_pool(nowhere, min_size=0, max_size=1, ssl=False)
    try:
        with pytest.raises(Problem) as refusal:
            await AccountsStore(pool).find_bearers([b"x" * 32], datetime.now(UTC))
        assert (refusal.value.status, refusal.value.code) == (503, "database_unavailable")
        assert refusal.value.retry_after_s
    finally:
        await pool.close()
