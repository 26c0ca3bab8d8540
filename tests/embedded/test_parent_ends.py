"""However the supervising process ends, no server stays, and the next start finds the data whole."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import psutil
import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from aisle.embedded.supervisor import EmbeddedError, Supervisor
from tests import children
from tests.embedded.conftest import gone
from tests.patience import PATIENCE_SECONDS, eventually
from tests.running import family


@contextmanager
def running_parent(data: Path, *names: str) -> "Iterator[tuple[subprocess.Popen[str], dict[str, int]]]":
    argv = [sys.executable, "-m", "tests.embedded.parent", str(data), *names]
    # A process group of its own, as a shell gives to what runs in its foreground.
    with children.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0) as parent:
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


def test_ctrl_c_in_a_terminal_reaches_the_supervisor_alone(data: Path) -> None:
    with running_parent(data, "valkey", "sleeper") as (parent, _):
        everyone = family(parent.pid)
        os.killpg(parent.pid, signal.SIGINT)
        parent.communicate(timeout=PATIENCE_SECONDS)
        assert parent.returncode == 0
        assert all(gone(process) for process in everyone)
    assert "KeyboardInterrupt" not in (data / "logs" / "sleeper.log").read_text()
    assert "SIGINT" not in (data / "logs" / "valkey.log").read_text()


def ignore_interrupts() -> None:
    """Runs in the child: what a shell without job control does to programs it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("number", "before"), [(signal.SIGTERM, None), (signal.SIGINT, None), (signal.SIGINT, ignore_interrupts)]
)
def test_a_stop_signal_while_still_starting_stops_what_has_started(
    data: Path, number: signal.Signals, before: Callable[[], None] | None
) -> None:
    script = f"""
import sys
from pathlib import Path
from aisle.embedded.supervisor import Supervisor
with Supervisor(Path({str(data)!r})) as supervisor:
    print(supervisor.start_valkey().pid, flush=True)
    supervisor.start_program("late", [sys.executable, "-c", "import time; time.sleep(600)"], {{}}, lambda: False)
"""
    with children.start(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        before_exec=before,
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        eventually(lambda: len(family(parent.pid)) == 3, "the second program runs")
        everyone = family(parent.pid)
        parent.send_signal(number)
        parent.communicate(timeout=PATIENCE_SECONDS)
        assert parent.returncode in (128 + number, -number)
        assert all(gone(process) for process in everyone)
    assert (data / "valkey" / "clean").exists()


def test_a_signal_in_the_middle_of_a_fork_leaves_no_child_that_nobody_knows(data: Path) -> None:
    """Raised at once, as before stop signals were noted while starting, the interrupt lost the child just forked."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    script = f"""
import os, signal, sys, time
from pathlib import Path
from aisle.embedded.process import Program
from aisle.embedded.supervisor import Supervisor
signal.signal(signal.SIGINT, signal.default_int_handler)
fork = Program._fork
def interrupted_fork(*arguments):
    child = fork(*arguments)
    time.sleep(0.5)  # by now it no longer hears that its parent died
    os.kill(os.getpid(), signal.SIGINT)
    print(child.pid, flush=True)
    time.sleep(0.5)
    return child
Program._fork = interrupted_fork
with Supervisor(Path({str(data)!r})) as supervisor:
    supervisor.start_program("stubborn", [sys.executable, "-c", {stubborn!r}], {{}}, lambda: False)
"""
    with children.start(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        try:
            parent.communicate(timeout=PATIENCE_SECONDS)
            assert parent.returncode == -signal.SIGINT
            assert gone(child)
        finally:
            if not gone(child):
                child.kill()


def test_a_signal_does_not_interrupt_an_orderly_stop(data: Path) -> None:
    slow = "import signal, time; end = lambda *_: (print('ends', flush=True), time.sleep(1), exit(0))"
    script = f"""
import sys
from pathlib import Path
from aisle.embedded.supervisor import Supervisor
with Supervisor(Path({str(data)!r})) as supervisor:
    supervisor.start_valkey()
    log = Path({str(data / "logs" / "slow.log")!r})
    code = {slow!r} + "; signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(600)"
    supervisor.start_program("slow", [sys.executable, "-c", code], {{}}, lambda: "up" in log.read_text())
    print("ready", flush=True)
"""
    with children.start([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        eventually(lambda: "ends" in (data / "logs" / "slow.log").read_text(), "it is stopping")
        parent.send_signal(signal.SIGTERM)
        parent.communicate(timeout=PATIENCE_SECONDS)
        assert parent.returncode == -signal.SIGTERM, "the signal is not lost: it has its effect after the stop"
    assert (data / "valkey" / "clean").exists()


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
    done = children.run([sys.executable, "-c", first], stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS)
    pid = int(done.stdout)
    with Supervisor(data, log=lambda line: None):
        assert not psutil.pid_exists(pid) or gone(psutil.Process(pid))


def test_a_second_start_on_living_data_is_refused_with_the_pid(data: Path) -> None:
    with running_parent(data, "sleeper") as (parent, pids):
        with pytest.raises(EmbeddedError, match=rf"already running \(pid {parent.pid}\)"):
            Supervisor(data).start()
        assert not gone(psutil.Process(pids["sleeper"])), "the refusal left the first alone"


def test_a_child_that_dies_is_reported_and_started_again(data: Path) -> None:
    with running_parent(data, "valkey", "sleeper") as (parent, pids):
        psutil.Process(pids["valkey"]).kill()
        reports = iter(parent.stderr.readline, "")
        died = next(line for line in reports if "died" in line)
        assert died.startswith("valkey died (SIGKILL): ")
        assert "valkey.log" in died
        again = next(line for line in reports if "ready again" in line)
        assert not gone(psutil.Process(int(re.search(r"pid (\d+)", again).group(1))))
        assert not gone(psutil.Process(pids["sleeper"])), "one death is no reason to stop the others"
        parent.send_signal(signal.SIGTERM)
        parent.communicate(timeout=PATIENCE_SECONDS)
        assert parent.returncode == 0


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
    with Supervisor(data, log=lambda line: None) as supervisor:
        valkey = supervisor.start_valkey(append=False)
        thread = Thread(target=valkey.restart)
        thread.start()
        task = Path(f"/proc/self/task/{thread.native_id}")
        thread.join()
        eventually(lambda: not task.exists(), "the kernel has ended the thread, and signalled whoever it forked")
        with Redis.from_url(valkey.url, retry=Retry(NoBackoff(), 0)) as store:
            # Valkey looks at a signal ten times a second: a blocked second of its own clock outlasts that.
            assert store.blpop(["nothing"], timeout=1) is None
            assert store.info("server")["process_id"] == valkey.pid
    assert (data / "logs" / "valkey.log").read_text().count("Received SIGTERM") == 2, "restart() and stop(), no third"
