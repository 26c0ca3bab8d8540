"""The data directory: privacy, refusals, the lock across a crash, sockets under long paths."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from redis import Redis

from aisle.embedded.lock import take_lock
from aisle.embedded.supervisor import EmbeddedError, Supervisor
from tests import children


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_we_make_is_private(supervisor: Supervisor, data: Path) -> None:
    supervisor.start_valkey()
    assert {path.name: oct(mode(path)) for path in [data, *data.iterdir()] if path.is_dir()} == dict.fromkeys(
        ["data", "logs", "run", "secrets", "valkey"], "0o700"
    )
    files = [data / "secrets" / "valkey", data / "valkey" / "valkey.conf", data / "logs" / "valkey.log", data / "lock"]
    assert [oct(mode(path)) for path in files] == ["0o600"] * 4


def test_a_directory_that_was_there_keeps_its_mode(data: Path) -> None:
    data.mkdir()
    data.chmod(0o755)
    with Supervisor(data):
        assert mode(data) == 0o755
    assert mode(data) == 0o755


def test_a_secret_is_made_once(data: Path) -> None:
    seen = set()
    for _ in range(2):
        with Supervisor(data, log=lambda line: None) as supervisor:
            seen.add(supervisor.start_valkey(append=False, port=0).url)
    assert len(seen) == 1


def test_secrets_open_to_others_are_refused(data: Path) -> None:
    (data / "secrets").mkdir(parents=True)
    (data / "secrets").chmod(0o755)
    with pytest.raises(EmbeddedError, match="secrets is open to other users"):
        Supervisor(data).start()
    with pytest.raises(EmbeddedError, match="secrets is open to other users"):
        Supervisor(data).start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(data: Path) -> None:
    (data / "secrets").mkdir(parents=True, mode=0o700)
    os.chown(data / "secrets", 65534, 65534)
    with pytest.raises(EmbeddedError, match="secrets belongs to user id 65534, not to the one running this"):
        Supervisor(data).start()


def test_a_file_in_place_of_the_directory_is_refused(data: Path) -> None:
    data.write_text("a file")
    with pytest.raises(EmbeddedError, match="as data directory: it is a file"):
        Supervisor(data).start()
    assert data.read_text() == "a file"


def test_a_path_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for data, reason in [
        (tmp_path / "file" / "data", "Not a directory"),
        (Path("/proc/aisle"), "No such file or directory"),
        (tmp_path / ("x" * 300), "File name too long"),
        (tmp_path.joinpath(*["d" * 99] * 10), "longer than 900 bytes"),
    ]:
        with pytest.raises(EmbeddedError, match=reason):
            Supervisor(data).start()


@pytest.mark.skipif(os.geteuid() == 0, reason="permission bits do not bind root")
def test_a_directory_we_may_not_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(EmbeddedError, match="Permission denied"):
            Supervisor(tmp_path / "data").start()
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("awkward", ["n" * 120, "with space, comma & percent%20"])
def test_sockets_of_an_awkward_path_live_in_a_private_temporary_directory(tmp_path: Path, awkward: str) -> None:
    data = tmp_path / awkward
    with Supervisor(data, log=lambda line: None) as supervisor:
        valkey = supervisor.start_valkey()
        [socket] = [path for path in Path(tempfile.gettempdir()).glob("aisle-*/valkey.sock") if str(path) in valkey.url]
        assert mode(socket.parent) == 0o700
        with Redis.from_url(valkey.url) as store:
            assert store.ping()
    assert not socket.parent.exists(), "a clean stop leaves nothing in the temporary directory"
    assert (data / "valkey" / "clean").exists()


def test_the_lock_stays_with_children_and_patience_ends_with_a_clear_word(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    fd = take_lock(lock)
    with children.start([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(fd,)) as child:
        os.ftruncate(fd, 0)
        os.close(fd)
        with pytest.raises(EmbeddedError, match="servers of an earlier run still hold"):
            take_lock(lock, patience=0.2)
        child.communicate(b"\n")
    os.close(take_lock(lock, patience=0.2))


def test_a_reused_pid_in_the_lock_is_not_taken_for_the_supervisor(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    fd = take_lock(lock)
    lock.write_text(f"{os.getpid()} 12345\n")
    with pytest.raises(EmbeddedError, match="servers of an earlier run still hold"):
        take_lock(lock, patience=0.1)
    os.close(fd)
