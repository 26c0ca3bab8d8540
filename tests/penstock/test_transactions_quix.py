"""Quix Streams, exactly once: a stateful application is killed twice, and its state is as if it never had been.

It runs from an environment of its own (`tests/quix.py`).
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests import children
from tests.apache_kafka import ON_KAFKA
from tests.penstock.conftest import BrokerProcess, StoreProcess, broker_starter
from tests.penstock.group_client import NO_DELAY
from tests.quix import quix_python

ROOT = Path(__file__).parent.parent.parent
PROGRAM = ROOT / "compat" / "quix" / "counting.py"
PATIENCE_S = 120.0
PARTITIONS, KEYS, MESSAGES = 2, 5, 300
pytestmark = ON_KAFKA


@pytest.fixture(scope="session")
def python() -> Path:
    return quix_python()


@pytest.fixture(scope="module")
def broker(valkey: StoreProcess) -> Iterator[BrokerProcess]:
    with broker_starter(valkey) as start:
        yield start(*NO_DELAY)


@pytest.fixture(params=["penstock", "apache-kafka"])
def address(request: pytest.FixtureRequest) -> str:
    if request.param == "penstock":
        return str(request.getfixturevalue("broker").address)
    if os.environ.get("CI") != "true":
        pytest.skip("the comparison with Apache Kafka takes a minute: it runs with CI=true")
    return str(request.getfixturevalue("kafka"))


def test_a_killed_application_counts_every_message_once(address: str, topic: str, python: Path, tmp_path: Path) -> None:
    source, sink = f"{topic}-in", f"{topic}-out"
    fill(address, source, sink)
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    # The second run has no state on disk and must recover it from the changelog; the third finds an old state.
    for state_dir, die_after in ((first, 130), (second, 110), (first, 0)):
        command = [str(python), str(PROGRAM), address, source, sink, topic, state_dir, str(die_after)]
        ended = children.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ended.returncode == (-9 if die_after else 0), ended.stderr
    assert counted(address, sink) == {
        f"key {key}": [(n + 1, sum(range(n + 1))) for n in range(MESSAGES // KEYS)] for key in range(KEYS)
    }


def fill(address: str, source: str, sink: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (source, sink)]).values():
        made.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": address})
    for number in range(MESSAGES):
        key = number % KEYS
        value = json.dumps({"amount": number // KEYS})
        producer.produce(source, value, key=f"key {key}", partition=key % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def counted(address: str, sink: str) -> dict[str, list[tuple[int, int]]]:
    """(count, total) of each key in the order they were said, as far as committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reads-by-position",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(sink, partition, 0) for partition in range(PARTITIONS)])
    found: dict[str, list[tuple[int, int]]] = {}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(1000, 1):
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
            else:
                said = json.loads(message.value())
                found.setdefault(message.key().decode(), []).append((said["number"], said["total"]))
    consumer.close()
    return found
