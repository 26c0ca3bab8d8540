"""`aisle account create`: staff accounts from the command line, with the password on standard input only."""

import sys

import pytest

from tests import children
from tests.conftest import with_settings
from tests.integration.visitors import ADDRESS_LIMITS_OFF, GOOD_PASSWORD, Visitor, new_email
from tests.running import PATIENCE_SECONDS, as_environment, clean_environment, serving


def account_create(config, email, role, password):
    return children.run(
        [sys.executable, "-m", "aisle", "account", "create", "--email", email, "--role", role],
        env=clean_environment(as_environment(config)),
        input=password,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.parametrize("role", ["operator", "door"])
def test_staff_made_on_the_command_line_can_log_in(config, role):
    email = new_email()
    run = account_create(config, email.upper(), role, f"{GOOD_PASSWORD}\n".encode())
    assert run.returncode == 0, run.stderr
    assert f"created {role} {email}" in run.stdout.decode()
    assert GOOD_PASSWORD.encode() not in run.stdout + run.stderr
    with serving(with_settings(config, **ADDRESS_LIMITS_OFF)) as (_, address), Visitor(address) as visitor:
        assert visitor.log_in(email).status_code == 201
        assert visitor.get("/me").json()["role"] == role


@pytest.mark.parametrize(
    ("email", "role", "password", "said"),
    [
        ("no address", "operator", b"a long password\n", "this is not an e-mail address"),
        ("ops@example.com", "operator", b"short\n", "a password has 8 to 128 characters"),
        ("ops@example.com", "operator", b"", "a password has 8 to 128 characters"),
        ("ops@example.com", "operator", b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe\n", "not valid text"),
        ("ops@example.com", "emperor", b"a long password\n", "invalid choice"),
    ],
)
def test_bad_input_is_one_clear_refusal(config, email, role, password, said):
    run = account_create(config, email, role, password)
    assert run.returncode == 2
    assert said in run.stderr.decode()
    assert b"Traceback" not in run.stderr


def test_an_address_that_is_taken_is_said(config):
    email = new_email()
    assert account_create(config, email, "door", f"{GOOD_PASSWORD}\n".encode()).returncode == 0
    again = account_create(config, email, "operator", f"{GOOD_PASSWORD}\n".encode())
    assert again.returncode == 2
    assert "there is an account with this e-mail address" in again.stderr.decode()


def test_a_database_without_the_schema_is_said(config, fresh_database_url):
    run = account_create(
        with_settings(config, database_url=fresh_database_url), new_email(), "door", f"{GOOD_PASSWORD}\n".encode()
    )
    assert run.returncode == 2
    assert "run `aisle migrate`" in run.stderr.decode()
