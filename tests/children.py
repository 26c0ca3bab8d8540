"""Processes that tests start: the kernel kills each when the test process ends, however that ends.

A run that was killed itself, or a worker that was, must not leave servers behind that take ports and cores from the
next one. `test_tidy.py` sees to it that tests start processes here only.
"""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def start(
    command: Sequence[str | Path], *, before_exec: Callable[[], object] | None = None, **options: Any
) -> "subprocess.Popen[Any]":
    """A process that runs beside the test. The thread that starts it has to outlive it: it dies with that thread."""
    leashed = _leash(os.getpid(), before_exec)
    return subprocess.Popen(command, preexec_fn=leashed, **options)  # noqa: PLW1509 - system calls only


def run(command: Sequence[str | Path], **options: Any) -> "subprocess.CompletedProcess[Any]":
    """A process run to its end."""
    return subprocess.run(command, preexec_fn=_leash(os.getpid()), **options)


def _leash(parent: int, before_exec: Callable[[], object] | None = None) -> Callable[[], None]:
    """What the child does between fork and exec."""

    def die_with_parent() -> None:
        if before_exec is not None:
            before_exec()
        die_with(parent)

    return die_with_parent


def die_with(parent: int) -> None:
    """For a child that was just forked: the kernel kills it when its parent ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before the kernel knew
        os._exit(1)
