"""Groups as real clients use them: share, take over, hand on, restart, seek, look from outside."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests import children
from tests.needs import need
from tests.patience import PATIENCE_SECONDS, eventually
from tests.penstock.conftest import BrokerProcess, StoreProcess, broker_starter
from tests.penstock.group_client import NO_DELAY, GroupClient, stored_group, stored_offsets

PARTITIONS = 4


@pytest.fixture(scope="module")
def broker(valkey: StoreProcess) -> Iterator[BrokerProcess]:
    with broker_starter(valkey) as start:
        yield start(*NO_DELAY, "--group-session-min", "0.5")


@pytest.fixture
def group(topic: str) -> str:
    return f"{topic}-group"


class Reader:
    """A confluent-kafka consumer that remembers what it read."""

    def __init__(self, address: str, group: str, topic: str, **changes: object) -> None:
        self.read: list[tuple[int, int, bytes]] = []
        self.revoked = 0
        self.told: dict[str, Any] = {}  # the client's last word about itself
        settings = {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
            "statistics.interval.ms": 1_000,
            "stats_cb": self._tell,
        }
        self.errors: list[str] = []
        changed = {key.replace("_", "."): value for key, value in changes.items()}
        self.consumer = Consumer({**settings, **changed, "error_cb": lambda error: self.errors.append(error.name())})
        self.consumer.subscribe([topic], on_revoke=self._revoked, on_lost=self._revoked)

    def poll(self) -> None:
        for message in self.consumer.consume(500, 0.02):
            if message.error() is None:
                self.read.append((message.partition(), message.offset(), message.value()))
            else:
                self.errors.append(message.error().name())

    def __str__(self) -> str:
        return f"partitions {self.partitions}, read {sorted(self.read)}, errors {self.errors[-5:]}"

    @property
    def partitions(self) -> set[int]:
        return {at.partition for at in self.consumer.assignment()}

    def asks(self, topic: str) -> dict[int, int]:
        """The broker that the client fetches each of its partitions from."""
        known = self.told["topics"][topic]["partitions"]
        return {number: known[str(number)]["broker"] for number in self.partitions}

    def _tell(self, statistics: str) -> None:
        self.told = json.loads(statistics)

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.revoked += 1


def poll_until(readers: Sequence[Reader], condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}: {[str(reader) for reader in readers]}"
        for reader in readers:
            reader.poll()


def share_all(readers: Sequence[Reader]) -> bool:
    shares = [reader.partitions for reader in readers]
    return all(shares) and sorted(p for share in shares for p in share) == list(range(PARTITIONS))


def produce(address: str, topic: str, numbers: Sequence[int]) -> None:
    producer = Producer({"bootstrap.servers": address})
    for n in numbers:
        producer.produce(topic, str(n), partition=n % PARTITIONS)
    assert producer.flush(60) == 0


def numbers(readers: Sequence[Reader]) -> list[int]:
    return sorted(int(value) for reader in readers for _, _, value in reader.read)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_confluent_consumers_share_take_over_and_read_everything_once(
    broker: BrokerProcess, topic: str, group: str, assignor: str
) -> None:
    produce(broker.address, topic, range(100))
    settings = {"partition_assignment_strategy": assignor, "enable_auto_commit": True}
    first = Reader(broker.address, group, topic, **settings)
    poll_until([first], lambda: share_all([first]), "one to have all")
    second = Reader(broker.address, group, topic, **settings)
    try:
        poll_until([first, second], lambda: share_all([first, second]), "two to share")
        poll_until([first, second], lambda: numbers([first, second]) == list(range(100)), "each record once")
        second.consumer.close()
        produce(broker.address, topic, range(100, 200))
        poll_until([first], lambda: share_all([first]), "the one that stayed to take over")
        poll_until([first], lambda: numbers([first, second]) == list(range(200)), "each record once")
        first.consumer.commit(asynchronous=False)
        assert sum(int(v.split()[0]) for v in stored_offsets(broker, group).values()) == 200
    finally:
        first.consumer.close()
    eventually(lambda: stored_group(broker, group)[b"members"] == b"[]", "the empty group to be stored")


def test_the_work_of_a_consumer_that_is_killed_goes_to_the_others(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    produce(broker.address, topic, range(40))
    program = (
        "import sys; from confluent_kafka import Consumer\n"
        "c = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': sys.argv[2], 'session.timeout.ms': 1000,"
        " 'heartbeat.interval.ms': 200})\n"
        "c.subscribe([sys.argv[3]])\n"
        "while True:\n"
        "    c.poll(0.1)\n"
        "    print(len(c.assignment()), flush=True)\n"
    )
    reader = Reader(broker.address, group, topic)
    victim = children.start(
        [sys.executable, "-c", program, broker.address, group, topic],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        poll_until([reader], lambda: len(reader.partitions) == 2, "the work to be shared")
        victim.kill()
        victim.wait()
        poll_until([reader], lambda: len(reader.partitions) == 4, "the work of the dead one")
        poll_until([reader], lambda: set(numbers([reader])) == set(range(40)), "all records")
    finally:
        victim.kill()
        victim.wait()
        assert victim.stdout is not None
        victim.stdout.close()
        reader.consumer.close()


def test_a_static_member_restarts_without_a_rebalance(broker: BrokerProcess, topic: str, group: str) -> None:
    produce(broker.address, topic, range(40))
    stays, goes = (Reader(broker.address, group, topic, group_instance_id=f"seat-{n}") for n in range(2))
    poll_until([stays, goes], lambda: share_all([stays, goes]), "two to share")
    revoked, generation, had = stays.revoked, stored_group(broker, group)[b"generation"], goes.partitions
    goes.consumer.close()
    back = Reader(broker.address, group, topic, group_instance_id="seat-1")
    try:
        poll_until([stays, back], lambda: back.partitions == had, "its own partitions")
        assert stored_group(broker, group)[b"generation"] == generation
        assert stays.revoked == revoked
    finally:
        stays.consumer.close()
        back.consumer.close()


def test_a_second_process_with_the_same_instance_id_fences_the_first(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    produce(broker.address, topic, range(4))
    old = Reader(broker.address, group, topic, group_instance_id="seat")
    poll_until([old], lambda: share_all([old]), "the first to have all")
    new = Reader(broker.address, group, topic, group_instance_id="seat")
    try:
        poll_until([old, new], lambda: share_all([new]) and bool(old.errors), "the first to be fenced")
        assert "_FATAL" in old.errors
        assert not old.partitions
    finally:
        old.consumer.close()
        new.consumer.close()


def test_a_member_reads_again_from_where_it_seeks_to(broker: BrokerProcess, topic: str, group: str) -> None:
    produce(broker.address, topic, range(40))
    reader = Reader(broker.address, group, topic)
    try:
        poll_until([reader], lambda: len(reader.read) == 40, "all records")
        reader.read.clear()
        reader.consumer.seek(TopicPartition(topic, 2, 7))
        poll_until([reader], lambda: len(reader.read) == 3, "the last three of the partition again")
        assert [(p, o) for p, o, _ in reader.read] == [(2, 7), (2, 8), (2, 9)]
    finally:
        reader.consumer.close()


def test_what_was_committed_is_where_the_next_one_starts(broker: BrokerProcess, topic: str, group: str) -> None:
    produce(broker.address, topic, range(40))
    first = Reader(broker.address, group, topic)
    poll_until([first], lambda: len(first.read) == 40, "all records")
    first.consumer.commit(offsets=[TopicPartition(topic, p, 10 - p) for p in range(4)], asynchronous=False)
    first.consumer.close()
    second = Reader(broker.address, group, topic)
    try:
        poll_until([second], lambda: len(second.read) == 6, "what was not committed")
        assert sorted((p, o) for p, o, _ in second.read) == [(1, 9), (2, 8), (2, 9), (3, 7), (3, 8), (3, 9)]
    finally:
        second.consumer.close()


def test_tools_list_describe_move_and_delete_groups(broker: BrokerProcess, topic: str, group: str) -> None:
    produce(broker.address, topic, range(40))
    admin = AdminClient({"bootstrap.servers": broker.address})
    reader = Reader(broker.address, group, topic, client_id="the reader")
    poll_until([reader], lambda: share_all([reader]), "all partitions")
    described = admin.describe_consumer_groups([group])[group].result(30)
    assert described.state is ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    [member] = described.members
    assert (member.client_id, member.host) == ("the reader", "/127.0.0.1")
    assert {at.partition for at in member.assignment.topic_partitions} == {0, 1, 2, 3}
    listed = admin.list_consumer_groups().result(30)
    assert {row.group_id: row.state for row in listed.valid}[group] is ConsumerGroupState.STABLE
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(30)
    reader.consumer.close()
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 4)])
    admin.alter_consumer_group_offsets([moved])[group].result(30)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    assert {(at.partition, at.offset) for at in found.topic_partitions} == {(0, 3), (1, 4)}
    assert admin.delete_consumer_groups([group])[group].result(30) is None
    assert stored_offsets(broker, group) == {}
    assert stored_group(broker, group) == {}


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor], ids=lambda a: a.name
)
async def test_aiokafka_consumers_share_take_over_and_commit(
    broker: BrokerProcess, topic: str, group: str, assignor: type
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        for n in range(40):
            await producer.send_and_wait(topic, str(n).encode(), partition=n % PARTITIONS)

    def reader() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[assignor],
            heartbeat_interval_ms=200,
            metadata_max_age_ms=1000,
        )

    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(reader())
        seen = await _records(first, 40)
        assert sorted(int(value) for value in seen) == list(range(40))
        await first.commit()
        second = reader()
        await second.start()
        await _until(lambda: {len(first.assignment()), len(second.assignment())} == {2}, "two to share")
        assert first.assignment() | second.assignment() == {(topic, p) for p in range(4)}
        await second.stop()
        await _until(lambda: len(first.assignment()) == 4, "the one that stayed to take over")
    offsets = {int(value.split()[0]) for value in stored_offsets(broker, group).values()}
    assert offsets == {10}
    async with reader() as third:
        assert await third.committed(next(iter(third.assignment()))) == 10


async def _records(consumer: AIOKafkaConsumer, count: int) -> list[bytes]:
    seen: list[bytes] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(seen) < count:
            batches = await consumer.getmany(timeout_ms=1000)
            seen += [record.value for rows in batches.values() for record in rows]
    return seen


async def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


def test_kafka_python_consumers_share_take_over_and_look_from_outside(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    produce(broker.address, topic, range(40))
    story = Path(__file__).with_name("kafka_python_group_story.py")
    command = [sys.executable, "-W", "ignore", str(story), broker.address, topic, group]
    ended = children.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert sorted(told["values"]) == list(range(40))
    assert sorted(told["shared"]) == [2, 2]
    assert told["taken_over"] == 4
    assert told["committed"] == 10
    assert (told["state"], told["members"]) == ("Stable", 1)
    eventually(lambda: stored_group(broker, group)[b"members"] == b"[]", "the empty group to be stored")


def test_kcat_reads_as_a_group_and_goes_on_where_it_stopped(broker: BrokerProcess, topic: str, group: str) -> None:
    need("kcat", "tests/install-programs.sh installs it on Debian")

    def kcat(count: int) -> list[int]:
        flags = ["-X", "auto.offset.reset=earliest", "-c", str(count), "-q", "-f", "%s\n"]
        command = ["kcat", "-b", broker.address, "-G", group, *flags, topic]
        ended = children.run(command, capture_output=True, text=True, timeout=60, check=True)
        return [int(line) for line in ended.stdout.split()]

    produce(broker.address, topic, range(40))
    first = kcat(40)
    produce(broker.address, topic, range(40, 60))
    assert sorted(first + kcat(20)) == list(range(60))
    assert sum(int(value.split()[0]) for value in stored_offsets(broker, group).values()) == 60


def test_a_group_name_may_be_anything(broker: BrokerProcess, topic: str) -> None:
    name = f"größe {{c1}}:*:{topic} 💡"
    with GroupClient(broker.port) as client:
        client.create_topic(topic)
        assert client.commit(name, {(topic, 0): 1}) == {(topic, 0): 0}
        assert client.committed(name) == {(topic, 0): (1, 0, "")}
        assert client.groups()[name] == "Empty"
