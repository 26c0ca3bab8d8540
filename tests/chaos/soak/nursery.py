"""A process that has read all of our code and forks one of ours whenever it is asked to.

Starting Python and reading a hundred modules is most of what a start costs; here it is paid once, so that a run can
kill hundreds of processes. What comes out is a process like any other: its own pid, environment, files and death.

`python -m tests.chaos.soak.nursery` reads a JSON line for each wish and writes one for each birth and each death.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests import children


class Child:
    """As much of a Popen as we use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


class Nursery:
    """Called from one thread; births are answered in order."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.chaos.soak.nursery"]
        self._process = children.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._children: dict[int, Child] = {}
        self._born: list[Child] = []
        self._news = threading.Condition()
        self._listener = threading.Thread(target=self._listen, name="nursery", daemon=True)
        self._listener.start()

    def start(self, command: list[str], env: dict[str, str], output: str) -> Child:
        """`command` without the interpreter: what `aisle` gets, or `operate` and a file with what is to be done."""
        with self._news:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"command": command, "env": env, "output": output}) + "\n")
            self._process.stdin.flush()
            if not self._news.wait_for(lambda: self._born, timeout=120):
                raise AssertionError("nobody was born")
            return self._born.pop(0)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            with self._news:
                if "born" in told:
                    child = self._children[told["born"]] = Child(told["born"])
                    self._born.append(child)
                else:
                    self._children.pop(told["dead"]).returncode = told["code"]
                self._news.notify_all()


def _live(wish: dict[str, Any], parent: int) -> None:
    """In the child: become what was wished for. Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    children.die_with(parent)
    output = os.open(wish["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in (1, 2):
        os.dup2(output, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(wish["env"])
    code = 1
    try:
        if wish["command"][0] == "operate":
            from tests.chaos.soak.operating import operate

            operate(wish["command"][1], wish["command"][2])
            code = 0
        else:
            from aisle.cli import main

            if "CHAOS_CLOCK" in wish["env"]:
                _go_by(Path(wish["env"]["CHAOS_CLOCK"]))
            main(wish["command"])
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _go_by(clock: Path) -> None:
    """The process is off by as many seconds as the file says, from then on as well."""
    import aisle.app

    right = time.time
    time.time = lambda: right() + float(clock.read_text() or 0)
    aisle.app._now = lambda: datetime.fromtimestamp(time.time(), UTC)


def _serve() -> None:
    import tests.chaos.soak.operating  # noqa: F401

    def say(**told: int) -> None:
        os.write(1, (json.dumps(told) + "\n").encode())

    waking, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    import select

    buffer = b""
    while True:
        ready, _, _ = select.select([0, waking], [], [])
        if waking in ready:
            os.read(waking, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            say(dead=pid, code=os.waitstatus_to_exitcode(status))
        if 0 in ready:
            piece = os.read(0, 1 << 20)
            if not piece:
                return
            buffer += piece
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                parent = os.getpid()
                pid = os.fork()
                if pid == 0:
                    _live(json.loads(line), parent)
                say(born=pid)


if __name__ == "__main__":
    _serve()
