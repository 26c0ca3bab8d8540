"""However the supervising process ends, no server stays, and the next start finds the data whole."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from redis import Redis

from aisle.embedded.supervisor import EmbeddedError, Supervisor
from tests.embedded.conftest import PATIENCE_SECONDS, eventually, family, gone


@contextmanager
def running_parent(data: Path, *names: str) -> "Iterator[tuple[subprocess.Popen[str], dict[str, int]]]":
    argv = [sys.executable, "-m", "tests.embedded.parent", str(data), *names]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        try:
            yield parent, json.loads(parent.stdout.readline())
        finally:
            parent.kill()


def assert_nobody_holds(data: Path) -> None:
    with Supervisor(data, log=lambda line: None):
        assert (data / "lock").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_stops_every_server_cleanly(data_with_database: Path, number: signal.Signals) -> None:
    with running_parent(data_with_database, "postgres", "valkey", "sleeper") as (parent, pids):
        everyone = family(parent.pid)
        assert len(everyone) > len(pids) + 1, "PostgreSQL's own workers belong to the family too"
        parent.send_signal(number)
        _, errors = parent.communicate(timeout=PATIENCE_SECONDS)
        assert parent.returncode == 0, errors
        assert all(gone(process) for process in everyone)
    assert (data_with_database / "valkey" / "clean").exists()
    assert "database system is shut down" in (data_with_database / "logs" / "postgres.log").read_text()
    assert (data_with_database / "lock").read_text() == ""
    assert_nobody_holds(data_with_database)


def test_killing_the_parent_leaves_no_orphan(data_with_database: Path) -> None:
    with running_parent(data_with_database, "postgres", "valkey", "sleeper") as (parent, _):
        everyone = family(parent.pid)
        parent.kill()
        eventually(lambda: all(gone(process) for process in everyone), "everyone is gone")
    log = (data_with_database / "logs" / "postgres.log").read_text()
    assert "received fast shutdown request" in log
    assert "database system is shut down" in log
    assert_nobody_holds(data_with_database)


def test_the_next_start_waits_for_servers_that_are_still_stopping(data: Path) -> None:
    slow = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), exit(0))); time.sleep(600)"
    first = f"""
import sys, os, signal
from pathlib import Path
from aisle.embedded.supervisor import Supervisor
supervisor = Supervisor(Path({str(data)!r}))
code = "print('up', flush=True);" + {slow!r}
log = Path({str(data / "logs" / "slow.log")!r})
child = supervisor.start_program("slow", [sys.executable, "-c", code], {{}}, lambda: "up" in log.read_text())
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", first], stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS)
    pid = int(done.stdout)
    with Supervisor(data, log=lambda line: None):
        assert not psutil.pid_exists(pid) or gone(psutil.Process(pid))


def test_a_second_start_on_living_data_is_refused_with_the_pid(data: Path) -> None:
    with running_parent(data, "sleeper") as (parent, pids):
        with pytest.raises(EmbeddedError, match=rf"already running \(pid {parent.pid}\)"):
            Supervisor(data).start()
        assert not gone(psutil.Process(pids["sleeper"])), "the refusal left the first alone"


def test_a_child_that_dies_is_reported_and_takes_the_rest_down(data: Path) -> None:
    with running_parent(data, "valkey", "sleeper") as (parent, pids):
        everyone = family(parent.pid)
        psutil.Process(pids["valkey"]).kill()
        _, errors = parent.communicate(timeout=PATIENCE_SECONDS)
        assert parent.returncode == 1
        [report] = [line for line in errors.splitlines() if "died" in line]
        assert report.startswith("valkey died (SIGKILL): ")
        assert "valkey.log" in report
        assert all(gone(process) for process in everyone)
    assert not (data / "valkey" / "clean").exists()


def test_no_password_shows_in_any_command_line(data_with_database: Path) -> None:
    with running_parent(data_with_database, "postgres", "valkey") as (parent, _):
        secrets = [path.read_text().strip() for path in (data_with_database / "secrets").iterdir()]
        assert len(secrets) == 2
        everyone = family(parent.pid)
        shown = "\n".join(" ".join(process.cmdline()) for process in everyone)
        assert "valkey-server" in shown
        assert not [secret for secret in secrets if secret in shown]
        parent.send_signal(signal.SIGTERM)
        parent.communicate(timeout=PATIENCE_SECONDS)


def test_a_server_started_by_a_short_lived_thread_outlives_the_thread(data: Path) -> None:
    from threading import Thread

    with Supervisor(data, log=lambda line: None) as supervisor:
        valkey = supervisor.start_valkey(append=False)
        thread = Thread(target=valkey.restart)
        thread.start()
        task = Path(f"/proc/self/task/{thread.native_id}")
        thread.join()
        eventually(lambda: not task.exists(), "the kernel has ended the thread, and signalled whoever it forked")
        with Redis.from_url(valkey.url) as store:
            assert store.info("server")["process_id"] == valkey.pid
            store.set("still", "here")
            assert store.get("still") == b"here"
