"""Brings the growing files of a folder to the disk once a second, from a thread of its own.

Used by `valkey`, whose own syncing holds writes back while the disk is slow. It only syncs: it never writes, moves or
deletes, and a file that is gone when its turn comes is no concern of it. `after_each` is called after every round.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path

PULSE_SECONDS = 1.0
STOP_SECONDS = 5.0  # a sync on a slow disk is waited for so long; it does no harm if it ends later


class DiskPulse:
    def __init__(
        self, folder: Path, pattern: str, on_failure: Callable[[OSError], None], after_each: Callable[[], None]
    ) -> None:
        self._folder = folder
        self._pattern = pattern
        self._on_failure = on_failure
        self._after_each = after_each
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Safe to repeat."""
        if self._thread is not None:
            return
        self._ending.clear()
        self._thread = threading.Thread(target=self._beat, name="aisle-disk-pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Safe to repeat."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ending.set()
            thread.join(STOP_SECONDS)

    def _beat(self) -> None:
        while not self._ending.wait(PULSE_SECONDS):
            try:
                for path in self._folder.glob(self._pattern):
                    _sync(path)
                self._after_each()
            except OSError as error:
                self._on_failure(error)
                return


def _sync(path: Path) -> None:
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fdatasync(file)
    finally:
        os.close(file)
