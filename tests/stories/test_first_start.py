"""Steps of `features/first_start.feature`."""

import re

import httpx
import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from aisle.embedded.server import free_port
from tests.running import run_aisle
from tests.running_up import installation, up

scenarios("features/first_start.feature")


@pytest.fixture
def stage():
    """What the scenario has seen so far."""
    return {}


@given("an empty data directory")
def empty_directory(tmp_path, stage):
    stage["data"] = tmp_path / "data"


@given("Aisle has run once on a data directory")
def has_run_once(tmp_path, stage):
    stage["data"] = tmp_path / "data"
    with up(stage["data"]) as started:
        stage["installation"] = installation(started)


@when("the operator starts Aisle", target_fixture="aisle")
@when("the operator starts Aisle again", target_fixture="aisle")
def start(stage):
    with up(stage["data"]) as started:
        yield started


@when(parsers.parse('the operator starts Aisle with the setting "{name}" as "{value}"'))
def start_with_setting(stage, name, value):
    env = {"AISLE_DATA_DIR": str(stage["data"]), "AISLE_PORT": str(free_port()), name: value}
    stage["run"] = run_aisle("up", env=env)


@then("Aisle prints an address")
def prints_address(aisle, stage):
    stage["address"] = re.search(r"ready at (http://\S+)", aisle.output.read_text()).group(1)


@then("the address answers that it is ready")
def answers(stage):
    assert httpx.get(f"{stage['address']}/readyz").json() == {"status": "ready"}


@then("the API page shows what a program can do")
def api_page(stage):
    assert "<code>/readyz</code>" in httpx.get(f"{stage['address']}/docs/api").text


@then("it is the same installation as before")
def same_installation(aisle, stage):
    assert installation(aisle) == stage["installation"]


@then(parsers.parse('Aisle refuses with "{sentence}"'))
def refuses(stage, sentence):
    assert stage["run"].returncode == 2
    assert stage["run"].stderr == f"aisle: {sentence}\n"


@then("the data directory is still empty")
def still_empty(stage):
    assert not stage["data"].exists()
