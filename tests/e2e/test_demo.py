"""`aisle demo`: halls and logins that are there once, however often it is called, and buyers that keep promises."""

import subprocess
import sys

import httpx
import pytest

from aisle.demo.season import LOGINS
from tests import children
from tests.running import PATIENCE_SECONDS, as_environment, clean_environment, run_aisle
from tests.running_up import up
from tests.stage import Stage

pytestmark = pytest.mark.xdist_group("demo")


def demo(stage: Stage, *arguments: str) -> str:
    ended = run_aisle("demo", *arguments, env=as_environment(stage.config))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_two_at_once_and_one_later_load_it_once(stage):
    command = [sys.executable, "-m", "aisle", "demo"]
    env = clean_environment(as_environment(stage.config))
    both = [children.start(command, env=env, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(PATIENCE_SECONDS) for process in both] == [0, 0]
    demo(stage)
    events = stage.fetch("select name, state, count(*) over (partition by name) from ticketing.events order by id")
    assert [(row["state"], row["count"]) for row in events] == [("on_sale", 1)] * 3
    assert stage.fetch("select id from accounts.tokens") == [], "the loader's own token was revoked"


def test_everybody_it_names_can_log_in(stage):
    printed = demo(stage)
    for login in LOGINS:
        assert login.email in printed
        proof = {"email": login.email, "password": login.password}
        answer = httpx.post(f"{stage.address}/api/v1/sessions", json=proof)
        assert (answer.status_code, answer.json()["role"]) == (201, login.role)


def test_simulated_buyers_take_seats_and_leave_everything_consistent(stage):
    demo(stage, "--buyers", "8", "--seconds", "6")
    owned = stage.fetch("select distinct event_id from booking.bookings")
    assert owned, "nobody booked anything"
    for row in owned:
        stage.settle(row["event_id"])


@pytest.mark.parametrize("arguments", [("--buyers", "-1"), ("--buyers", "501"), ("--seconds", "0"), ("--buyers", "x")])
def test_a_crowd_that_makes_no_sense_is_refused(stage, arguments):
    ended = run_aisle("demo", *arguments, env=as_environment(stage.config))
    assert ended.returncode == 2
    assert "--" in ended.stderr


def test_without_a_running_aisle_it_says_so(tmp_path):
    ended = run_aisle("demo", env={"AISLE_DATA_DIR": str(tmp_path)})
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "no `aisle up` is running here" in ended.stderr


def test_up_loads_it_when_asked_and_finds_it_again(tmp_path):
    for _ in range(2):
        with up(tmp_path / "data", "--demo") as started:
            items = httpx.get(f"{started.address}/api/v1/events").json()["items"]
            assert len(items) == 3
            assert LOGINS[1].email in started.output.read_text()
