"""Two brokers over one store: a transaction is coordinated by one, written through both, and outlives either."""

import itertools
import signal

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.crash_points import VARIABLE
from tests.patience import eventually
from tests.penstock.batches import batch_of
from tests.penstock.conftest import BrokerProcess, StartBroker
from tests.penstock.group_client import NO_DELAY
from tests.penstock.test_transactions_wire import visible
from tests.penstock.transactions_wire import TxnClient

PATIENCE_S = 180.0
PARTITIONS = 4
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50, "log_level": 0}


@pytest.fixture
def two(start_broker: StartBroker) -> tuple[BrokerProcess, BrokerProcess]:
    first = start_broker(*NO_DELAY)
    second = start_broker(*NO_DELAY, "--node-id", "2", keyspace=first.keyspace)
    both_known(first, second)
    return first, second


def both_known(*brokers: BrokerProcess) -> None:
    for broker in brokers:
        admin = AdminClient({"bootstrap.servers": broker.address})
        eventually(lambda admin=admin: len(admin.list_topics(timeout=PATIENCE_S).brokers) == 2, "both to be known")


def created(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(PATIENCE_S)


def producer_of(name: str, *brokers: BrokerProcess) -> Producer:
    addresses = ",".join(broker.address for broker in brokers)
    producer = Producer({"bootstrap.servers": addresses, "transactional.id": name, **QUICK})
    producer.init_transactions(PATIENCE_S)
    return producer


def read_committed(topic: str, *brokers: BrokerProcess) -> dict[int, list[str]]:
    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(broker.address for broker in brokers),
            "group.id": "reads-by-position",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **QUICK,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(1000, 1):
            if not message.error():
                seen[message.partition()].append(message.value().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return seen


def test_an_abort_on_one_broker_is_an_abort_on_the_other(two: tuple[BrokerProcess, BrokerProcess], topic: str) -> None:
    """Each broker is asked directly, with no leader in between: both must hide the same records."""
    created(two[0], topic)
    coordinator, other = coordinator_first(two, topic)
    with TxnClient(coordinator.port) as here, TxnClient(other.port) as there:
        eventually(lambda: here.fetched(topic)["error_code"] == there.fetched(topic)["error_code"] == 0, "the topic")
        me = here.started(topic)
        for number in range(6):
            commit = number % 2 == 1
            assert here.add(me, topic) == [0]
            # Both brokers append in turn, so each has a view of the log that the other makes out of date.
            writer = here if number % 3 else there
            assert writer.send(me, topic, b"%d" % number, sequence=number) == 0
            assert here.ended(me, commit) == 0
            assert there.produce(topic, batch_of(b"plain"))["error_code"] == 0
            for reader in (here, there):
                eventually(lambda r=reader, n=number: shown(r, topic) == expected(n), "the other's words to arrive")


def coordinator_first(two: tuple[BrokerProcess, BrokerProcess], name: str) -> tuple[BrokerProcess, BrokerProcess]:
    with TxnClient(two[0].port) as client:
        port = client.call(10, 1, {"key": name, "key_type": 1})["port"]
    return two if port == two[0].port else (two[1], two[0])


def shown(reader: TxnClient, topic: str) -> list[bytes]:
    values = visible(reader.fetched(topic))
    assert not {b"0", b"2", b"4"} & set(values), "aborted records are never shown, however old the view"
    return values


def expected(last: int) -> list[bytes]:
    shown = []
    for number in range(last + 1):
        shown += [b"%d" % number] if number % 2 else []
        shown.append(b"plain")
    return shown


def test_only_the_coordinator_answers(two: tuple[BrokerProcess, BrokerProcess], topic: str) -> None:
    created(two[0], topic)
    coordinator, other = coordinator_first(two, topic)
    with TxnClient(coordinator.port) as here, TxnClient(other.port) as there:
        me = here.started(topic)
        assert there.init(topic)["error_code"] == 16
        assert there.end(me, commit=True) == 16
        assert there.described(topic)["error_code"] == 16
        assert here.described(topic)["transaction_state"] == "Empty"


def test_the_other_broker_finishes_what_a_killed_one_decided(
    start_broker: StartBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "after_prepare")
    doomed = start_broker(*NO_DELAY)
    monkeypatch.delenv(VARIABLE)
    heir = start_broker(*NO_DELAY, "--node-id", "2", keyspace=doomed.keyspace)
    both_known(doomed, heir)
    created(doomed, topic)
    names = (f"{topic}-{number}" for number in itertools.count())
    name = next(name for name in names if coordinator_first((doomed, heir), name)[0] is doomed)
    producer = producer_of(name, doomed, heir)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, "decided", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    producer.commit_transaction(PATIENCE_S)
    assert doomed.process is not None
    assert doomed.process.poll() == -signal.SIGKILL
    assert read_committed(topic, heir) == {partition: ["decided"] for partition in range(PARTITIONS)}
    assert heir.store.exists(*(heir.key(topic, partition, "open") for partition in range(PARTITIONS))) == 0
