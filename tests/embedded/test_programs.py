"""Programs beside the servers: order, readiness, stubbornness."""

import sys
from pathlib import Path

import psutil
import pytest

from aisle.embedded import home, process
from aisle.embedded.supervisor import EmbeddedError, Program, Supervisor
from tests.embedded.conftest import gone
from tests.patience import eventually

NOTES_ITS_END = """
import os, signal, time
def end(*_):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(os.environ["NAME"] + "\\n")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(600)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
SLEEPS = "import time; time.sleep(600)"
LEAVES_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False)
print("up", child.pid, flush=True)
time.sleep(600)
"""


def start(supervisor: Supervisor, name: str, code: str, **env: str) -> Program:
    log = supervisor.data / "logs" / f"{name}.log"
    return supervisor.start_program(name, [sys.executable, "-c", code], env, lambda: "up" in log.read_text())


def test_programs_stop_in_reverse_order_of_their_start(supervisor: Supervisor, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    for name in ("first", "second", "third"):
        start(supervisor, name, NOTES_ITS_END, NAME=name, NOTES=str(notes))
    supervisor.stop()
    assert notes.read_text().split() == ["third", "second", "first"]
    supervisor.stop()


def test_a_program_that_ignores_the_request_is_killed_and_the_others_still_stop(
    supervisor: Supervisor, tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "STOP_SECONDS", 0.3)
    notes = tmp_path / "notes"
    start(supervisor, "polite", NOTES_ITS_END, NAME="polite", NOTES=str(notes))
    stubborn = start(supervisor, "stubborn", STUBBORN)
    monkeypatch.setattr(Program, "_ended", refuse_once("stubborn"))
    supervisor.stop()
    assert stubborn.exit_code == -9
    assert notes.read_text().split() == ["polite"], "an error while one stops does not spare the next"
    assert "stubborn did not stop properly: no space" in lines
    assert any(line.startswith("stubborn ended with SIGKILL") for line in lines)


def refuse_once(name: str) -> object:
    def ended(program: Program, exit_code: int) -> None:
        if program.name == name:
            raise OSError("no space")

    return ended


def test_what_a_program_leaves_behind_is_killed_with_it(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GONE_SECONDS", 0.3)
    program = start(supervisor, "parent", LEAVES_A_CHILD)
    [child] = psutil.Process(program.pid).children()
    program.stop()
    eventually(lambda: gone(child), "the child is gone")


def test_a_program_that_never_gets_ready_is_stopped_and_reported(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "START_SECONDS", 0.3)
    marker = "never ready, made by this test"
    with pytest.raises(EmbeddedError, match=r"silent did not answer within 0.3 s"):
        supervisor.start_program("silent", [sys.executable, "-c", SLEEPS, marker], {}, lambda: False)
    assert not [child for child in psutil.Process().children() if marker in child.cmdline()]


def test_a_program_that_ends_while_starting_is_reported_with_its_last_words(supervisor: Supervisor) -> None:
    code = "raise SystemExit('the listen address is taken')"
    with pytest.raises(EmbeddedError, match=r"broken ended while starting: the listen address is taken \(log: .*\)"):
        supervisor.start_program("broken", [sys.executable, "-c", code], {}, lambda: False)


def test_a_program_that_does_not_exist_is_refused(supervisor: Supervisor) -> None:
    with pytest.raises(EmbeddedError, match="cannot start missing"):
        supervisor.start_program("missing", ["/nonexistent/program"], {}, None)


@pytest.mark.parametrize("name", ["", "../escape", "With Space", "a" * 64])
def test_a_program_needs_a_name_that_can_name_a_file(supervisor: Supervisor, name: str) -> None:
    with pytest.raises(EmbeddedError, match="not a name for a program"):
        supervisor.start_program(name, [sys.executable, "-c", ""], {}, None)


def test_one_name_runs_once(supervisor: Supervisor) -> None:
    start(supervisor, "only", STUBBORN).kill()
    with pytest.raises(EmbeddedError, match="only was already started"):
        start(supervisor, "only", STUBBORN)


def test_a_program_restarts_under_the_same_name(supervisor: Supervisor, data: Path) -> None:
    program = supervisor.start_program("greeter", [sys.executable, "-c", "print('hello')"], {}, None)
    assert program.finish(60) == 0
    program.restart()
    assert program.finish(60) == 0
    assert (data / "logs" / "greeter.log").read_text() == "hello\nhello\n"


def test_a_big_log_is_set_aside_at_start_and_one_old_is_kept(
    supervisor: Supervisor, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "LOG_BYTES_MAX", 10)
    program = supervisor.start_program("writer", [sys.executable, "-c", "print('x' * 20)"], {}, None)
    program.finish(60)
    for _ in range(2):
        program.restart()
        program.finish(60)
    logs = sorted(path.name for path in (data / "logs").iterdir())
    assert logs == ["writer.log", "writer.log.old"]
    assert (data / "logs" / "writer.log").read_text() == "x" * 20 + "\n"
