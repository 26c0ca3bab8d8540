"""`aisle up` started the way an operator starts it, with what it prints and everyone it starts."""

import asyncio
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import psutil

from aisle.embedded.server import free_port
from tests import children
from tests.running import PATIENCE_SECONDS, clean_environment, family, logs_of, wait_until


class Up:
    """A started `aisle up` with what it has printed so far."""

    def __init__(self, data: Path, port: int, *arguments: str) -> None:
        self.data = data
        self.address = f"http://127.0.0.1:{port}"
        self.output = data.parent / "output"
        with self.output.open("wb") as output:
            self.process = children.start(
                [sys.executable, "-m", "aisle", "up", *arguments],
                env=clean_environment({"AISLE_DATA_DIR": str(data), "AISLE_PORT": str(port)}),
                stdout=output,
                stderr=output,
            )
        wait_until(lambda: "is ready at" in self.output.read_text(), "the address is printed", self.process)
        self.everyone = family(self.process.pid)

    def pid_of(self, name: str) -> int:
        return int(re.findall(rf"^{name} is ready.*\(pid (\d+)\)", self.output.read_text(), re.MULTILINE)[-1])

    def end(self, number: signal.Signals) -> None:
        self.everyone = family(self.process.pid)
        self.process.send_signal(number)
        self.process.wait(PATIENCE_SECONDS)

    def assert_nobody_is_left(self) -> None:
        _, alive = psutil.wait_procs(self.everyone, timeout=PATIENCE_SECONDS)
        assert not alive, f"still running: {alive}\n{logs_of(self.data)}"


@contextmanager
def up(data: Path, *arguments: str) -> Iterator[Up]:
    started = Up(data, free_port(), *arguments)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.end(signal.SIGTERM)


def installation(started: Up) -> str:
    """The row that names this installation, read with the address that the served process was given."""

    async def read(url: str) -> str:
        connection = await asyncpg.connect(url)
        try:
            return str(await connection.fetchval("select id from installation"))
        finally:
            await connection.close()

    return asyncio.run(read(psutil.Process(started.pid_of("aisle")).environ()["AISLE_DATABASE_URL"]))
