"""The same story told by every client we have: produce with each compression, read back, look from the end.

Consumers assign their partitions themselves here; groups have tests of their own.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition

from tests import children
from tests.needs import need
from tests.penstock.conftest import BrokerProcess

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 500
VALUES = [f"value {n}".encode() * 5 for n in range(COUNT)]
Seen = list[tuple[int, bytes, bytes, list[tuple[str, bytes]]]]
HEADERS = [("trace", b"1"), ("trace", b"2")]


def with_confluent_kafka(address: str, topic: str, compression: str) -> Seen:
    producer = Producer({"bootstrap.servers": address, "compression.type": compression, "enable.idempotence": True})
    errors: list[object] = []
    for value in VALUES:
        producer.produce(
            topic, value, key=b"k", partition=0, headers=HEADERS, on_delivery=lambda e, _: errors.append(e)
        )
    assert producer.flush(60) == 0
    assert set(errors) == {None}
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: Seen = []
    while len(seen) < COUNT:
        for message in consumer.consume(COUNT, 30):
            assert message.error() is None
            seen.append((message.offset(), message.key(), message.value(), message.headers()))
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0)) == (0, COUNT)
    consumer.close()
    return seen


def with_kafka_python(address: str, topic: str, compression: str) -> Seen:
    story = Path(__file__).with_name("kafka_python_story.py")
    command = [sys.executable, "-W", "ignore", str(story), address, topic, compression, str(COUNT)]
    ended = children.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return [
        (offset, key.encode(), value.encode(), [(name, text.encode()) for name, text in headers])
        for offset, key, value, headers in json.loads(ended.stdout)
    ]


def with_aiokafka(address: str, topic: str, compression: str) -> Seen:
    async def run() -> Seen:
        kind = None if compression == "none" else compression
        async with AIOKafkaProducer(
            bootstrap_servers=address, compression_type=kind, enable_idempotence=True
        ) as producer:
            sent = [await producer.send(topic, value, key=b"k", partition=0, headers=HEADERS) for value in VALUES]
            assert [(await future).offset for future in sent] == list(range(COUNT))
        consumer = AIOKafkaConsumer(bootstrap_servers=address)
        await consumer.start()
        consumer.assign([AioPartition(topic, 0)])
        await consumer.seek_to_beginning()
        seen: Seen = []
        while len(seen) < COUNT:
            for message in (m for rows in (await consumer.getmany(timeout_ms=30_000)).values() for m in rows):
                seen.append((message.offset, message.key, message.value, list(message.headers)))
        assert await consumer.end_offsets([AioPartition(topic, 0)]) == {AioPartition(topic, 0): COUNT}
        await consumer.stop()
        return seen

    return asyncio.run(run())


CLIENTS: dict[str, Callable[[str, str, str], Seen]] = {
    "confluent-kafka": with_confluent_kafka,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_client_writes_it_reads_back(broker: BrokerProcess, topic: str, client: str, compression: str) -> None:
    seen = CLIENTS[client](broker.address, topic, compression)
    assert seen == [(n, b"k", value, HEADERS) for n, value in enumerate(VALUES)]
    if compression != "none":
        stored = sum(len(fields[b"b"]) for _, fields in broker.store.xrange(broker.key(topic, 0, "log")))
        assert stored < sum(map(len, VALUES)), "the batch is stored compressed"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_kcat_lists_produces_consumes_and_queries(broker: BrokerProcess, topic: str, compression: str) -> None:
    need("kcat", "tests/install-programs.sh installs it on Debian")

    def kcat(*flags: str, given: str = "") -> str:
        command = ["kcat", "-b", broker.address, *flags]
        ended = children.run(command, input=given, capture_output=True, text=True, timeout=60, check=True)
        return ended.stdout

    lines = "".join(f"key:line {n}\n" for n in range(COUNT))
    kcat("-P", "-t", topic, "-p", "0", "-K:", "-z", compression, given=lines)
    assert f'topic "{topic}" with 4 partitions' in kcat("-L", "-t", topic)
    assert kcat("-C", "-t", topic, "-p", "0", "-e", "-q", "-K:") == lines
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "-2", "-e", "-q", "-f", "%o ") == f"{COUNT - 2} {COUNT - 1} "
    assert kcat("-Q", "-t", f"{topic}:0:-1") == f"{topic} [0] offset {COUNT}\n"
    assert kcat("-Q", "-t", f"{topic}:0:0") == f"{topic} [0] offset 0\n"
    entries = broker.store.xrange(broker.key(topic, 0, "log"))
    attributes = {fields[b"b"][22] & 7 for _, fields in entries}
    # A batch that would not get smaller is sent as it is, so there may be some of those too.
    assert COMPRESSIONS.index(compression) in attributes, "librdkafka dropped the compression"
