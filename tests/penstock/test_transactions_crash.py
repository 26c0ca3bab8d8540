"""The broker is killed at every step of a transaction and started again: nothing torn, nothing twice, nothing lost.
The store is killed at random moments, with the same outcome.

The client is librdkafka, which goes on by itself once the broker is back.
"""

import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.crash_points import VARIABLE
from tests.patience import eventually
from tests.penstock.conftest import BrokerProcess, StartBroker, StoreProcess
from tests.penstock.group_client import NO_DELAY
from tests.penstock.seeds import seeds

PATIENCE_S = 180.0
# More than one round trip of markers carries, so that a crash can fall between two.
PARTITIONS = 70
ENDING = ["after_prepare", "after_some_markers", "after_markers", "after_offsets", "after_complete"]
BEFORE = ["after_begin", "after_enrol", "after_pending"]


@pytest.fixture
def doomed(request: pytest.FixtureRequest, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> BrokerProcess:
    """A broker that is killed when it reaches the point the test is about, but not after its next start."""
    if "point" in request.fixturenames:
        monkeypatch.setenv(VARIABLE, request.getfixturevalue("point"))
    broker = start_broker(*NO_DELAY)
    monkeypatch.delenv(VARIABLE, raising=False)
    return broker


def revive(broker: BrokerProcess) -> None:
    process = broker.process
    assert process is not None
    eventually(lambda: process.poll() is not None, "the crash")
    assert broker.stop() == -9
    broker.start()


def settings(broker: BrokerProcess, **more: object) -> dict[str, object]:
    quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 0}
    return {"bootstrap.servers": broker.address, **quick, **more}


def produced(producer: Producer, topic: str, text: str) -> None:
    for partition in range(PARTITIONS):
        producer.produce(topic, text, partition=partition)


def read_all(broker: BrokerProcess, topic: str, isolation: str = "read_committed") -> dict[int, list[str]]:
    consumer = Consumer(
        settings(broker, **{"group.id": "x", "isolation.level": isolation, "enable.partition.eof": True})
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(1000, 1):
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
            else:
                seen[message.partition()].append(message.value().decode())
    consumer.close()
    return seen


def everywhere(*texts: str) -> dict[int, list[str]]:
    return {partition: list(texts) for partition in range(PARTITIONS)}


def committed(broker: BrokerProcess, group: str, topic: str) -> int:
    consumer = Consumer(settings(broker, **{"group.id": group}))
    [position] = consumer.committed([TopicPartition(topic, 0)], PATIENCE_S)
    consumer.close()
    return int(position.offset)


def started(broker: BrokerProcess, topic: str, **options: object) -> tuple[Producer, Consumer]:
    admin = AdminClient(settings(broker))
    made = admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    made[topic].result(PATIENCE_S)
    producer = Producer(settings(broker, **{"transactional.id": topic}, **options))
    producer.init_transactions(PATIENCE_S)
    return producer, Consumer(settings(broker, **{"group.id": f"group-{topic}"}))


def nothing_is_left_open(broker: BrokerProcess, topic: str) -> None:
    for partition in range(PARTITIONS):
        assert broker.store.zcard(broker.key(topic, partition, "open")) == 0
        assert [name for name in broker.store.hkeys(broker.key(topic, partition, "txn")) if b":" not in name] == []
    waiting = broker.store.keys(f"{broker.keyspace}:*:pend:*")
    assert waiting == []


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("point", ENDING)
def test_a_decided_transaction_survives_the_broker(doomed: BrokerProcess, topic: str, point: str, commit: bool) -> None:
    producer, reader = started(doomed, topic)
    producer.begin_transaction()
    produced(producer, topic, "during")
    position = [TopicPartition(topic, 0, 41)]
    producer.send_offsets_to_transaction(position, reader.consumer_group_metadata(), PATIENCE_S)
    producer.flush(PATIENCE_S)
    killed_while(doomed, producer.commit_transaction if commit else producer.abort_transaction)
    producer.begin_transaction()
    produced(producer, topic, "after")
    producer.commit_transaction(PATIENCE_S)
    assert read_all(doomed, topic) == everywhere(*(["during", "after"] if commit else ["after"]))
    assert committed(doomed, f"group-{topic}", topic) == (41 if commit else OFFSET_INVALID)
    nothing_is_left_open(doomed, topic)
    markers = [doomed.store.xlen(doomed.key(topic, partition, "log")) for partition in range(PARTITIONS)]
    assert markers == [4] * PARTITIONS, "two batches and two markers, none of them twice"
    reader.close()


@pytest.mark.parametrize("point", BEFORE)
def test_an_open_transaction_survives_the_broker(doomed: BrokerProcess, topic: str, point: str) -> None:
    producer, reader = started(doomed, topic)

    def work(patience_s: float) -> None:
        producer.begin_transaction()
        produced(producer, topic, "once")
        assert producer.flush(patience_s) == 0
        position = [TopicPartition(topic, 0, 41)]
        producer.send_offsets_to_transaction(position, reader.consumer_group_metadata(), patience_s)

    killed_while(doomed, work)
    producer.commit_transaction(PATIENCE_S)
    assert read_all(doomed, topic) == everywhere("once")
    assert committed(doomed, f"group-{topic}", topic) == 41
    nothing_is_left_open(doomed, topic)
    reader.close()


@pytest.mark.parametrize("point", ["after_fence", "after_some_markers"])
def test_fencing_survives_the_broker(doomed: BrokerProcess, topic: str, point: str) -> None:
    old, reader = started(doomed, topic)
    old.begin_transaction()
    produced(old, topic, "old")
    assert old.flush(PATIENCE_S) == 0
    old.send_offsets_to_transaction([TopicPartition(topic, 0, 41)], reader.consumer_group_metadata(), PATIENCE_S)
    new = Producer(settings(doomed, **{"transactional.id": topic}))
    killed_while(doomed, new.init_transactions)
    new.begin_transaction()
    produced(new, topic, "new")
    new.commit_transaction(PATIENCE_S)
    with pytest.raises(KafkaException):
        old.commit_transaction(PATIENCE_S)
    assert read_all(doomed, topic) == everywhere("new")
    assert committed(doomed, f"group-{topic}", topic) == OFFSET_INVALID
    nothing_is_left_open(doomed, topic)
    reader.close()


def test_an_abandoned_transaction_is_aborted_though_the_broker_was_away(doomed: BrokerProcess, topic: str) -> None:
    producer, reader = started(doomed, topic, **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    produced(producer, topic, "abandoned")
    assert producer.flush(PATIENCE_S) == 0
    doomed.stop(signal.SIGKILL)
    doomed.start()
    opened = [doomed.key(topic, partition, "open") for partition in range(PARTITIONS)]
    eventually(lambda: not doomed.store.exists(*opened), "the time-out")
    assert read_all(doomed, topic) == everywhere()
    reader.close()


def test_killed_at_any_moment_transactions_are_whole(doomed: BrokerProcess, topic: str) -> None:
    def kill() -> None:
        doomed.stop(signal.SIGKILL)
        doomed.start()

    for seed in seeds(3):
        whole_despite(doomed, f"{topic}-{seed}", kill, random.Random(seed))


def test_transactions_are_whole_though_the_store_is_killed(
    start_broker: StartBroker, own_valkey: StoreProcess, topic: str
) -> None:
    def kill() -> None:
        own_valkey.kill()
        own_valkey.start()

    broker = start_broker(*NO_DELAY, "--store-timeout", "2", store=own_valkey)
    for seed in seeds(2):
        whole_despite(broker, f"{topic}-{seed}", kill, random.Random(seed))


def whole_despite(broker: BrokerProcess, topic: str, kill: Callable[[], None], luck: random.Random) -> None:
    """Commit and abort without a pause while something is killed at random moments; then read."""
    producer, reader = started(broker, topic)
    done = threading.Event()

    def work() -> dict[str, bool]:
        ends: dict[str, bool] = {}
        while not done.is_set() or len(ends) < 10:
            text, commit = f"round {len(ends)}", len(ends) % 3 != 2
            producer.begin_transaction()
            produced(producer, topic, text)
            assert producer.flush(PATIENCE_S) == 0
            (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)
            ends[text] = commit
        return ends

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        for _ in range(4):
            done.wait(luck.uniform(0.05, 0.6))
            kill()
        done.set()
        ends = working.result(PATIENCE_S)
    expected = [text for text, commit in ends.items() if commit]
    assert read_all(broker, topic) == everywhere(*expected), f"the seed is in the topic's name: {topic}"
    nothing_is_left_open(broker, topic)
    reader.close()


def killed_while(broker: BrokerProcess, work: Callable[[float], object]) -> None:
    """Do it, see the broker die of it, start the broker again, and see it done."""
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work, PATIENCE_S)
        revive(broker)
        working.result(PATIENCE_S)
