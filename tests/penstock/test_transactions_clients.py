"""Transactions as stock clients use them, on ours and on Apache Kafka."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests import children
from tests.apache_kafka import ON_KAFKA
from tests.patience import eventually
from tests.penstock.conftest import BrokerProcess, StoreProcess, broker_starter
from tests.penstock.group_client import NO_DELAY

PATIENCE_S = 180.0
ROUNDS = [True, False, True, False, True]  # commit or abort
PER_ROUND = 5
Seen = list[tuple[int, str]]


@pytest.fixture(scope="module")
def broker(valkey: StoreProcess) -> Iterator[BrokerProcess]:
    with broker_starter(valkey) as start:
        yield start(*NO_DELAY)


@pytest.fixture(scope="module", params=["penstock", pytest.param("apache-kafka", marks=ON_KAFKA)])
def address(request: pytest.FixtureRequest) -> str:
    if request.param == "penstock":
        return str(request.getfixturevalue("broker").address)
    return str(request.getfixturevalue("kafka"))


def created(address: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        made.result(PATIENCE_S)


def transactional(address: str, name: str, **options: object) -> Producer:
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "log_level": 0, **options})
    producer.init_transactions(PATIENCE_S)
    return producer


def read_all(address: str, topic: str, isolation: str) -> Seen:
    """Everything up to the end that this isolation level sees."""
    ended: list[bool] = []
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reads-by-position",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: Seen = []
    while not ended:
        for message in consumer.consume(1000, 1):
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.append(True)
            else:
                seen.append((message.offset(), message.value().decode()))
    consumer.close()
    return seen


def rounds_with_confluent_kafka(address: str, topic: str) -> None:
    producer = transactional(address, topic)
    for number, commit in enumerate(ROUNDS):
        producer.begin_transaction()
        for at in range(PER_ROUND):
            producer.produce(topic, f"{number}.{at}", partition=0)
        producer.flush(PATIENCE_S)
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)


def rounds_with_aiokafka(address: str, topic: str) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic) as producer:
            for number, commit in enumerate(ROUNDS):
                await producer.begin_transaction()
                for at in range(PER_ROUND):
                    await producer.send(topic, f"{number}.{at}".encode(), partition=0)
                await producer.flush()
                await (producer.commit_transaction() if commit else producer.abort_transaction())

    asyncio.run(run())


def rounds_with_kafka_python(address: str, topic: str) -> None:
    story = Path(__file__).with_name("kafka_python_transactions.py")
    command = [sys.executable, "-W", "ignore", str(story), address, topic, json.dumps(ROUNDS), str(PER_ROUND)]
    ended = children.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


CLIENTS: dict[str, Callable[[str, str], None]] = {
    "confluent-kafka": rounds_with_confluent_kafka,
    "aiokafka": rounds_with_aiokafka,
    "kafka-python": rounds_with_kafka_python,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_committed_records_are_seen_and_aborted_ones_only_by_who_asks_for_them(
    address: str, topic: str, client: str
) -> None:
    created(address, topic)
    CLIENTS[client](address, topic)
    everything = [f"{number}.{at}" for number in range(len(ROUNDS)) for at in range(PER_ROUND)]
    kept = [text for text in everything if ROUNDS[int(text.split(".")[0])]]
    end = len(everything) + len(ROUNDS)
    eventually(lambda: ends(address, topic) == end, "the last marker")
    committed = read_all(address, topic, "read_committed")
    assert [text for _, text in committed] == kept
    uncommitted = read_all(address, topic, "read_uncommitted")
    assert [text for _, text in uncommitted] == everything
    # Every marker takes one offset.
    assert [offset for offset, _ in uncommitted] == [n + n // PER_ROUND for n in range(len(everything))]


def ends(address: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "looks-at-ends"})
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
    consumer.close()
    return int(high)


def test_aiokafka_hides_aborted_records_too(address: str, topic: str) -> None:
    created(address, topic)
    rounds_with_confluent_kafka(address, topic)

    async def run() -> list[str]:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, isolation_level="read_committed")
        await consumer.start()
        consumer.assign([AioPartition(topic, 0)])
        await consumer.seek_to_beginning()
        seen: list[str] = []
        while len(seen) < ROUNDS.count(True) * PER_ROUND:
            for rows in (await consumer.getmany(timeout_ms=1000)).values():
                seen += [row.value.decode() for row in rows]
        await consumer.stop()
        return seen

    expected = [f"{n}.{at}" for n, commit in enumerate(ROUNDS) if commit for at in range(PER_ROUND)]
    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)) == expected


def test_a_second_instance_shuts_the_first_out(address: str, topic: str) -> None:
    created(address, topic)
    first = transactional(address, topic)
    first.begin_transaction()
    first.produce(topic, "of the first", partition=0)
    first.flush(PATIENCE_S)
    second = transactional(address, topic)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    assert refused.value.args[0].code() == KafkaError._FENCED
    second.begin_transaction()
    second.produce(topic, "of the second", partition=0)
    second.commit_transaction(PATIENCE_S)
    assert [text for _, text in read_all(address, topic, "read_committed")] == ["of the second"]


def test_aiokafka_is_shut_out_too(address: str, topic: str) -> None:
    created(address, topic)

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic) as second:
            first = AIOKafkaProducer(bootstrap_servers=address, transactional_id=f"{topic}-1")
            await first.start()
            await first.begin_transaction()
            await first.send_and_wait(topic, b"of the first", partition=0)
            async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=f"{topic}-1"):
                with pytest.raises(ProducerFenced):
                    await first.commit_transaction()
            await first.stop()
            async with second.transaction():
                await second.send_and_wait(topic, b"of the second", partition=0)

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert [text for _, text in read_all(address, topic, "read_committed")] == ["of the second"]


def test_a_hanging_transaction_does_not_hang_its_readers(address: str, topic: str) -> None:
    created(address, topic)
    hanging = transactional(address, topic, **{"transaction.timeout.ms": 1000})
    hanging.begin_transaction()
    hanging.produce(topic, "never committed", partition=0)
    hanging.flush(PATIENCE_S)
    other = transactional(address, f"{topic}-other")
    other.begin_transaction()
    other.produce(topic, "behind it", partition=0)
    other.commit_transaction(PATIENCE_S)
    eventually(lambda: read_all(address, topic, "read_committed"), "the time-out")
    assert [text for _, text in read_all(address, topic, "read_committed")] == ["behind it"]
    with pytest.raises(KafkaException):
        hanging.commit_transaction(PATIENCE_S)


def test_every_input_is_processed_exactly_once_though_its_processor_dies(address: str, topic: str) -> None:
    """Consume, transform, produce: three processors die in the middle of a batch, each at another point."""
    source, sink, count = f"{topic}-in", f"{topic}-out", 60
    created(address, source, sink)
    plain = Producer({"bootstrap.servers": address})
    for number in range(count):
        plain.produce(source, str(number), partition=0)
    assert plain.flush(PATIENCE_S) == 0
    for dies in ("before the offsets", "after the offsets", "after an abort", None):
        process(address, source, sink, count, dies)
    done = [int(text) for _, text in read_all(address, sink, "read_committed")]
    assert done == [number * number for number in range(count)]
    attempts = read_all(address, sink, "read_uncommitted")
    assert len(attempts) > count, "somebody died with work half done"


def process(address: str, source: str, sink: str, count: int, dies: str | None) -> None:
    group = f"{source}-group"
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = transactional(address, group)
    consumer.subscribe([source])
    batches = 0
    while True:
        messages = [message for message in consumer.consume(10, 1) if not message.error()]
        if not messages:
            if dies is None and consumer.committed([TopicPartition(source, 0)], PATIENCE_S)[0].offset == count:
                break
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(sink, str(int(message.value()) ** 2), partition=0)
        batches += 1
        if batches == 2 and dies == "before the offsets":
            producer.flush(PATIENCE_S)
            break
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
        if batches == 2 and dies == "after the offsets":
            producer.flush(PATIENCE_S)
            break
        if batches == 2 and dies == "after an abort":
            producer.abort_transaction(PATIENCE_S)
            break
        producer.commit_transaction(PATIENCE_S)
    consumer.close()
