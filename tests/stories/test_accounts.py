"""Steps of `features/accounts/`: over HTTP, against a served Aisle, looking into the database and the store."""

import asyncio

import asyncpg
import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from tests.integration.visitors import Visitor, keys_in_store, new_email, visiting_settings
from tests.running import serving

scenarios("features/accounts/register.feature", "features/accounts/log_in_and_out.feature")


@pytest.fixture(scope="module")
def settings(database_url, servers, worker_id):
    return visiting_settings(servers, database_url, f"{worker_id}.accounts:")


@pytest.fixture(scope="module")
def address(settings):
    with serving(settings) as (_, address):
        yield address


@pytest.fixture
def visitor(address):
    with Visitor(address) as visitor:
        visitor.email = new_email()
        yield visitor


@pytest.fixture
def stage():
    """What the scenario has seen so far."""
    return {"answers": []}


def role_in_database(settings, email):
    async def read():
        connection = await asyncpg.connect(settings.database_url)
        try:
            return await connection.fetchval("select role from accounts.accounts where email = $1", email)
        finally:
            await connection.close()

    return asyncio.run(read())


@given("a visitor")
def a_visitor(visitor, settings):
    assert role_in_database(settings, visitor.email) is None


@given("a visitor who has registered as a buyer")
def registered(visitor):
    assert visitor.register(visitor.email, role="buyer").status_code == 201


@when(parsers.parse("the visitor registers as a {role}"))
def registers(visitor, stage, role):
    stage["answers"].append(visitor.register(visitor.email, role=role))


@when(parsers.parse('the visitor registers with the password "{password}"'))
def registers_with(visitor, stage, password):
    stage["answers"].append(visitor.register(visitor.email, password=password))


@when("somebody registers the same address in capital letters as a seller")
def registers_again(visitor, stage):
    stage["answers"].append(visitor.register(visitor.email.upper(), role="seller"))


@then(parsers.parse("the visitor has an account as a {role}"))
def has_account(visitor, settings, role):
    assert role_in_database(settings, visitor.email) == role


@then("the visitor has no account")
def has_no_account(visitor, settings):
    assert role_in_database(settings, visitor.email) is None


@then("the visitor can log in")
def can_log_in(visitor):
    assert visitor.log_in(visitor.email).status_code == 201
    assert visitor.get("/me").json()["email"] == visitor.email


@then(parsers.parse('the registration is refused with "{code}"'))
@then(parsers.parse('that is refused with "{code}"'))
def refused(stage, code):
    answer = stage["answers"][-1]
    assert answer.status_code >= 400
    assert answer.json()["code"] == code


@given("the user is logged in")
@when("the user logs in")
def logs_in(visitor, stage):
    stage["answers"].append(visitor.log_in(visitor.email))


@then("the user sees their own account")
def sees_account(visitor):
    assert visitor.get("/me").json()["email"] == visitor.email


@then("the browser keeps a cookie that scripts cannot read and other sites cannot use")
def cookie_is_safe(stage):
    cookie = stage["answers"][-1].headers["set-cookie"].lower()
    assert cookie.startswith("__host-aisle=")
    assert all(word in cookie for word in ("httponly", "secure", "samesite=lax", "path=/"))


@when("somebody tries to log in with a wrong password")
def wrong_password(visitor, stage):
    stage["answers"].append(visitor.log_in(visitor.email, password="not the right one"))


@when("somebody tries to log in as a user who does not exist")
def unknown_user(visitor, stage):
    stage["answers"].append(visitor.log_in(new_email(), password="not the right one"))


@then(parsers.parse('both are refused with "{code}" in the same words'))
def same_words(stage, code):
    one, other = stage["answers"]
    assert (one.status_code, one.json()["code"]) == (401, code)
    assert (one.status_code, one.content) == (other.status_code, other.content)


@then("nobody is logged in")
def nobody_logged_in(visitor):
    assert visitor.cookie == ""
    assert visitor.get("/me").status_code == 401


@when("the user logs out")
def logs_out(visitor, stage):
    stage["answers"].append(visitor.delete("/sessions/current"))


@then("the cookie they had is worth nothing any more")
def cookie_is_worthless(visitor, settings):
    assert visitor.get("/me").status_code == 401
    assert keys_in_store(settings, f"session:{visitor.session_digest()}") == []


@given("the user is logged in on a phone and on a laptop")
def two_devices(visitor, stage):
    for device in ("phone", "laptop"):
        visitor.cookie = ""
        visitor.log_in(visitor.email)
        stage[device] = visitor.cookie
    assert visitor.get("/me", cookie=stage["phone"]).status_code == 200


@when("the user logs out everywhere from the laptop")
def logs_out_everywhere(visitor, stage):
    assert visitor.delete("/sessions", cookie=stage["laptop"]).status_code == 204


@then("neither the phone nor the laptop is logged in any more")
def nowhere_logged_in(visitor, settings, stage):
    for device in ("phone", "laptop"):
        assert visitor.get("/me", cookie=stage[device]).status_code == 401
        assert keys_in_store(settings, f"session:{visitor.session_digest(stage[device])}") == []


@when("a page of another site makes the browser log the user out")
def forged_log_out(visitor, stage):
    stage["answers"].append(visitor.send("DELETE", "/sessions/current", headers={"origin": "https://evil.example"}))
