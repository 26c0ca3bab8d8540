"""One supervised child process: spawn, wait until it answers, stop, kill, restart, last words.

Used as it is for programs such as Penstock, and as the ground of the servers in postgres.py and valkey.py. A child
never outlives its supervisor: the kernel signals it when the thread that forked it ends, so all forks are made by the
one thread behind `forks`, which lives as long as the supervisor, and any thread may call start() or restart().
"""

import contextlib
import enum
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path

from aisle.embedded.errors import EmbeddedError
from aisle.embedded.home import Home
from aisle.embedded.identity import Identity, die_with_parent

START_SECONDS = 120.0  # for one that hangs: whoever has ended is noticed at once, and a busy machine is slow
LOAD_SECONDS = 600.0
STOP_SECONDS = 15.0
GONE_SECONDS = 5.0
POLL_SECONDS = 0.02
LAST_WORDS_BYTES = 16 * 1024
LAST_WORDS_CHARS = 300
LAST_LINES = 6  # a server says why it ends and then a few lines of good-bye
ALARMING = ("FATAL", "PANIC", "Fatal", "Bad file format", "Can't")


class Answer(enum.Enum):
    READY = enum.auto()
    LOADING = enum.auto()  # it answers, and asks for patience: replaying a log may take minutes
    SILENT = enum.auto()


class StopAsked(Exception):
    """Somebody asked to stop while a program was starting; it is gone again."""


def nobody_asks() -> bool:
    return False


class Program:
    stop_signal = signal.SIGTERM
    keeps: Path | None = None  # the directory of its data, named in errors so that people know it is still there

    def __init__(
        self,
        name: str,
        argv: list[str],
        env: Mapping[str, str],
        *,
        home: Home,
        forks: Executor,
        ready: Callable[[], bool] | None = None,
        identity: Identity = Identity(),  # noqa: B008 - frozen and empty
    ) -> None:
        self.name = name
        self.log_path = home.log_path(name)
        self._argv = argv
        self._env = env
        self._home = home
        self._forks = forks
        self._ready = ready
        self._identity = identity
        self._child: subprocess.Popen[bytes] | None = None
        self._leash = -1
        self._log_start = 0
        self._ending = False

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.name} was never started"
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None before it ends; negative after a signal."""
        return None if self._child is None else self._child.poll()

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def died(self) -> bool:
        """It ended although nobody asked it to."""
        return not self._ending and self.exit_code is not None

    def start(self, stop_asked: Callable[[], bool] = nobody_asks) -> None:
        """Returns when it answers, or raises StopAsked at the next moment where giving up leaves nothing behind."""
        if self.running:
            return
        self._end(self.stop_signal)  # an earlier run that died by itself may have left descendants
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        try:
            self._prepare()
        except OSError as error:
            raise EmbeddedError(f"cannot start {self.name}: {error.strerror}: {error.filename}") from error
        if stop_asked():
            raise StopAsked
        self._spawn()
        try:
            self._await_ready(stop_asked)
        except (EmbeddedError, OSError, KeyboardInterrupt, StopAsked):
            self.kill()
            raise

    def stop(self) -> None:
        """Ask, wait STOP_SECONDS, then kill. Safe to repeat; returns when nothing of it is left."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """End it the hard way, as a crash would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def finish(self, seconds: float) -> int:
        """Wait for a program that ends by itself; return its exit code."""
        assert self._child is not None, f"{self.name} was never started"
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise EmbeddedError(f"{self.name} did not finish within {seconds:.0f} s (log: {self.log_path})") from None
        self._end(self.stop_signal)
        return self._child.returncode

    def last_words(self) -> str:
        """What its log says about the end, in one line: the last alarming one of the last few, else the last."""
        lines = [line.strip() for line in self._log_of_this_run().splitlines() if line.strip()][-LAST_LINES:]
        if not lines:
            return "it wrote nothing to its log"
        alarming = [line for line in lines if any(word in line for word in ALARMING)]
        return (alarming or lines)[-1][:LAST_WORDS_CHARS]

    def _log_of_this_run(self) -> str:
        try:
            with open(self.log_path, "rb") as log:
                log.seek(max(self._log_start, os.fstat(log.fileno()).st_size - LAST_WORDS_BYTES))
                return log.read(LAST_WORDS_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def _prepare(self) -> None:
        """Make files and settings ready before each start."""

    def _ended(self, exit_code: int) -> None:
        """Called once after each run that somebody asked to end."""

    def _probe(self) -> Answer:
        return Answer.READY if self._ready is None or self._ready() else Answer.SILENT

    def _spawn(self) -> None:
        self._home.rotate_log(self.name)
        # Every descendant inherits the writing end, so the reading end tells when the last of them is gone.
        leash, held = os.pipe()
        try:
            with open(os.open(self.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as log:
                self._log_start = log.seek(0, os.SEEK_END)
                self._child = self._forks.submit(self._fork, log.fileno(), held).result()
        except (OSError, subprocess.SubprocessError) as error:
            os.close(leash)
            raise EmbeddedError(f"cannot start {self.name}: {error}") from error
        finally:
            os.close(held)
        self._leash = leash
        self._ending = False

    def _fork(self, log: int, held: int) -> "subprocess.Popen[bytes]":
        supervisor, become, death_signal = os.getpid(), self._identity.become, int(self.stop_signal)

        def before_exec() -> None:
            if become is not None:
                become()
            die_with_parent(supervisor, death_signal)

        # A session of its own keeps a Ctrl-C in the terminal from us: we stop the children ourselves, in order.
        return subprocess.Popen(  # noqa: S603 - argv comes from our own code
            self._argv,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(self._home.lock_fd, held),
            start_new_session=True,
            umask=0o077,
            preexec_fn=before_exec,  # noqa: PLW1509 - it only makes system calls: no imports, no locks
        )

    def _await_ready(self, stop_asked: Callable[[], bool]) -> None:
        started = time.monotonic()
        patience = START_SECONDS
        while True:
            # Asked before it is looked at: a program that need not answer is ready even if it is already done.
            answer = self._probe()
            if answer is Answer.READY:
                return
            if stop_asked():
                raise StopAsked
            if not self.running:
                raise self._complaint("ended while starting")
            if answer is Answer.LOADING:
                patience = LOAD_SECONDS
            if time.monotonic() - started > patience:
                raise self._complaint(f"did not answer within {patience:g} s")
            time.sleep(POLL_SECONDS)

    def _complaint(self, what: str) -> EmbeddedError:
        kept = f"; its data in {self.keeps} was left as it is" if self.keeps else ""
        return EmbeddedError(f"{self.name} {what}: {self.last_words()}{kept} (log: {self.log_path})")

    def _end(self, how: signal.Signals) -> None:
        child = self._child
        if child is None or self._leash < 0:
            return
        self._ending = True
        if how is not signal.SIGKILL:
            child.send_signal(how)
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                how = signal.SIGKILL
        if how is signal.SIGKILL and child.poll() is None:
            os.killpg(child.pid, how)
            child.wait()
        self._await_gone(child.pid)
        self._ended(child.returncode)

    def _await_gone(self, group: int) -> None:
        """A killed PostgreSQL leaves its workers for a moment; starting over them would be refused."""
        end_of_file = select.poll()  # select() would refuse descriptors from 1,024 on
        end_of_file.register(self._leash)
        if not end_of_file.poll(GONE_SECONDS * 1000):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        os.close(self._leash)
        self._leash = -1
