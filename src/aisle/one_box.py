"""`aisle scale`: the product as it runs on many machines, on one: Apache Kafka, a store cluster, two processes a role.

The same commands with the same settings as on forty hosts; only the addresses are loopback ones, one a process. Engines
that a URL names are used as they are, the others are started here. Ctrl-C stops all of it.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from aisle.cli_demo import try_demo
from aisle.config import Config, environment_of
from aisle.embedded.errors import EmbeddedError
from aisle.embedded.kafka import start_kafka
from aisle.embedded.postgres import PostgresServer
from aisle.embedded.process import Program
from aisle.embedded.server import free_port
from aisle.embedded.supervisor import Supervisor
from aisle.embedded.valkey_cluster import ValkeyCluster, start_valkey_cluster
from aisle.http_server import listen
from aisle.log import log_answers
from aisle.migrate import migrate
from aisle.servers_file import servers_file
from aisle.up import answers, say

# Each role has a network of its own, so that an address tells what listens there: 127.0.1.2 is the second API process.
NETWORKS = {"api": 1, "live": 2, "reservation": 3, "booking": 4, "ticketing": 5}
PROCESSES = 2
# Ten processes of twenty connections, and somebody who looks in.
CONNECTIONS_MAX = 300
STARTERS = 4
JARS = Path(".cache/kafka")


@dataclass(slots=True)
class Topology:
    """What was started. `config` is what all processes share, with the host of the first one that answers buyers."""

    config: Config
    postgres: PostgresServer | None = None
    store: ValkeyCluster | None = None
    kafka: Program | None = None
    processes: dict[str, Program] = field(default_factory=dict)

    @property
    def programs(self) -> list[Program]:
        engines = [self.postgres, *(self.store.nodes if self.store else []), self.kafka]
        return [*(engine for engine in engines if engine is not None), *self.processes.values()]

    def address(self, name: str) -> str:
        return f"http://{host_of(name)}:{self.config.port}"


def scale(config: Config, *, jars: Path, demo: bool = False) -> int:
    config = msgspec.structs.replace(config, host=host_of("api-1"), port=config.port or free_port())
    listen(config).close()  # a busy port is said before anything is started
    with Supervisor(Path(config.data_dir), log=say) as supervisor:
        topology = start_topology(config, supervisor, jars)
        with servers_file(topology.config):
            address = topology.address("api-1")
            shown = try_demo(topology.config, address) if demo else []
            say("")
            say(f"  Aisle is ready at {address} and {topology.address('api-2')}")
            for line in shown:
                say(line)
            say(f"  live updates {topology.address('live-1')} and {topology.address('live-2')}")
            say(f"  data, logs   {config.data_dir}")
            say("  Ctrl-C stops it; the data stays.")
            return supervisor.wait()


def start_topology(
    config: Config,
    supervisor: Supervisor,
    jars: Path,
    *,
    database_options: Mapping[str, str] | None = None,
    around: Callable[[str, Config], Config] = lambda name, config: config,
) -> Topology:
    """Engines that no URL names, the schema, then every process. `around` may give a process other settings."""
    if (supervisor.data / "valkey").exists():
        raise EmbeddedError(f"{supervisor.data} belongs to `aisle up`; set AISLE_DATA_DIR to another directory")
    topology = Topology(config)
    _start_engines(topology, supervisor, jars, database_options or {})
    asyncio.run(migrate(topology.config))
    start = _starter(topology, supervisor, around)
    # A start is mostly loading code, so a few at a time are done sooner than one after the other.
    with ThreadPoolExecutor(STARTERS) as starters:
        for name, program in zip(names(), starters.map(start, names()), strict=True):
            topology.processes[name] = program
    return topology


def names() -> list[str]:
    return [f"{role}-{number + 1}" for role in NETWORKS for number in range(PROCESSES)]


def host_of(name: str) -> str:
    role, _, number = name.rpartition("-")
    return f"127.0.{NETWORKS[role]}.{number}"


def _start_engines(topology: Topology, supervisor: Supervisor, jars: Path, database_options: Mapping[str, str]) -> None:
    urls: dict[str, str] = {}
    if not topology.config.kafka:
        topology.kafka, urls["kafka"] = start_kafka(supervisor, jars, log_answers)
    if not topology.config.database_url:
        options = {"max_connections": str(CONNECTIONS_MAX), **database_options}
        topology.postgres = supervisor.start_postgres(options=options)
        urls["database_url"] = topology.postgres.tcp_url
    if not topology.config.store_url:
        topology.store = start_valkey_cluster(supervisor)
        urls["store_url"] = topology.store.url
    topology.config = msgspec.structs.replace(topology.config, **urls)


def _starter(
    topology: Topology, supervisor: Supervisor, around: Callable[[str, Config], Config]
) -> Callable[[str], Program]:
    def start(name: str) -> Program:
        config = around(name, msgspec.structs.replace(topology.config, host=host_of(name)))
        return supervisor.start_program(
            name,
            [sys.executable, "-m", "aisle", "serve", "--roles", name.rpartition("-")[0]],
            environment_of(config),
            ready=lambda: answers(f"{topology.address(name)}/readyz"),
        )

    return start
