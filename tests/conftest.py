"""Real servers for every test: one PostgreSQL and one Valkey a run, a database a worker, a key prefix a test.

Fixtures are synchronous; `async def` tests run on a fresh event loop each and open what is async inside the test.
A server that does not start fails the run: nothing here is skipped for want of it.
"""

import asyncio
import inspect
import itertools
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import asyncpg
import msgspec
import pytest
import uvloop

from aisle.config import Config
from aisle.embedded import process
from aisle.embedded.server import free_port
from aisle.embedded.supervisor import Supervisor
from aisle.metrics import Metrics
from aisle.migrate import migrate
from tests.apache_kafka import answers, apache_kafka
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.people import Person
    from tests.scale.topology import ScaleStage
    from tests.stage import Stage

_prefixes = itertools.count()


class Servers(NamedTuple):
    database_url: str
    store_url: str
    kafka: str


class ServersOfTheRun:
    """Starts the servers in the controlling process, before the workers, and hands their addresses out."""

    def __init__(self, folder: Path) -> None:
        self._supervisor = Supervisor(folder, log=lambda line: None)
        self._supervisor.start()
        # Durability is tested on servers of its own; here speed counts.
        postgres = self._supervisor.start_postgres(options={"fsync": "off", "max_connections": "300"})
        valkey = self._supervisor.start_valkey(append=False)
        self.servers = Servers(postgres.url, valkey.url, self._start_penstock(valkey.url))

    def _start_penstock(self, store_url: str) -> str:
        """For processes that only publish. Tests that also consume start one of their own (`tests/brokers.py`)."""
        address = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "penstock", "serve", "--listen", address]
        self._supervisor.start_program(
            "penstock", command, {"PENSTOCK_STORE": store_url}, ready=lambda: answers(address)
        )
        return address

    def pytest_configure_node(self, node: object) -> None:
        node.workerinput["servers"] = tuple(self.servers)  # type: ignore[attr-defined]

    def pytest_unconfigure(self) -> None:
        self._supervisor.stop()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-servers", action="store_true", help="for tests that need none: start no PostgreSQL and Valkey"
    )
    parser.addoption(
        "--scale", action="store_true", help="every module's stage is the topology of many processes on Apache Kafka"
    )


def pytest_configure(config: pytest.Config) -> None:
    # A server that starts on a busy machine, among four workers, may take longer than a person would wait for it.
    process.START_SECONDS = PATIENCE_SECONDS
    # A worker that has run hundreds of tests with real clients has more open files than the usual soft limit allows.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if not hasattr(config, "workerinput") and not config.getoption("--no-servers"):
        folder = tempfile.TemporaryDirectory(prefix="aisle-tests-")
        config.add_cleanup(folder.cleanup)
        config.pluginmanager.register(ServersOfTheRun(Path(folder.name) / "data"), "servers-of-the-run")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share what their module has started run in one worker, and the long ones run first."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None and _shares_with_its_module(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    long = {_company(item) for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: _company(item) not in long)


def _shares_with_its_module(item: pytest.Item) -> bool:
    """Spread over the workers, such tests would start the same server in each."""
    info = getattr(item, "_fixtureinfo", None)
    return info is not None and any(found[-1].scope == "module" for found in info.name2fixturedefs.values())


def _company(item: pytest.Item) -> str:
    """Whatever goes to one worker as a whole."""
    group = item.get_closest_marker("xdist_group")
    return str(group.args[0]) if group else item.nodeid


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest) -> Servers:
    given = getattr(request.config, "workerinput", {}).get("servers")
    if given:
        return Servers(*given)
    return request.config.pluginmanager.get_plugin("servers-of-the-run").servers


@pytest.fixture(scope="session")
def database_url(servers: Servers, worker_id: str) -> str:
    """A migrated database of this worker's own."""
    name = f"test_{worker_id}"

    async def create() -> None:
        connection = await asyncpg.connect(servers.database_url)
        await connection.execute(f'create database "{name}"')
        await connection.close()
        await migrate(Config(database_url=_other_database(servers.database_url, name)))

    asyncio.run(create())
    return _other_database(servers.database_url, name)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Apache Kafka, for tests that are marked with `ON_KAFKA` and use topics of their own."""
    with apache_kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture(scope="session")
def scale(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ScaleStage]":
    """Two processes a role on Apache Kafka and a store cluster, for tests that are marked with `ON_SCALE`."""
    from tests.scale.topology import running_topology
    from tests.stage import require_no_drift

    with running_topology(tmp_path_factory.mktemp("scale")) as stage:
        yield stage
        stage.look(require_no_drift)


@pytest.fixture
def config(database_url: str, servers: Servers, worker_id: str) -> Config:
    """Settings that point at this worker's database and at keys no other test uses."""
    return Config(
        database_url=database_url,
        store_url=servers.store_url,
        store_prefix=f"{worker_id}.{next(_prefixes)}:",
        kafka=servers.kafka,
        port=0,
    )


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """What a module's stage is set to differently."""
    return {}


@pytest.fixture(scope="module")
def stage(
    servers: Servers,
    tmp_path_factory: pytest.TempPathFactory,
    settings: dict[str, Any],
    request: pytest.FixtureRequest,
) -> "Iterator[Stage]":
    """The whole product, running, for the tests of a module."""
    from tests.stage import running_stage

    if request.config.getoption("--scale"):
        yield request.getfixturevalue("scale")
        return
    with running_stage(servers, tmp_path_factory.mktemp("stage"), **settings) as stage:
        yield stage


@pytest.fixture(scope="module")
def seller(stage: "Stage") -> "Iterator[Person]":
    with stage.person("seller") as seller:
        yield seller


@pytest.fixture(scope="module")
def buyer(stage: "Stage") -> "Iterator[Person]":
    with stage.person("buyer") as buyer:
        yield buyer


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def fresh_database_url(servers: Servers, worker_id: str) -> Iterator[str]:
    """An empty database for one test: no table, no migration."""
    name = f"fresh_{worker_id}_{next(_prefixes)}"

    async def execute(statement: str) -> None:
        connection = await asyncpg.connect(servers.database_url)
        await connection.execute(statement)
        await connection.close()

    asyncio.run(execute(f'create database "{name}"'))
    yield _other_database(servers.database_url, name)
    asyncio.run(execute(f'drop database "{name}" with (force)'))


def with_settings(config: Config, **changes: object) -> Config:
    return msgspec.structs.replace(config, **changes)


def _other_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()
