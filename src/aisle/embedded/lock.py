"""One supervisor per data directory, also across a crash of the supervisor.

The lock is an flock on `data/lock`. Every server inherits the open file, so the lock lives until the last of them is
gone: a supervisor killed with -9 cannot be followed by one that starts on files which are still being written.
Called by home.py. Never unlocks explicitly, because LOCK_UN would also take the lock away from the children.
"""

import fcntl
import os
import time
from pathlib import Path

from aisle.embedded.errors import EmbeddedError

PATIENCE_SECONDS = 20.0
POLL_SECONDS = 0.05

# The text of the lock file names the supervisor, with its start time because pids are used again:
#
#   "<pid> <start time in clock ticks since boot>\n"     empty after an orderly stop


def take_lock(path: Path, *, patience: float = PATIENCE_SECONDS) -> int:
    """Lock the file and return its descriptor, or raise EmbeddedError if its supervisor lives or its servers stay."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait_for_lock(fd, path, time.monotonic() + patience)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()} {_start_time(os.getpid())}\n".encode(), 0)
    except (EmbeddedError, OSError, KeyboardInterrupt):
        os.close(fd)
        raise
    return fd


def release_lock(fd: int) -> None:
    os.ftruncate(fd, 0)
    os.close(fd)


def _wait_for_lock(fd: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        pid = _living_supervisor(fd)
        if pid is not None:
            raise EmbeddedError(f"already running (pid {pid}) on {path.parent}")
        if time.monotonic() >= deadline:
            raise EmbeddedError(f"servers of an earlier run still hold {path} and do not stop")
        time.sleep(POLL_SECONDS)


def _living_supervisor(fd: int) -> int | None:
    words = os.pread(fd, 64, 0).split()
    if len(words) != 2 or not words[0].isdigit():
        return None
    pid = int(words[0])
    return pid if _start_time(pid) == words[1].decode() else None


def _start_time(pid: int) -> str:
    """Ticks since boot, or "" for a process that is gone or a zombie: a zombie holds no files and does nothing."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The second field is the program's name in brackets and may hold spaces; the state is the third, the time the 22nd.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]
