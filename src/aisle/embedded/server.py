"""What PostgreSQL and Valkey have in common: a program from a wheel that listens on a port of 127.0.0.1.

A port we choose may be lost to somebody else before the server binds it; then the next one is tried. A port that
was asked for, or that clients already know from an earlier start, is never exchanged.
"""

import os
import random
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from importlib.util import find_spec
from pathlib import Path

from aisle.embedded.errors import EmbeddedError
from aisle.embedded.home import Home
from aisle.embedded.process import Program, nobody_asks

LOOPBACK = "127.0.0.1"
PORT_TRIES = 5
LOWEST_PORT = 16000


class Server(Program):
    def __init__(self, name: str, *, home: Home, forks: Executor, port: int) -> None:
        super().__init__(name, [], _environment(), home=home, forks=forks)
        self.keeps = home.data / name
        self.port = port or free_port()
        self._port_known = port != 0

    def start(self, stop_asked: Callable[[], bool] = nobody_asks) -> None:
        for _ in range(PORT_TRIES):
            try:
                super().start(stop_asked)
                self._port_known = True
                return
            except EmbeddedError:
                if "Address already in use" not in self._log_of_this_run():
                    raise
                if self._port_known:
                    raise EmbeddedError(
                        f"{self.name} cannot listen: port {self.port} of {LOOPBACK} is already in use"
                    ) from None
                self.port = free_port()
        raise EmbeddedError(f"{self.name} found no free port on {LOOPBACK} in {PORT_TRIES} tries")


def free_port() -> int:
    """A port below those the kernel gives to outgoing connections.

    A port from that range could be taken while its server restarts, or a client that keeps trying could reach itself.
    """
    low, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    candidates = range(LOWEST_PORT, low) if low > LOWEST_PORT + 1000 else range(1)
    for port in random.sample(candidates, k=min(20, len(candidates))):
        with socket.socket() as trial:
            try:
                trial.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(trial.getsockname()[1])
    raise EmbeddedError(f"no free port found on {LOOPBACK}")


def wheel_directory(package: str) -> Path:
    """Where a wheel put its files. Found without importing it: the wheels' own launchers stay unused."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError(f"the package {package} is not installed; run: make setup")
    return Path(spec.submodule_search_locations[0])


def _environment() -> Mapping[str, str]:
    # Nothing of the caller's environment steers a server: a stray PGPORT or LC_ALL would.
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
