"""Start PostgreSQL, Valkey and programs on one data directory, and leave nothing behind.

Used by `aisle up`, by the tests and by the benchmarks. Plain subprocesses, no event loop. Children are stopped in
reverse order of their start; if this process is killed, the kernel stops them. Between start() and stop() a SIGTERM
that nobody else handles raises SystemExit, so that a `with` is left in order also before wait() is reached. While a
program starts, stop signals wait until it can be given up. wait() must be called from the main thread, where signals
arrive; everything else may be called from any.
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self, TypeVar

from aisle.embedded.errors import EmbeddedError
from aisle.embedded.home import Home, open_home
from aisle.embedded.postgres import PostgresServer
from aisle.embedded.process import Program, StopAsked
from aisle.embedded.revival import Revival, ending
from aisle.embedded.valkey import ValkeyServer

__all__ = ["EmbeddedError", "PostgresServer", "Program", "Supervisor", "ValkeyServer"]

POLL_SECONDS = 0.25
PROGRAM_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")

ProgramKind = TypeVar("ProgramKind", bound=Program)


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")


class Supervisor:
    def __init__(self, data: Path, *, log: Callable[[str], None] = _to_stderr) -> None:
        self.data = data
        self._log = log
        self._programs: list[Program] = []
        self._ground: tuple[Home, Executor] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Take the data directory; the servers start when asked for. Safe to repeat."""
        if self._ground is not None:
            return
        if not sys.platform.startswith("linux"):
            raise EmbeddedError("embedded servers need Linux; elsewhere, set the URLs of servers you run yourself")
        home = open_home(self.data)
        self._ground = home, ThreadPoolExecutor(max_workers=1, thread_name_prefix="aisle-forks")
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _leave)

    def start_postgres(self, *, port: int = 0, options: Mapping[str, str] | None = None) -> PostgresServer:
        home, forks = self._ready_ground("postgres")
        return self._started(PostgresServer(home=home, forks=forks, port=port, options=options or {}))

    def start_valkey(
        self, name: str = "valkey", *, port: int = 0, append: bool = True, options: Mapping[str, str] | None = None
    ) -> ValkeyServer:
        """Several beside each other take names of their own; they share one password."""
        home, forks = self._ready_ground(name)
        return self._started(
            ValkeyServer(home=home, forks=forks, port=port, append=append, options=options or {}, name=name)
        )

    def start_program(
        self, name: str, argv: list[str], env: Mapping[str, str], ready: Callable[[], bool] | None = None
    ) -> Program:
        """Run a program of ours beside the servers; `env` is added to the environment of this process."""
        if not PROGRAM_NAME.fullmatch(name):
            raise EmbeddedError(f"not a name for a program: {name!r}")
        home, forks = self._ready_ground(name)
        return self._started(Program(name, argv, {**os.environ, **env}, home=home, forks=forks, ready=ready))

    def secret(self, name: str) -> str:
        """The generated password of this name, as the servers have it."""
        self.start()
        assert self._ground is not None
        return self._ground[0].secret(name)

    def stop(self) -> None:
        """Stop everything in reverse order and let go of the data directory. Safe to repeat, never stops half way."""
        if self._ground is None:
            return
        if not _in_main_thread():
            self._stop_all()
            return
        # A second Ctrl-C must not leave half of the servers to the kernel; it has its effect when all are stopped.
        with _stop_signals() as arrived:
            self._stop_all()
        if signal.getsignal(signal.SIGTERM) is _leave:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if arrived.numbers:
            signal.raise_signal(arrived.numbers[0])

    def wait(self) -> int:
        """Block until a signal asks us to stop (0), or a child keeps dying although it was started again (1).

        Everything is stopped on return.
        """
        revival = Revival(self._log, time.monotonic)
        with _stop_signals() as arrived:
            hopeless: Program | None = None
            while hopeless is None and not arrived.within(POLL_SECONDS):
                hopeless = revival.attend(self._programs)
            if hopeless is not None:
                self._log(f"{hopeless.name} keeps dying; giving up (log: {hopeless.log_path})")
            self.stop()
        return 0 if hopeless is None else 1

    def _stop_all(self) -> None:
        while self._programs:
            self._stop_one(self._programs.pop())
        assert self._ground is not None
        home, forks = self._ground
        self._ground = None
        forks.shutdown()
        home.close()

    def _stop_one(self, program: Program) -> None:
        try:
            program.stop()
        except (OSError, EmbeddedError, subprocess.SubprocessError) as error:
            self._log(f"{program.name} did not stop properly: {error}")
        # Java says 128 + the number of the signal that asked it to end.
        if program.exit_code not in (None, 0, 128 + program.stop_signal):
            self._log(f"{program.name} ended with {ending(program)} (log: {program.log_path})")

    def _ready_ground(self, name: str) -> tuple[Home, Executor]:
        if any(program.name == name for program in self._programs):
            raise EmbeddedError(f"{name} was already started by this supervisor")
        self.start()
        assert self._ground is not None
        return self._ground

    def _started(self, program: ProgramKind) -> ProgramKind:
        if not _in_main_thread():
            return self._start(program, lambda: False)
        # An exception that a signal raises just anywhere can leave a lock held or a child that nobody knows; so it is
        # raised between two looks at the starting program, by the handler that was there before.
        with _stop_signals() as arrived, contextlib.suppress(StopAsked):
            self._start(program, lambda: bool(arrived.numbers))
        if arrived.numbers:
            signal.raise_signal(arrived.numbers[0])
            raise SystemExit(128 + arrived.numbers[0])  # that handler lets us live, or the signal was ignored
        return program

    def _start(self, program: ProgramKind, stop_asked: Callable[[], bool]) -> ProgramKind:
        started = time.monotonic()
        self._programs.append(program)
        try:
            program.start(stop_asked)
        except (EmbeddedError, OSError):
            self._programs.remove(program)
            raise
        self._log(f"{program.name} is ready after {time.monotonic() - started:.2f} s (pid {program.pid})")
        return program


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class _Arrived:
    """The stop signals that came while they were only noted."""

    def __init__(self, wake: int) -> None:
        self.numbers: list[int] = []
        self._wake = wake
        self._poll = select.poll()
        self._poll.register(wake, select.POLLIN)

    def note(self, number: int, frame: FrameType | None) -> None:
        self.numbers.append(number)

    def within(self, seconds: float) -> bool:
        if not self.numbers and self._poll.poll(seconds * 1000):
            os.read(self._wake, 64)  # other signals that have a handler wake us too
        return bool(self.numbers)


@contextlib.contextmanager
def _stop_signals() -> Iterator[_Arrived]:
    """Note SIGINT, SIGTERM and SIGHUP instead of acting on them. Main thread only."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    arrived = _Arrived(wake)
    # Under nohup a hang-up is ignored on purpose.
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    earlier = {number: signal.signal(number, arrived.note) for number in (signal.SIGINT, signal.SIGTERM, *hangup)}
    earlier_waker = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    try:
        yield arrived
    finally:
        signal.set_wakeup_fd(earlier_waker)
        for number, previous in earlier.items():
            signal.signal(number, previous)
        os.close(wake)
        os.close(waker)
