"""`aisle up` as an operator meets it: one command, one address, nothing left behind."""

import os
import signal

import httpx
import pytest

from aisle.embedded.server import free_port
from tests.running import run_aisle, status_of, wait_until
from tests.running_up import installation, up


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_up_answers_keeps_its_data_and_leaves_no_process_behind(tmp_path, number):
    with up(tmp_path / "data") as first:
        assert httpx.get(f"{first.address}/readyz").json() == {"status": "ready"}
        name = installation(first)
        first.end(number)
        assert first.process.returncode == 0, first.output.read_text()
        first.assert_nobody_is_left()
    with up(tmp_path / "data") as second:
        assert installation(second) == name, "a second start must keep the data"
        second.end(number)
        second.assert_nobody_is_left()


def test_kill_9_of_up_leaves_no_orphan(tmp_path):
    with up(tmp_path / "data") as started:
        assert len(started.everyone) >= 4, "up, postgres, valkey, aisle"
        started.end(signal.SIGKILL)
        started.assert_nobody_is_left()


def test_a_second_up_on_the_same_data_is_refused_and_harms_nothing(tmp_path):
    with up(tmp_path / "data") as started:
        second = run_aisle("up", env={"AISLE_DATA_DIR": str(started.data), "AISLE_PORT": str(free_port())})
        assert second.returncode == 2
        assert f"already running (pid {started.process.pid})" in second.stderr
        assert httpx.get(f"{started.address}/readyz").status_code == 200


def test_a_server_that_dies_is_started_again_with_its_data(tmp_path):
    with up(tmp_path / "data") as started:
        name = installation(started)
        for server in ("valkey", "postgres"):
            died = started.pid_of(server)
            os.kill(died, signal.SIGKILL)
            wait_until(lambda s=server, d=died: started.pid_of(s) != d, f"{server} is started again", started.process)
            wait_until(
                lambda: status_of(f"{started.address}/readyz") == 200, "all of it is ready again", started.process
            )
        assert installation(started) == name
