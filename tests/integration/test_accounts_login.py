"""Register, log in, log out, seen from outside: a served Aisle, a real database and a real store."""

import asyncio
import hashlib

import asyncpg
import httpx
import pytest

from aisle.accounts import passwords
from tests.integration.visitors import GOOD_PASSWORD, Visitor, keys_in_store, new_email, visiting_settings
from tests.running import serving


@pytest.fixture(scope="module")
def settings(database_url, servers, worker_id):
    return visiting_settings(servers, database_url, f"{worker_id}.login:")


@pytest.fixture(scope="module")
def address(settings):
    with serving(settings) as (_, address):
        yield address


@pytest.fixture
def visitor(address):
    with Visitor(address) as visitor:
        yield visitor


async def rows(url: str, statement: str, *values: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(statement, *values)
    finally:
        await connection.close()


def account_rows(settings, email):
    return asyncio.run(rows(settings.database_url, "select * from accounts.accounts where email = $1", email))


def test_a_registered_account_lies_in_the_database_with_an_argon2id_hash_of_the_promised_cost(visitor, settings):
    email = new_email()
    answer = visitor.register(email, role="seller")
    assert answer.status_code == 201
    assert set(answer.json()) == {"id", "email", "role", "created_at"}
    [row] = account_rows(settings, email)
    assert (str(row["id"]), row["role"]) == (answer.json()["id"], "seller")
    assert row["password_hash"].startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert GOOD_PASSWORD not in row["password_hash"]


@pytest.mark.parametrize("role", ["operator", "door", "admin", "", None])
def test_nobody_registers_as_staff(visitor, settings, role):
    email = new_email()
    answer = visitor.post("/users", {"email": email, "password": GOOD_PASSWORD, "role": role})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert account_rows(settings, email) == []


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"email": "not an address"}, 422, "invalid_email"),
        ({"email": "a@b"}, 422, "invalid_email"),
        ({"email": "a@b.example\x00"}, 422, "invalid_email"),
        ({"password": "short77"}, 422, "weak_password"),
        ({"password": "x1" * 65}, 422, "weak_password"),
        ({"password": "Password123"}, 422, "weak_password"),
        ({"password": "        "}, 422, "weak_password"),
        ({"password": ""}, 400, "invalid_request"),
        ({"password": None}, 400, "invalid_request"),
        ({"email": "a" * 255 + "@example.com"}, 400, "invalid_request"),
        ({"id": "00000000-0000-0000-0000-000000000000"}, 400, "invalid_request"),
        ({"password_hash": "$argon2id$x"}, 400, "invalid_request"),
    ],
)
def test_a_bad_registration_gets_a_precise_code_and_leaves_no_row(visitor, settings, change, status, code):
    body = {"email": new_email(), "password": GOOD_PASSWORD, "role": "buyer", **change}
    before = asyncio.run(rows(settings.database_url, "select count(*) from accounts.accounts"))
    answer = visitor.post("/users", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert asyncio.run(rows(settings.database_url, "select count(*) from accounts.accounts")) == before


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"email": "\xff@example.com", "password": "long enough"}',
        b'{"email": "\\ud800@example.com", "password": "long enough"}',
        b'{"email": "a@example.com", "password": "\\udfff\\udfff\\udfff\\udfff"}',
        b'{"email": "a@example.com", "password": 12345678}',
        b'{"email": ["a@example.com"], "password": "long enough"}',
        b'{"email": "a@example.com", "password": "long enough", "role": "operator"}',
        b'{"a":' * 5000,
    ],
    ids=range(11),
)
def test_a_body_that_is_no_log_in_gets_a_400_and_no_cookie(visitor, body):
    answer = visitor.send("POST", "/sessions", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert "set-cookie" not in answer.headers


def test_an_oversize_body_is_refused_before_it_is_read_whole(visitor, settings):
    body = b'{"email": "a@example.com", "password": "' + b"x" * settings.body_bytes_max + b'"}'
    answer = visitor.send("POST", "/sessions", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_control_characters_in_a_log_in_are_just_wrong(visitor):
    answer = visitor.log_in("a\x00b@example.com", password="nul \x00 inside")
    assert (answer.status_code, answer.json()["code"]) == (401, "wrong_credentials")


def test_an_address_is_one_account_however_its_letters_are_written(visitor, settings):
    email = new_email()
    assert visitor.register(email).status_code == 201
    again = visitor.register(f"  {email.upper()} ")
    assert (again.status_code, again.json()["code"]) == (409, "email_taken")
    assert len(account_rows(settings, email)) == 1
    assert visitor.log_in(email.title()).status_code == 201


def test_the_cookie_is_bound_to_this_host_and_hidden_from_scripts(visitor):
    email = new_email()
    visitor.register(email)
    [cookie] = visitor.log_in(email).headers.get_list("set-cookie")
    name_and_value, *attributes = [part.strip() for part in cookie.split(";")]
    assert name_and_value.startswith("__Host-aisle=s.")
    assert {part.lower() for part in attributes} >= {"secure", "httponly", "samesite=lax", "path=/"}
    assert not any(part.lower().startswith("domain") for part in attributes)


def test_the_store_keeps_the_session_under_a_digest_with_a_time_to_live(visitor, settings):
    email = new_email()
    visitor.register(email)
    visitor.log_in(email)
    [(_, ttl_ms)] = keys_in_store(settings, f"session:{visitor.session_digest()}")
    assert 0 < ttl_ms <= settings.session_idle_seconds * 1000
    everything = keys_in_store(settings, "*")
    assert not any(visitor.cookie.split(".")[2].encode() in key for key, _ in everything)


def test_logging_out_deletes_the_session_and_the_cookie_is_worth_nothing(visitor, settings):
    email = new_email()
    visitor.register(email)
    visitor.log_in(email)
    assert visitor.get("/me").json()["email"] == email
    kept = visitor.cookie
    out = visitor.delete("/sessions/current")
    assert out.status_code == 204
    assert "max-age=0" in out.headers["set-cookie"].lower()
    assert keys_in_store(settings, f"session:{visitor.session_digest(kept)}") == []
    again = visitor.get("/me", cookie=kept)
    assert (again.status_code, again.json()["code"]) == (401, "not_logged_in")
    assert again.headers["www-authenticate"] == "Bearer"


def test_logging_in_changes_the_session_and_ends_the_one_that_was_brought_along(visitor, settings):
    email = new_email()
    visitor.register(email)
    visitor.log_in(email)
    planted = visitor.cookie
    visitor.log_in(email, cookie=planted)
    assert visitor.cookie != planted
    assert keys_in_store(settings, f"session:{visitor.session_digest(planted)}") == []
    assert visitor.get("/me", cookie=planted).status_code == 401
    assert visitor.get("/me").status_code == 200


def test_a_session_made_up_by_the_visitor_is_not_adopted(visitor):
    email = new_email()
    visitor.register(email)
    visitor.log_in(email, cookie="s.00000000." + "A" * 32 + "." + "A" * 43)
    assert "A" * 32 not in visitor.cookie


def test_logging_out_everywhere_ends_every_session_of_the_account_and_no_other(visitor, address, settings):
    mine, other = new_email(), new_email()
    for email in (mine, other):
        visitor.register(email)
    visitor.log_in(other)
    others = visitor.cookie
    cookies = []
    for _ in range(3):
        with Visitor(address) as browser:
            browser.log_in(mine)
            cookies.append(browser.cookie)
    assert visitor.delete("/sessions", cookie=cookies[0]).status_code == 204
    assert {visitor.get("/me", cookie=cookie).status_code for cookie in cookies} == {401}
    assert all(keys_in_store(settings, f"session:{visitor.session_digest(c)}") == [] for c in cookies)
    assert visitor.get("/me", cookie=others).status_code == 200


def test_an_unknown_user_and_a_wrong_password_get_the_same_answer(visitor):
    email = new_email()
    visitor.register(email)
    answers = [
        visitor.log_in(email, password="wrong but long enough"),
        visitor.log_in(new_email(), password="wrong but long enough"),
        visitor.log_in("not an address", password="wrong but long enough"),
    ]
    assert {(a.status_code, a.content) for a in answers} == {(401, answers[0].content)}
    assert answers[0].json()["code"] == "wrong_credentials"
    for answer in answers:
        assert "set-cookie" not in answer.headers
        assert set(answer.headers) == set(answers[0].headers)


def test_a_password_is_the_same_in_composed_and_decomposed_letters(visitor):
    email = new_email()
    visitor.post("/users", {"email": email, "password": "caf\u00e9 au lait", "role": "buyer"})
    assert visitor.log_in(email, password="cafe\u0301 au lait").status_code == 201


def test_a_hash_with_older_parameters_is_replaced_at_the_next_log_in(visitor, settings):
    from argon2 import PasswordHasher

    email = new_email()
    visitor.register(email)
    old = PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1).hash(GOOD_PASSWORD)
    asyncio.run(
        rows(settings.database_url, "update accounts.accounts set password_hash = $1 where email = $2", old, email)
    )
    assert visitor.log_in(email).status_code == 201
    [row] = account_rows(settings, email)
    assert f"m={passwords.MEMORY_KIB},t={passwords.PASSES},p={passwords.LANES}" in row["password_hash"]
    assert visitor.log_in(email).status_code == 201


def test_the_digest_in_the_store_is_that_of_the_reference(visitor):
    """The tests above look for keys by this digest; if it were computed wrongly they would find nothing by mistake."""
    import base64

    email = new_email()
    visitor.register(email)
    visitor.log_in(email)
    payload = base64.urlsafe_b64decode(visitor.cookie.split(".")[2])
    assert visitor.session_digest() == hashlib.sha256(payload[:16]).hexdigest()


def test_fifty_parallel_log_ins_keep_the_queue_bounded_and_the_rest_of_the_service_quick(settings):
    """Three threads and waiting places together: of fifty at once, most are told to come back, and health answers."""
    import msgspec

    small = msgspec.structs.replace(settings, password_threads=1, password_queue=2)
    with serving(small) as (_, address):
        email = new_email()
        with Visitor(address) as visitor:
            visitor.register(email)

        async def rush() -> list[httpx.Response]:
            async with httpx.AsyncClient(base_url=address, timeout=60) as client:
                body = {"email": email, "password": GOOD_PASSWORD}
                attempts = [client.post("/api/v1/sessions", json=body) for _ in range(50)]
                health = [client.get("/livez") for _ in range(10)]
                return await asyncio.gather(*attempts, *health)

        answers = asyncio.run(rush())
    log_ins, health = answers[:50], answers[50:]
    assert {a.status_code for a in health} == {200}
    assert {a.status_code for a in log_ins} == {201, 503}
    busy = [a for a in log_ins if a.status_code == 503]
    assert {a.json()["code"] for a in busy} == {"busy"}
    assert all(int(a.headers["retry-after"]) >= 1 for a in busy)
