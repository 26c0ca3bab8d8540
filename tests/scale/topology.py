"""The product on many processes, on Apache Kafka and a store cluster: what tests do to it, and how it is healed.

One topology a run, in one worker: it is dear to start. Every test sells an event of its own and leaves all of it whole.
"""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from aisle.config import Config
from aisle.embedded.process import Program
from aisle.embedded.server import free_port
from aisle.embedded.supervisor import Supervisor
from aisle.embedded.valkey_cluster import PRIMARIES, ValkeyCluster
from aisle.one_box import Topology, host_of, start_topology
from respline import key_slot
from tests.apache_kafka import JARS, require_apache_kafka
from tests.people import Person
from tests.running import as_environment, run_aisle, wait_until
from tests.scale.wall import Wall
from tests.stage import Stage, settle

ON_SCALE = [pytest.mark.xdist_group("scale"), pytest.mark.long]

# Waits that an operator would choose longer; here a test waits for each of them.
IMPATIENT = {"store_timeout": 2.0, "store_connect_timeout": 2.0, "store_breaker_seconds": 2.0, "database_timeout": 4.0}
WALLED = "api-2"
# How often a difference has to be seen unchanged before it counts as lost, and the pause between two looks.
LOOKS = 3
LOOK_SECONDS = 1.5


class ScaleStage(Stage):
    """A stage whose product is a topology; its first API process is the one that `person` talks to."""

    def __init__(self, topology: Topology, folder: Path, wall: Wall) -> None:
        super().__init__(topology.config, folder, topology.kafka)
        self.topology = topology
        # Stands between the second API process and PostgreSQL.
        self.wall = wall

    @property
    def store(self) -> ValkeyCluster:
        assert self.topology.store is not None
        return self.topology.store

    def address_of(self, name: str) -> str:
        return self.topology.address(name)

    @contextmanager
    def person_at(self, name: str, like: Person) -> Iterator[Person]:
        """The same person, at another process."""
        with Person(self.address_of(name)) as person:
            person.id, person.token = like.id, like.token
            yield person

    def primary_of(self, event: int, place: str = "A-1") -> int:
        """The number of the node that has the seats of a place now."""
        slot = key_slot(f"{self.config.store_prefix}seats_bf:{{{event}:{place}}}")
        for first, last, *nodes in self.store.slots():
            if first <= slot <= last:
                return next(n for n, node in enumerate(self.store.nodes) if node.port == nodes[0])
        raise AssertionError(f"nobody serves slot {slot}")

    def kill(self, *names: str) -> None:
        for name in names:
            self.topology.processes[name].kill()

    def heal(self, event: int) -> None:
        """What an operator does: start what is down, rebuild what a failover lost, let the sale go on."""
        down = [program for program in self.topology.programs if not program.running]
        with ThreadPoolExecutor(4) as starters:
            list(starters.map(Program.start, down))
        wait_until(lambda: self.store.whole, "the cluster is whole")
        if self.differences_that_stay():
            self.rebuild(event)
        for name in self.topology.processes:
            self.wait_until_ready(name)

    def differences_that_stay(self) -> str:
        """What `aisle verify --admit` finds again and again.

        A booking on its way is a difference until it has arrived, and a rebuild would take its seats away.
        """
        seen: list[str] = []
        while True:
            looked = run_aisle("verify", "--admit", env=self.environment)
            if looked.returncode == 0:
                return ""
            seen.append(looked.stdout + looked.stderr)
            if seen[-LOOKS:] == [seen[-1]] * LOOKS:
                return seen[-1]
            time.sleep(LOOK_SECONDS)

    def rebuild(self, event: int) -> None:
        rebuilt = run_aisle("rebuild", "--event", str(event), env=self.environment)
        assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
        wait_until(
            lambda: run_aisle("verify", "--admit", env=self.environment).returncode == 0, "the store is verified again"
        )

    def wait_until_ready(self, name: str) -> None:
        from aisle.up import answers

        wait_until(lambda: answers(f"{self.address_of(name)}/readyz"), f"{name} is ready")

    @property
    def environment(self) -> dict[str, str]:
        return as_environment(self.config)

    def settle_all(self, *events: int) -> None:
        self.look(lambda database, store: settle(database, store, list(events)))


@contextmanager
def running_topology(folder: Path) -> Iterator[ScaleStage]:
    require_apache_kafka()
    config = Config(
        host=host_of("api-1"), port=free_port(), data_dir=str(folder / "data"), secret_key="ab" * 32,
        logins_per_address=1_000_000, registrations_per_address=1_000_000, own_lane_from_seats=100, **IMPATIENT,
    )  # fmt: skip
    wall = Wall()

    def behind_the_wall(name: str, config: Config) -> Config:
        if name != WALLED:
            return config
        return msgspec.structs.replace(config, database_url=wall.before(config.database_url))

    with Supervisor(folder / "data", log=lambda line: None) as supervisor, wall:
        # Durability is tested elsewhere, on servers of its own.
        topology = start_topology(config, supervisor, JARS, database_options={"fsync": "off"}, around=behind_the_wall)
        stage = ScaleStage(topology, folder, wall)
        with stage.people:
            yield stage


def lagging(stage: ScaleStage, primary: int) -> int:
    """Cut the replica of a primary off from it, so that it misses what is written from now on; returns its number."""
    replica = (primary + PRIMARIES) % (2 * PRIMARIES)
    stage.store.tell(replica, "CONFIG", "SET", "primaryauth", "not the password")
    stage.store.tell(replica, "CLIENT", "KILL", "TYPE", "primary")
    wait_until(
        lambda: stage.store.facts(replica, "replication")["master_link_status"] == "down", "the replica is cut off"
    )
    return replica


def take_over(stage: ScaleStage, replica: int) -> None:
    """Make the replica the primary, whatever it has missed; the old primary follows it and forgets the rest."""
    stage.store.tell(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
    stage.store.tell(replica, "CONFIG", "SET", "primaryauth", stage.store.nodes[0].password)
    wait_until(lambda: stage.store.facts(replica, "replication")["role"] == "master", "the replica has taken over")
    wait_until(lambda: stage.store.whole, "the old primary follows")


def members(stage: ScaleStage, group: str) -> dict[str, int]:
    """Client id and partitions of each member of a consumer group."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": stage.config.kafka, "log_level": 0})
    described = admin.describe_consumer_groups([group])[group].result(timeout=30)
    return {member.member_id: len(member.assignment.topic_partitions) for member in described.members}


async def all_orders(
    stage: ScaleStage, event: int, tokens: list[str], keys: list[str], *, at: tuple[str, ...]
) -> dict[str, str]:
    """Everybody books one place, spread over API processes, and asks the next one if one does not answer.

    Returns the booking of each key. Somebody who asks again uses the same key, as browsers and programs do.
    """
    from tests.http_client import connections

    found: dict[str, str] = {}

    async def book(n: int) -> None:
        order = {"event_id": event, "quantity": 1}
        for turn in range(n, n + 60):
            try:
                async with connections(stage.address_of(at[turn % len(at)]), 1) as [connection]:
                    answer = await connection.request("POST", "/bookings", order, token=tokens[n], key=keys[n])
            except (OSError, TimeoutError):
                await asyncio.sleep(0.3)
                continue
            if answer.status == 202:
                found[keys[n]] = answer.json["id"]
                return
            if answer.status == 409:
                found[keys[n]] = ""
                return
            assert answer.status in (500, 503), answer.body
            await asyncio.sleep(0.5)
        raise AssertionError(f"buyer {n} never got an answer")

    await asyncio.gather(*(book(n) for n in range(len(tokens))))
    return found
