"""A disk fills up under Valkey and is freed again; what was acknowledged before and after survives the next crash.

A write of which only a part fitted leaves zeros in Valkey's file, and such a file does not load. The first test shows
that on a server that nobody looks after; the second is the same story with the rewrite that follows.
"""

import contextlib
import os
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from aisle.embedded.errors import EmbeddedError
from aisle.embedded.supervisor import Supervisor, ValkeyServer
from tests import children
from tests.patience import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    children.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0755", "aisle-test", str(path)], check=True)
    yield path
    children.run(["umount", "-l", str(path)], check=True)


def survive_a_full_disk(valkey: ValkeyServer, disk: Path) -> None:
    """The file that Valkey makes for a rewrite is the one it does not open for appending."""
    with Redis.from_url(valkey.tcp_url) as store:
        store.bgrewriteaof()
        eventually(lambda: not store.info("persistence")["aof_rewrite_in_progress"], "the file is rewritten")
        store.set("before", "the disk was full")
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with contextlib.suppress(RedisError):
            store.set("too much", "x" * 10_000)
        eventually(lambda: store.info("persistence")["aof_last_write_status"] == "err", "a write failed")
        filler.unlink()
        eventually(lambda: store.info("persistence")["aof_last_write_status"] == "ok", "writes succeed again")
        store.set("after", "the disk was full")


def test_a_file_with_zeros_in_it_does_not_load(disk, monkeypatch):
    monkeypatch.setattr(ValkeyServer, "_rewrite_after_short_write", lambda self: None)
    with Supervisor(disk / "data", log=lambda line: None) as supervisor:
        valkey = supervisor.start_valkey()
        survive_a_full_disk(valkey, disk)
        valkey.kill()
        with pytest.raises(EmbeddedError, match="Bad file format"):
            valkey.start()


def test_the_file_is_rewritten_when_the_disk_has_room_again(disk):
    with Supervisor(disk / "data", log=lambda line: None) as supervisor:
        valkey = supervisor.start_valkey()
        survive_a_full_disk(valkey, disk)
        eventually(lambda: valkey.log_path.read_text().count("AOF rewrite finished successfully") == 2, "a rewrite")
        valkey.kill()
        valkey.start()
        with Redis.from_url(valkey.tcp_url) as store:
            assert store.mget("before", "after") == [b"the disk was full"] * 2
