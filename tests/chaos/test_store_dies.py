"""The store dies under a serving Aisle, and comes back. Aisle says so, stays up, and recovers without being touched."""

import os
import signal
import time

import httpx
import pytest

from aisle.embedded.supervisor import Supervisor
from tests.conftest import with_settings
from tests.running import serving, status_of, wait_until


@pytest.fixture
def valkey(tmp_path):
    with Supervisor(tmp_path / "data", log=lambda line: None) as supervisor:
        yield supervisor.start_valkey()


def test_readyz_says_why_within_two_seconds_and_recovers_by_itself(config, valkey):
    with serving(with_settings(config, store_url=valkey.url)) as (process, address):
        assert status_of(f"{address}/readyz") == 200
        valkey.kill()
        killed = time.monotonic()
        wait_until(lambda: status_of(f"{address}/readyz") == 503, "/readyz turns to 503", process)
        assert time.monotonic() - killed < 2
        assert "store" in httpx.get(f"{address}/readyz").json()["failures"]
        assert status_of(f"{address}/livez") == 200, "a dead store is no reason to restart Aisle"
        valkey.restart()
        wait_until(lambda: status_of(f"{address}/readyz") == 200, "the store is back", process)


def test_a_store_that_hangs_makes_aisle_not_ready_instead_of_hanging_with_it(config, valkey):
    with serving(with_settings(config, store_url=valkey.url)) as (process, address):
        os.kill(valkey.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: status_of(f"{address}/readyz") == 503, "/readyz turns to 503", process)
            assert "no answer within" in httpx.get(f"{address}/readyz").json()["failures"]["store"]
        finally:
            os.kill(valkey.pid, signal.SIGCONT)
        wait_until(lambda: status_of(f"{address}/readyz") == 200, "the store is back", process)
