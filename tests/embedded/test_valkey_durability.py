"""What Valkey has answered survives its death, also while the disk is slow; and it reaches the disk every second."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from aisle.embedded.supervisor import Supervisor, ValkeyServer
from tests import children
from tests.needs import need
from tests.patience import eventually

SLOW_DISK = Path(__file__).with_name("slow_disk.c")


@pytest.fixture(scope="session")
def slow_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("cc", "Debian: apt-get install gcc libc6-dev")
    library = tmp_path_factory.mktemp("slow") / "slow_disk.so"
    children.run(["cc", "-shared", "-fPIC", "-o", str(library), str(SLOW_DISK)], check=True)
    return library


def started_on(disk: Path, supervisor: Supervisor, **options: str) -> ValkeyServer:
    valkey = supervisor.start_valkey(options=options)
    valkey.stop()
    valkey._env = {**valkey._env, "LD_PRELOAD": str(disk)}
    valkey.start()
    return valkey


def write_until(store: "Redis[bytes]", enough: Callable[[int], bool]) -> int:
    """How many writes were answered."""
    count = 0

    def more() -> bool:
        nonlocal count
        store.rpush("answered", count)
        count += 1
        return enough(count)

    eventually(more, "enough is written")
    return count


def kept_after_a_kill(valkey: ValkeyServer) -> int:
    valkey.kill()
    valkey._env = {name: value for name, value in valkey._env.items() if name != "LD_PRELOAD"}
    valkey.start()
    with Redis.from_url(valkey.url) as store:
        return int(store.llen("answered"))


def test_with_syncing_of_its_own_a_slow_disk_makes_it_lose_what_it_answered(
    supervisor: Supervisor, slow_disk: Path
) -> None:
    """Shows that the danger is real; the next test has the guard."""
    valkey = started_on(slow_disk, supervisor, appendfsync="everysec")
    with Redis.from_url(valkey.url) as store:
        # What a write left in the buffer after its answer, it left there for the sake of a sync under way.
        answered = write_until(store, lambda _: int(store.info("persistence")["aof_buffer_length"]) > 0)
    assert kept_after_a_kill(valkey) < answered


def test_a_kill_loses_nothing_that_was_answered(supervisor: Supervisor, slow_disk: Path) -> None:
    valkey = started_on(slow_disk, supervisor)
    with Redis.from_url(valkey.url) as store:

        def nothing_is_held_back(count: int) -> bool:
            assert int(store.info("persistence")["aof_buffer_length"]) == 0
            return count == 200

        answered = write_until(store, nothing_is_held_back)
    assert kept_after_a_kill(valkey) == answered


def test_the_growing_file_reaches_the_disk_again_and_again_until_the_stop(
    supervisor: Supervisor, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = _pulses()  # of servers that other tests of this process keep running
    synced: list[str] = []
    sync = os.fdatasync

    def noted(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink().name)
        sync(file)

    monkeypatch.setattr(os, "fdatasync", noted)
    valkey = supervisor.start_valkey()
    [growing] = (data / "valkey" / "appendonlydir").glob("*.incr.aof")
    eventually(lambda: synced.count(growing.name) >= 2, "it was synced twice")
    valkey.kill()
    valkey.start()
    [next_growing] = (data / "valkey" / "appendonlydir").glob("*.incr.aof")
    assert next_growing != growing, "the file was rewritten after the crash"
    eventually(lambda: next_growing.name in synced, "its successor is synced too")
    valkey.stop()
    assert _pulses() <= others


def _pulses() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "aisle-disk-pulse"}


def test_a_disk_that_fails_is_left_to_valkey_which_then_refuses_writes(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(file: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    valkey = supervisor.start_valkey()
    monkeypatch.setattr(os, "fdatasync", broken)
    with Redis.from_url(valkey.url) as store:
        eventually(lambda: store.config_get("appendfsync")["appendfsync"] == "everysec", "the syncing is handed back")
