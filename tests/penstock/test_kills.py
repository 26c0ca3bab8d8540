"""Brokers, the store and a client are killed again and again, in the middle of whatever they do.

Records are written by an idempotent producer and copied by a program in transactions. In the end every acknowledged
record is in both topics, once, in its order, and no transaction is left open. `make kills` does it for many seeds.
"""

import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests import children
from tests.patience import PATIENCE_SECONDS
from tests.penstock.conftest import BrokerProcess, StartBroker, StoreProcess
from tests.penstock.copying import QUICK
from tests.penstock.group_client import NO_DELAY
from tests.penstock.seeds import seeds

PARTITIONS = 4
KILLS = 8


class Copier:
    """The copying program, started again whenever it has ended."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._command = [sys.executable, "-W", "ignore", "-m", "tests.penstock.copying", *arguments]
        self._process = self._started()
        self.starts = 1

    def kill(self) -> None:
        self._process.kill()
        self.attend()

    def attend(self) -> None:
        if self._process.poll() is not None:
            self._process = self._started()
            self.starts += 1

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def last_words(self) -> str:
        return self._log.read_text()[-1000:]

    def _started(self) -> "subprocess.Popen[bytes]":
        with contextlib.suppress(AttributeError):
            self._process.wait()
        with self._log.open("ab") as log:
            return children.start(
                self._command,
                stderr=log,
            )


def test_whoever_is_killed_nothing_acknowledged_is_lost_or_doubled(
    start_broker: StartBroker, own_valkey: StoreProcess, topic: str
) -> None:
    flags = (*NO_DELAY, "--store-timeout", "2", "--default-partitions", str(PARTITIONS))
    first = start_broker(*flags, "--node-id", "1", store=own_valkey)
    second = start_broker(*flags, "--node-id", "2", store=own_valkey, keyspace=first.keyspace)
    for seed in seeds():
        one_story(own_valkey, [first, second], f"{topic}-{seed}", seed)


def one_story(store: StoreProcess, brokers: list[BrokerProcess], topic: str, seed: int) -> None:
    luck = random.Random(seed)
    addresses = ",".join(broker.address for broker in brokers)
    source, sink = f"{topic}-in", f"{topic}-out"
    create(addresses, source, sink)
    copier = Copier(store.folder / "copier.log", addresses, source, sink)

    def kill_the_store() -> None:
        store.kill()
        store.start()

    def kill_a_broker() -> None:
        broker = luck.choice(brokers)
        broker.stop(signal.SIGKILL)
        time.sleep(luck.uniform(0, 0.5))
        broker.start()

    victims: list[Callable[[], None]] = [kill_the_store, kill_a_broker, copier.kill]
    try:
        with writing(addresses, source) as written:
            for _ in range(KILLS):
                time.sleep(luck.uniform(0.05, 0.8))
                luck.choice(victims)()
                copier.attend()
        expected = by_partition(written.result())
        assert read(addresses, source, expected) == expected, f"seed {seed}: the source"

        deadline = time.monotonic() + PATIENCE_SECONDS
        while (copies := read(addresses, sink, expected)) != expected:
            ended = {partition: (len(copies[partition]), len(expected[partition])) for partition in expected}
            assert time.monotonic() < deadline, f"seed {seed}: copied {ended} by {copier.starts}: {copier.last_words()}"
            assert all(copies[p] == expected[p][: len(copies[p])] for p in expected), f"seed {seed}: torn: {copies}"
            copier.attend()
    finally:
        copier.end()


@contextlib.contextmanager
def writing(addresses: str, topic: str) -> "Iterator[Future[int]]":
    """Write numbers all the while; the result is how many, each of them acknowledged."""
    enough = threading.Event()

    def write() -> int:
        producer = Producer({"bootstrap.servers": addresses, **QUICK, "enable.idempotence": True, "linger.ms": 1})
        failed: list[object] = []
        count = 0
        while not enough.wait(0.002):
            producer.produce(
                topic,
                str(count),
                partition=count % PARTITIONS,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
            count += 1
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert failed == []
        return count

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(write)
        try:
            yield working
        finally:
            enough.set()


def by_partition(count: int) -> dict[int, list[int]]:
    return {partition: list(range(partition, count, PARTITIONS)) for partition in range(PARTITIONS)}


def read(addresses: str, topic: str, expected: dict[int, list[int]]) -> dict[int, list[int]]:
    """What a read_committed consumer sees from end to end; it stops where the partitions end."""
    settings = {"bootstrap.servers": addresses, **QUICK, "group.id": "x", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in expected])
    seen: dict[int, list[int]] = {partition: [] for partition in expected}
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(ended) < len(expected) and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                seen[message.partition()].append(int(message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return seen


def create(addresses: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": addresses, **QUICK})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        future.result(PATIENCE_SECONDS)


@pytest.mark.parametrize("minutes", [None, "0"])
def test_seeds_are_few_unless_time_is_given(monkeypatch: pytest.MonkeyPatch, minutes: str | None) -> None:
    if minutes is None:
        monkeypatch.delenv("CHAOS_MINUTES", raising=False)
        assert list(seeds(2)) == [1, 2]
    else:
        monkeypatch.setenv("CHAOS_MINUTES", minutes)
        monkeypatch.setenv("CHAOS_SEED", "7")
        assert list(seeds(2)) == [7]
