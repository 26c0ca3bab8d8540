"""The whole product on this machine, started for a benchmark: servers, log, API and workers, each a process of its own.

The same processes that `aisle up` starts, on a temporary directory. CPU time is read from /proc for every process and
its children, so that nothing the product spends is left out.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aisle.config import Config
from aisle.embedded.server import free_port
from aisle.embedded.supervisor import Supervisor
from aisle.one_box import host_of, start_topology
from aisle.up import start_everything

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Product:
    config: Config
    pids: Mapping[str, int]
    # those that answer buyers
    hosts: tuple[str, ...] = ("127.0.0.1",)

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time of each process so far, with everything it started."""
        return {name: sum(map(_cpu_seconds, _family(pid))) for name, pid in self.pids.items()}

    def cpu_since(self, before: Mapping[str, float]) -> dict[str, float]:
        return {name: after - before[name] for name, after in self.cpu_seconds().items()}


@contextmanager
def running_product(kept: Path | None = None) -> Iterator[Product]:
    """In a folder that is removed afterwards, or in one that is kept."""
    with tempfile.TemporaryDirectory(prefix="aisle-bench-") as folder:
        config = Config(data_dir=str((kept or Path(folder)) / "data"), port=free_port())
        with Supervisor(Path(config.data_dir), log=lambda line: None) as supervisor:
            config, programs = start_everything(config, supervisor, lambda line: None)
            yield Product(config, {program.name: program.pid for program in programs})


@contextmanager
def running_topology(jars: Path) -> Iterator[Product]:
    """The same on Apache Kafka, a store cluster and two processes a role, as `aisle scale` starts them."""
    with tempfile.TemporaryDirectory(prefix="aisle-bench-") as folder:
        config = Config(data_dir=str(Path(folder) / "data"), host=host_of("api-1"), port=free_port())
        with Supervisor(Path(config.data_dir), log=lambda line: None) as supervisor:
            topology = start_topology(config, supervisor, jars)
            pids = {program.name: program.pid for program in topology.programs}
            yield Product(topology.config, pids, (host_of("api-1"), host_of("api-2")))


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in use now."""
    return int(_text(f"/proc/{pid}/statm").split()[1]) * PAGE


def _family(pid: int) -> list[int]:
    found, todo = [pid], [pid]
    while todo:
        parent = todo.pop()
        for task in _listed(f"/proc/{parent}/task"):
            children = _text(f"/proc/{parent}/task/{task}/children").split()
            found += map(int, children)
            todo += map(int, children)
    return found


def _cpu_seconds(pid: int) -> float:
    # Fields 14 to 17: user and system time of the process and of the children it has already buried.
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS if fields else 0.0


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
