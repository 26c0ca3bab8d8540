"""The open layout: Kafka clients and plain XADD/XREAD share one log, and no record is lost, doubled or out of order."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import entries, records
from tests.patience import eventually
from tests.penstock.batches import GZIP, batch_of, is_sealed
from tests.penstock.conftest import BrokerProcess, StartBroker
from tests.penstock.test_log import LogClient, values


class OpenClient(LogClient):
    def create_open(self, topic: str, bits: int = 10, **configs: str) -> None:
        rows = [("penstock.layout", "entries"), ("penstock.offset.sequence.bits", str(bits))]
        rows += [(name.replace("_", "."), value) for name, value in configs.items()]
        row = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": []}
        message = {"topics": [{**row, "configs": [{"name": n, "value": v} for n, v in rows]}]}
        [made] = self.call(19, 7, {**message, "timeout": 9000, "validate_only": False})["topics"]
        assert made["error_code"] == 0, made

    def read_all(self, topic: str, offset: int = 0) -> list[tuple[int, bytes | None]]:
        """Everything from an offset on, one fetch after the other as a consumer would."""
        found: list[tuple[int, bytes | None]] = []
        while True:
            row = self.fetch(topic, offset if not found else found[-1][0] + 1, partition_max=100_000)
            assert row["error_code"] == 0
            rows = [(at, value) for at, value in values(row) if not found or at > found[-1][0]]
            if not rows:
                return found
            found += rows


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[OpenClient]:
    with OpenClient(broker.port) as client:
        yield client


def test_the_encoding_of_the_worked_example() -> None:
    assert entries.natural_offset(1234567890123, 5, 10) == 1264197519485957
    assert entries.id_of(1264197519485957, 10) == "1234567890123-5"


@given(st.integers(0, 2**41), st.integers(0, 12), st.data())
def test_offset_and_id_say_the_same_for_every_number_of_bits(ms: int, bits: int, data: st.DataObject) -> None:
    seq = data.draw(st.integers(0, 2**bits - 1))
    assert entries.id_of(entries.natural_offset(ms, seq, bits), bits) == f"{ms}-{seq}"


headers = st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=4)


@given(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20), st.integers(0, 2**42), headers)
def test_a_record_becomes_an_entry_and_back(
    key: bytes | None, value: bytes | None, timestamp: int, headers: list[tuple[str, bytes | None]]
) -> None:
    record = records.Record(7, timestamp, key, value, headers)
    fields = [text.encode() if isinstance(text, str) else text for text in entries.fields_of(record)]
    assert entries.record_of(7, 0, fields) == record


def test_what_kafka_clients_write_is_plain_to_see_in_the_stream(
    broker: BrokerProcess, client: OpenClient, topic: str
) -> None:
    client.create_open(topic)
    row = client.produce(topic, batch_of(b"one", b"two", compression=GZIP, timestamp=42))
    (first_id, first), (second_id, second) = broker.store.xrange(broker.key(topic, 0, "log"))
    assert first == {b"key": b"k", b"value": b"one", b"timestamp": b"42"}
    assert second == {b"key": b"k", b"value": b"two", b"timestamp": b"43"}
    ms, seq = entries.parts_of(first_id)
    assert row["base_offset"] == ms << 10 | seq
    assert entries.parts_of(second_id) == (ms, seq + 1)
    assert abs(ms / 1000 - time.time()) < 60


def test_what_plain_clients_add_arrives_at_kafka_clients_with_nothing_missing(
    broker: BrokerProcess, client: OpenClient, topic: str
) -> None:
    client.create_open(topic)
    log = broker.key(topic, 0, "log")
    broker.store.xadd(log, {"key": "k", "value": "v", "timestamp": "1234", "header.h": "1"}, id="1700000000000-3")
    broker.store.xadd(log, {"anything": "else"}, id="1700000000001-0")
    row = client.fetch(topic, 0)
    assert row["error_code"] == 1, "a log that begins later than 0 says so"
    row = client.fetch(topic, client.offset(topic, -2)["offset"])
    found = [tuple(record) for record in records.iterate(row["records"])]
    assert found == [
        (1700000000000 << 10 | 3, 1234, b"k", b"v", [("h", b"1")]),
        (1700000000001 << 10, 1700000000001, None, None, [("anything", b"else")]),
    ]
    assert is_sealed(row["records"])
    assert row["high_watermark"] == (1700000000001 << 10) + 1


def test_confluent_kafka_and_xadd_interleave_in_one_log(broker: BrokerProcess, client: OpenClient, topic: str) -> None:
    client.create_open(topic)
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    log = broker.key(topic, 0, "log")
    for n in range(0, 100, 2):
        producer.produce(topic, str(n), partition=0, headers=[("from", b"kafka")])
        assert producer.flush(30) == 0
        broker.store.xadd(log, {"value": str(n + 1), "header.from": "redis"})
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "x", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])  # out of range: reset to the beginning
    seen = []
    while len(seen) < 100:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        seen.append((message.value(), dict(message.headers())["from"]))
    consumer.close()
    assert seen == [(str(n).encode(), b"redis" if n % 2 else b"kafka") for n in range(100)]


@pytest.mark.parametrize("bits", [0, 3, 10])
def test_more_entries_in_a_millisecond_than_the_bits_can_tell_apart(
    broker: BrokerProcess, client: OpenClient, topic: str, bits: int
) -> None:
    client.create_open(topic, bits)
    log, count = broker.key(topic, 0, "log"), 3000
    with broker.store.pipeline() as pipe:
        for n in range(count):
            pipe.xadd(log, {"value": str(n)}, id=f"1700000000000-{n}")
        pipe.xadd(log, {"value": str(count)}, id="1700000000001-0")  # its natural offset was taken by the flood
        pipe.xadd(log, {"value": str(count + 1)}, id="1700000500000-0")  # far enough to be regular again
        pipe.execute()
    start = client.offset(topic, -2)["offset"]
    seen = client.read_all(topic, start)
    assert [value for _, value in seen] == [str(n).encode() for n in range(count + 2)]
    offsets = [offset for offset, _ in seen]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == 1700000500000 << bits
    for at in (1, 700, 1023, 1024, 1025, 2500, count - 1, count, count + 1):
        assert client.read_all(topic, offsets[at])[0] == seen[at], "a fetch may start at any offset"
    assert client.produce(topic, batch_of(b"last"))["base_offset"] > offsets[-1]


def test_a_batch_larger_than_a_millisecond_holds_runs_into_the_next_ones(
    broker: BrokerProcess, client: OpenClient, topic: str
) -> None:
    client.create_open(topic, bits=2)
    row = client.produce(topic, batch_of(*[str(n).encode() for n in range(50)]))
    seen = client.read_all(topic, row["base_offset"])
    assert seen == [(row["base_offset"] + n, str(n).encode()) for n in range(50)]
    assert not broker.store.exists(broker.key(topic, 0, "moved")), "every id says its offset"


def test_a_clock_that_steps_back_changes_nothing(broker: BrokerProcess, client: OpenClient, topic: str) -> None:
    client.create_open(topic)
    future = int(time.time() * 1000) + 3_600_000  # somebody's clock was an hour ahead
    broker.store.xadd(broker.key(topic, 0, "log"), {"value": "ahead"}, id=f"{future}-0")
    bases = [client.produce(topic, batch_of(b"now"))["base_offset"] for _ in range(3)]
    assert bases == [(future << 10) + 1, (future << 10) + 2, (future << 10) + 3]
    assert [value for _, value in client.read_all(topic, future << 10)] == [b"ahead", b"now", b"now", b"now"]


def test_an_id_beyond_all_offsets_still_gets_one(broker: BrokerProcess, client: OpenClient, topic: str) -> None:
    client.create_open(topic)
    base = client.produce(topic, batch_of(b"a"))["base_offset"]
    broker.store.xadd(broker.key(topic, 0, "log"), {"value": "odd"}, id="99999999999999999-0")
    later = client.produce(topic, batch_of(b"b", b"c"))["base_offset"]
    assert later >= base + 2
    whole = [(base, b"a"), (base + 1, b"odd"), (later, b"b"), (later + 1, b"c")]
    assert client.read_all(topic, base) == whole
    assert [client.read_all(topic, whole[at][0]) for at in (1, 2, 3)] == [whole[1:], whole[2:], whole[3:]]


def test_a_waiting_fetch_is_woken_by_a_plain_xadd(broker: BrokerProcess, client: OpenClient, topic: str) -> None:
    client.create_open(topic)
    base = client.produce(topic, batch_of(b"first"))["base_offset"]
    answers: list[dict[str, Any]] = []

    def wait() -> None:
        with OpenClient(broker.port, timeout=60) as waiting:
            answers.append(waiting.fetch(topic, base + 1, wait=50_000))

    thread = threading.Thread(target=wait)
    started = time.monotonic()
    thread.start()
    broker.store.xadd(broker.key(topic, 0, "log"), {"value": "news"})
    thread.join(60)
    assert [value for _, value in values(answers[0])] == [b"news"]
    assert time.monotonic() - started < 40


def test_a_repeated_batch_is_not_written_twice(broker: BrokerProcess, client: OpenClient, topic: str) -> None:
    client.create_open(topic)
    data = batch_of(b"a", b"b", producer_id=3, epoch=0, sequence=0)
    first, again = client.produce(topic, data), client.produce(topic, data)
    assert again["base_offset"] == first["base_offset"]
    assert broker.store.xlen(broker.key(topic, 0, "log")) == 2
    assert client.produce(topic, batch_of(b"c", producer_id=3, epoch=0, sequence=9))["error_code"] == 45


def test_transactions_and_compaction_are_refused(client: OpenClient, topic: str) -> None:
    client.create_open(topic)
    data = batch_of(b"a", producer_id=3, epoch=0, sequence=0, transactional=True)
    assert client.produce(topic, data)["error_code"] == 43
    with pytest.raises(AssertionError, match="cannot be combined"):
        client.create_open(topic + "-2", cleanup_policy="compact")


def test_offsets_by_time_go_by_when_entries_were_added(broker: BrokerProcess, client: OpenClient, topic: str) -> None:
    client.create_open(topic)
    for n in range(10):
        broker.store.xadd(broker.key(topic, 0, "log"), {"value": str(n)}, id=f"{1700000000000 + 10 * n}-1")
    assert client.offset(topic, 1700000000035)["offset"] == 1700000000040 << 10 | 1
    assert client.offset(topic, 1700000009999)["offset"] == -1
    assert client.offset(topic, -3)["offset"] == 1700000000090 << 10 | 1
    assert client.offset(topic, -1)["offset"] == (1700000000090 << 10 | 1) + 1


def test_records_are_deleted_up_to_an_offset_even_inside_a_flood(
    broker: BrokerProcess, client: OpenClient, topic: str
) -> None:
    client.create_open(topic, bits=1)
    log = broker.key(topic, 0, "log")
    for n in range(50):
        broker.store.xadd(log, {"value": str(n)}, id=f"1700000000000-{n}")
    start = client.offset(topic, -2)["offset"]
    seen = client.read_all(topic, start)
    row = {"partition_index": 0, "offset": seen[20][0]}
    message = {"topics": [{"name": topic, "partitions": [row]}], "timeout": 1000}
    assert client.call(21, 2, message)["topics"][0]["partitions"][0]["error_code"] == 0
    assert client.read_all(topic, seen[20][0]) == seen[20:]
    assert broker.store.xlen(log) == 30
    message["topics"][0]["partitions"][0]["offset"] = -1  # type: ignore[index]
    client.call(21, 2, message)
    assert broker.store.xlen(log) == 0
    assert client.offset(topic, -2)["offset"] == client.offset(topic, -1)["offset"]


def test_retention_by_age_and_size(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker("--retention-interval", "0.1")
    with OpenClient(broker.port) as client:
        client.create_open(topic, retention_ms="3600000")
        old = int(time.time() * 1000) - 7_200_000
        for n in range(5):
            broker.store.xadd(broker.key(topic, 0, "log"), {"value": "old"}, id=f"{old + n}-0")
        client.produce(topic, batch_of(b"young"))
        eventually(lambda: broker.store.xlen(broker.key(topic, 0, "log")) == 1, "the old entries to go")
        assert [value for _, value in client.read_all(topic, client.offset(topic, -2)["offset"])] == [b"young"]
        small = topic + "-small"
        client.create_open(small, retention_bytes="1000")
        for _ in range(20):
            client.produce(small, batch_of(b"x" * 200))
        eventually(lambda: 4 <= broker.store.xlen(broker.key(small, 0, "log")) <= 5, "all but the newest to go")
        start = client.offset(small, -2)["offset"]
        assert len(client.read_all(small, start)) == broker.store.xlen(broker.key(small, 0, "log"))
