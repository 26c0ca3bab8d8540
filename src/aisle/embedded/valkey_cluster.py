"""A Valkey cluster on one machine: three primaries, each with a replica, as six supervised servers.

For trying out and testing what runs on many machines elsewhere. A primary that is gone for NODE_TIMEOUT_MS is replaced
by its replica; the other slots go on being served meanwhile.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from redis import Redis
from redis.exceptions import RedisError

from aisle.embedded.errors import EmbeddedError
from aisle.embedded.ports import remembered_ports
from aisle.embedded.server import LOOPBACK
from aisle.embedded.supervisor import Supervisor
from aisle.embedded.valkey import ANSWER_SECONDS, ValkeyServer

PRIMARIES = 3
SLOTS = 16384
NODE_TIMEOUT_MS = 3000
FORM_SECONDS = 120.0
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class ValkeyCluster:
    """`nodes[n]` begins as a primary, `nodes[n + PRIMARIES]` as its replica."""

    nodes: list[ValkeyServer]

    @property
    def url(self) -> str:
        """Every node, also the replicas: whoever starts while a primary is away finds the cluster through another."""
        password = self.nodes[0].password
        return f"valkey+cluster://:{password}@" + ",".join(f"{LOOPBACK}:{node.port}" for node in self.nodes)

    def tell(self, number: int, *command: str | int) -> object:
        with self._admin(self.nodes[number]) as admin:
            return admin.execute_command(*command)  # type: ignore[no-untyped-call]

    def facts(self, number: int, section: str) -> dict[str, str]:
        """What a node says of the cluster (`CLUSTER INFO`) or of itself (`INFO` of a section)."""
        with self._admin(self.nodes[number]) as admin:
            if section == "cluster":
                return {str(name): str(value) for name, value in admin.cluster("INFO").items()}
            return {str(name): str(value) for name, value in admin.info(section).items()}

    def slots(self) -> list[tuple[int, int, int]]:
        """Who serves what, asked of the first node that answers: first slot, last slot, port."""
        number = next(number for number, node in enumerate(self.nodes) if node.running)
        with self._admin(self.nodes[number]) as admin:
            found = admin.execute_command("CLUSTER SLOTS")  # type: ignore[no-untyped-call]
        return [(first, last, int(primary[1])) for first, last, primary, *_ in found]

    @property
    def whole(self) -> bool:
        """Every running node knows all others, every slot is served, every replica follows."""
        try:
            return all(self._in_order(number) for number, node in enumerate(self.nodes) if node.running)
        except RedisError:
            return False

    def _in_order(self, number: int) -> bool:
        cluster, replication = self.facts(number, "cluster"), self.facts(number, "replication")
        follows = replication["role"] == "master" or replication.get("master_link_status") == "up"
        known = int(cluster["cluster_known_nodes"]) == len(self.nodes)
        return cluster["cluster_state"] == "ok" and known and follows

    @contextlib.contextmanager
    def _admin(self, node: ValkeyServer) -> Iterator[Redis]:
        admin = Redis(
            host=LOOPBACK, port=node.port, password=node.password, socket_timeout=ANSWER_SECONDS, decode_responses=True
        )
        try:
            yield admin
        finally:
            admin.close()


def start_valkey_cluster(supervisor: Supervisor) -> ValkeyCluster:
    """Start the six nodes, form the cluster if it is new, return when it is whole."""
    names = [f"store-{number + 1}" for number in range(PRIMARIES * 2)]
    ports = remembered_ports(supervisor.data, [name for each in names for name in (each, f"{each}-bus")])
    password = supervisor.secret("valkey")
    with ThreadPoolExecutor(len(names)) as starters:
        nodes = starters.map(lambda name: _start_node(supervisor, name, ports, password), names)
        cluster = ValkeyCluster(list(nodes))
    if cluster.facts(0, "cluster")["cluster_slots_assigned"] == "0":
        _form(cluster, ports)
    _wait(lambda: cluster.whole, "the store's nodes did not form a cluster")
    return cluster


def _start_node(supervisor: Supervisor, name: str, ports: dict[str, int], password: str) -> ValkeyServer:
    options = {
        "cluster-enabled": "yes",
        "cluster-port": str(ports[f"{name}-bus"]),
        "cluster-announce-ip": LOOPBACK,
        "cluster-node-timeout": str(NODE_TIMEOUT_MS),
        "cluster-require-full-coverage": "no",
        "primaryauth": password,
    }
    return supervisor.start_valkey(name, port=ports[name], options=options)


def _form(cluster: ValkeyCluster, ports: dict[str, int]) -> None:
    edges = [SLOTS * number // PRIMARIES for number in range(PRIMARIES + 1)]
    for number, node in enumerate(cluster.nodes):
        if number < PRIMARIES:
            cluster.tell(number, "CLUSTER", "ADDSLOTSRANGE", edges[number], edges[number + 1] - 1)
        cluster.tell(number, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        if number:
            cluster.tell(0, "CLUSTER", "MEET", LOOPBACK, node.port, ports[f"{node.name}-bus"])
    everybody = [str(cluster.tell(number, "CLUSTER", "MYID")) for number in range(len(cluster.nodes))]
    for number in range(PRIMARIES):
        replica = number + PRIMARIES
        _wait(lambda: _knows(cluster, replica, everybody[number]), "the store's nodes did not meet")  # noqa: B023
        cluster.tell(replica, "CLUSTER", "REPLICATE", everybody[number])


def _knows(cluster: ValkeyCluster, number: int, other: str) -> bool:
    return other in str(cluster.tell(number, "CLUSTER", "NODES"))


def _wait(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + FORM_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise EmbeddedError(f"{complaint} within {FORM_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
