"""Compacted topics: the newest record of every key stays where it was, and readers notice nothing else."""

import time

from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.wire import batch
from tests.patience import eventually
from tests.penstock.batches import GZIP, batch_of, is_sealed
from tests.penstock.conftest import StartBroker
from tests.penstock.test_log import LogClient, values

# A round of compaction may begin while a test still writes: the rest must be worth another one.
AT_ONCE = {"min_cleanable_dirty_ratio": "0.01"}


def read_all(client: LogClient, topic: str, offset: int = 0) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    end = client.offset(topic, -1)["offset"]
    while offset < end:
        data = client.fetch(topic, offset)["records"]
        assert data, f"nothing at {offset} of {end}"
        while data:
            head = batch.header(data)
            size = head.length + 12
            assert is_sealed(data[:size])
            found += [pair for pair in values({"records": data[:size]}) if pair[0] >= offset]
            offset = head.base_offset + head.last_offset_delta + 1
            data = data[size:]
    return found


def test_only_the_newest_record_of_a_key_stays_under_its_offset(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker("--retention-interval", "0.1")
    with LogClient(broker.port) as client:
        client.create(topic, cleanup_policy="compact", **AT_ONCE)
        for n in range(6):
            client.produce(topic, batch_of(b"a%d" % n, key=b"a", compression=GZIP))
            client.produce(topic, batch_of(b"b%d" % n, b"c%d" % n, key=b"b"))
        client.produce(topic, batch_of(b"last", key=b"z"))
        newest = [(15, b"a5"), (17, b"c5"), (18, b"last")]
        eventually(lambda: read_all(client, topic) == newest, "the log to be compacted")
        assert read_all(client, topic, 16) == [(17, b"c5"), (18, b"last")], "a batch with one record less"
        assert client.offset(topic, -1)["offset"] == 19
        assert client.produce(topic, batch_of(b"a6", key=b"a"))["base_offset"] == 19
        eventually(lambda: read_all(client, topic)[-1] == (19, b"a6"), "what was appended after")


def test_tombstones_delete_their_key_and_go_themselves_when_their_time_is_over(
    start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker("--retention-interval", "0.1")
    now = int(time.time() * 1000)
    with LogClient(broker.port) as client:
        client.create(topic, cleanup_policy="compact", delete_retention_ms="3600000", **AT_ONCE)
        client.produce(topic, batch_of(b"old", key=b"gone", timestamp=now - 9_000_000))
        client.produce(topic, batch_of(None, key=b"gone", timestamp=now - 8_000_000))
        client.produce(topic, batch_of(b"old", key=b"going", timestamp=now - 7_000_000))
        client.produce(topic, batch_of(None, key=b"going", timestamp=now))
        client.produce(topic, batch_of(b"last", key=b"z"))
        eventually(lambda: read_all(client, topic) == [(3, None), (4, b"last")], "the log to be compacted")


def test_young_batches_wait_for_the_compaction_lag(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker("--retention-interval", "0.1")
    now = int(time.time() * 1000)
    with LogClient(broker.port) as client:
        client.create(topic, cleanup_policy="compact", min_compaction_lag_ms="3600000", **AT_ONCE)
        client.produce(topic, batch_of(b"1", timestamp=now - 7_200_000))
        client.produce(topic, batch_of(b"2", timestamp=now))
        client.produce(topic, batch_of(b"3", timestamp=now))
        eventually(lambda: read_all(client, topic) == [(1, b"2"), (2, b"3")], "the log to be compacted")


def test_a_changelog_under_constant_writing_loses_no_newest_record(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker("--retention-interval", "0.05")
    with LogClient(broker.port) as client:
        client.create(topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.1")
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True, "linger.ms": 1})
    newest: dict[bytes, bytes] = {}
    for n in range(6000):
        key, value = b"key-%d" % (n * 7919 % 50), b"value-%d" % n
        newest[key] = value
        producer.produce(topic, value, key=key, partition=0)
        if n % 40 == 0:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0
    eventually(lambda: broker.store.xlen(broker.key(topic, 0, "log")) < 40, "most batches to go")
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "x", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: dict[bytes, bytes] = {}
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break  # the end of the log was reached, which is what a restoring application waits for
        seen[message.key()] = message.value()
    assert consumer.position([TopicPartition(topic, 0)])[0].offset == 6000
    consumer.close()
    assert seen == newest
