"""A broker looks at its store's settings before it listens: what would lose records is refused or warned of."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from aisle.embedded.server import free_port
from tests import children
from tests.penstock.conftest import BrokerProcess, StartBroker, StoreProcess


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    process = StoreProcess(free_port(), tmp_path)
    process.start()
    yield process
    process.kill()


def refusal(store: StoreProcess, *flags: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "penstock.cli", "serve", "--listen", "127.0.0.1:0", "--store", store.url]
    ended = children.run([*command, *flags], capture_output=True, text=True, timeout=120)
    assert ended.stdout == "", "it never listened"
    return ended.returncode, ended.stderr


def test_a_store_that_may_evict_is_refused_in_one_line(store: StoreProcess) -> None:
    with redis.Redis(port=store.port) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        reason = "the store's maxmemory-policy is allkeys-lru, which may drop records; set it to noeviction"
        assert refusal(store) == (2, f"penstock: {reason}\n")
        assert client.dbsize() == 0, "nothing was written"


def test_a_replica_is_refused_in_one_line(store: StoreProcess) -> None:
    with redis.Redis(port=store.port) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", free_port())
        code, words = refusal(store)
    assert (code, words) == (2, "penstock: the store is a read-only replica; give the address of the primary\n")


@pytest.mark.parametrize("settings", [{"appendfsync": "no"}, {"appendonly": "no"}])
def test_waiting_for_a_disk_that_is_never_synced_is_refused(store: StoreProcess, settings: dict[str, str]) -> None:
    """WAITAOF would time out, and every record be refused."""
    with redis.Redis(port=store.port) as client:
        for name, value in settings.items():
            client.config_set(name, value)
    needed = "--acks-fsync needs a store with appendonly yes and appendfsync everysec or always"
    assert refusal(store, "--acks-fsync") == (2, f"penstock: {needed}\n")


def test_a_store_without_an_append_only_file_is_warned_of(
    start_broker: StartBroker, store: StoreProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    with redis.Redis(port=store.port) as client:
        client.config_set("appendonly", "no")
    broker: BrokerProcess = start_broker(store=store)
    assert "the store keeps no append-only file" in capfd.readouterr().err
    assert broker.stop() == 0
