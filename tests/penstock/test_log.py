"""Produce, Fetch and ListOffsets at the level of requests: what ends up in the store, and what comes back."""

import struct
import threading
import time
from typing import Any

import pytest

from penstock.wire import batch, records
from penstock.wire.read import read_response
from penstock.wire.write import request_bytes
from tests.penstock.batches import GZIP, ZSTD, batch_of
from tests.penstock.conftest import BrokerProcess, StartBroker
from tests.penstock.wire import RawClient

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE, EPOCH_END = 0, 1, 2, 3, 19, 23


class LogClient(RawClient):
    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        rows = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
        row = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": rows}
        [made] = self.call(CREATE, 7, {"topics": [row], "timeout": 9000, "validate_only": False})["topics"]
        assert made["error_code"] == 0, made

    def produce(self, topic: str, data: bytes | None, *, partition: int = 0, acks: int = -1, version: int = 9) -> Any:
        message = {
            "transactional_id": None,
            "acks": acks,
            "timeout": 1000,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": data}]}],
        }
        answer = self.call(PRODUCE, version, message)
        return answer["responses"][0]["partition_responses"][0]

    def fetch(self, topic: str, offset: int, **options: Any) -> dict[str, Any]:
        return self.fetch_many([(topic, 0, offset)], **options)[0]

    def fetch_many(
        self,
        wanted: list[tuple[str, int, int]],
        *,
        wait: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 2**30,
        partition_max: int = 2**20,
        isolation: int = 0,
    ) -> list[dict[str, Any]]:
        def row(partition: int, offset: int) -> dict[str, int]:
            return {
                "partition": partition,
                "current_leader_epoch": -1,
                "fetch_offset": offset,
                "log_start_offset": -1,
                "partition_max_bytes": partition_max,
            }

        message = {
            "replica_id": -1,
            "max_wait": wait,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": isolation,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [row(partition, at)]} for topic, partition, at in wanted],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = self.call(FETCH, 11, message)
        assert answer["error_code"] == 0
        return [topic["partitions"][0] for topic in answer["responses"]]

    def offset(self, topic: str, when: int, isolation: int = 0) -> dict[str, Any]:
        rows = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": when}]
        message = {"replica_id": -1, "isolation_level": isolation, "topics": [{"name": topic, "partitions": rows}]}
        return dict(self.call(LIST_OFFSETS, 7, message)["topics"][0]["partitions"][0])


@pytest.fixture
def client(broker: BrokerProcess) -> Any:
    with LogClient(broker.port) as client:
        yield client


def values(row: dict[str, Any]) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record of a fetched partition."""
    data, found = row["records"], []
    while data:
        size = batch.header(data).length + 12
        found += [(record.offset, record.value) for record in records.iterate(data[:size])]
        data = data[size:]
    return found


def test_a_batch_is_kept_byte_for_byte_under_its_last_offset(
    broker: BrokerProcess, client: LogClient, topic: str
) -> None:
    client.create(topic)
    data = batch_of(b"a", b"b", b"c", compression=GZIP)
    assert client.produce(topic, data)["base_offset"] == 0
    assert client.produce(topic, data)["base_offset"] == 3
    entries = broker.store.xrange(broker.key(topic, 0, "log"))
    size = len(data)
    assert entries == [(f"2-{size}".encode(), {b"b": data}), (f"5-{2 * size}".encode(), {b"b": data})]
    assert broker.store.hget(broker.key(topic, 0, "m"), "leo") == b"6"


def test_a_fetch_inside_a_batch_gives_the_batch_that_holds_the_offset(
    start_broker: StartBroker, broker: BrokerProcess, client: LogClient, topic: str
) -> None:
    client.create(topic)
    client.fetch(topic, 0)  # from now on somebody reads here, and what is appended is kept in memory
    for _ in range(3):
        client.produce(topic, batch_of(b"a", b"b", b"c"))
    from_memory = client.fetch(topic, 4)
    other = start_broker("--node-id", "2", keyspace=broker.keyspace)
    with LogClient(other.port) as stranger:
        from_store = stranger.fetch(topic, 4)
    assert [offset for offset, _ in values(from_memory)] == [3, 4, 5, 6, 7, 8]
    assert from_store["records"] == from_memory["records"]
    assert (from_store["high_watermark"], from_store["log_start_offset"]) == (9, 0)


def test_limits_are_kept_but_one_whole_batch_always_comes(client: LogClient, topic: str) -> None:
    client.create(topic, partitions=2)
    data = batch_of(b"x" * 1000)
    for _ in range(4):
        client.produce(topic, data)
        client.produce(topic, data, partition=1)
    assert len(client.fetch(topic, 0, partition_max=1)["records"]) == len(data)
    assert len(client.fetch(topic, 0, partition_max=3 * len(data) - 1)["records"]) == 2 * len(data)
    both = client.fetch_many([(topic, 0, 0), (topic, 1, 0)], max_bytes=1)
    assert [len(row["records"] or b"") for row in both] == [len(data), 0]
    both = client.fetch_many([(topic, 0, 0), (topic, 1, 0)], max_bytes=6 * len(data), partition_max=3 * len(data))
    assert [len(row["records"]) for row in both] == [3 * len(data), 3 * len(data)]


def test_out_of_range_is_said_and_the_end_is_not_out_of_range(client: LogClient, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a"))
    assert client.fetch(topic, 1)["error_code"] == 0
    assert client.fetch(topic, 2)["error_code"] == 1
    assert client.fetch(topic, -1)["error_code"] == 1
    assert client.fetch(topic + "-none", 0)["error_code"] == 3


def test_a_waiting_fetch_is_woken_by_an_append_long_before_its_time(
    broker: BrokerProcess, client: LogClient, topic: str
) -> None:
    client.create(topic)
    answers: list[dict[str, Any]] = []

    def wait() -> None:
        with LogClient(broker.port) as waiting:
            answers.append(waiting.fetch(topic, 0, wait=30_000))

    thread = threading.Thread(target=wait)
    started = time.monotonic()
    thread.start()
    client.produce(topic, batch_of(b"news"))
    thread.join(30)
    assert values(answers[0]) == [(0, b"news")]
    assert time.monotonic() - started < 25


def test_a_consumer_at_the_tail_gets_what_came_together_in_one_answer_if_the_operator_wants_it(
    start_broker: StartBroker, topic: str
) -> None:
    """Without gathering the second fetch would be answered with the one record that is there when it comes."""
    broker = start_broker("--fetch-gather", "4000")
    with LogClient(broker.port) as writer, LogClient(broker.port) as reader:
        writer.create(topic)
        writer.produce(topic, batch_of(b"first"))
        assert values(reader.fetch(topic, 0, wait=30_000)) == [(0, b"first")]
        writer.produce(topic, batch_of(b"second"))
        answers: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: answers.append(reader.fetch(topic, 1, wait=30_000)))
        thread.start()
        writer.produce(topic, batch_of(b"third"))
        thread.join(30)
        assert values(answers[0]) == [(1, b"second"), (2, b"third")]


def test_gathering_without_end_is_refused(start_broker: StartBroker) -> None:
    with pytest.raises(AssertionError):
        start_broker("--fetch-gather", "10001")


def test_min_bytes_holds_the_answer_back_until_there_is_enough_or_time_is_up(
    broker: BrokerProcess, client: LogClient, topic: str
) -> None:
    client.create(topic)
    data = batch_of(b"x" * 500)
    client.produce(topic, data)
    assert len(client.fetch(topic, 0, wait=50, min_bytes=3 * len(data))["records"]) == len(data), "time was up"
    answers: list[dict[str, Any]] = []

    def wait() -> None:
        with LogClient(broker.port) as waiting:
            answers.append(waiting.fetch(topic, 0, wait=30_000, min_bytes=3 * len(data)))

    thread = threading.Thread(target=wait)
    thread.start()
    client.produce(topic, data)
    client.produce(topic, data)
    thread.join(30)
    assert len(answers[0]["records"]) == 3 * len(data)


def test_a_repeated_batch_of_an_idempotent_producer_is_answered_and_not_written(
    broker: BrokerProcess, client: LogClient, topic: str
) -> None:
    client.create(topic)
    batches = [batch_of(b"a", b"b", producer_id=77, epoch=0, sequence=2 * n) for n in range(7)]
    assert [client.produce(topic, data)["base_offset"] for data in batches] == [0, 2, 4, 6, 8, 10, 12]
    again = client.produce(topic, batches[3])
    assert (again["error_code"], again["base_offset"]) == (0, 6)
    assert client.produce(topic, batches[0])["error_code"] == 45, "older than the five that are remembered"
    assert broker.store.xlen(broker.key(topic, 0, "log")) == 7


def test_sequences_must_follow_and_epochs_must_not_go_back(
    broker: BrokerProcess, client: LogClient, topic: str
) -> None:
    client.create(topic)
    assert client.produce(topic, batch_of(b"a", producer_id=5, epoch=1, sequence=0))["error_code"] == 0
    assert client.produce(topic, batch_of(b"a", producer_id=5, epoch=1, sequence=2))["error_code"] == 45
    assert client.produce(topic, batch_of(b"a", producer_id=5, epoch=0, sequence=1))["error_code"] == 47
    assert client.produce(topic, batch_of(b"a", producer_id=5, epoch=2, sequence=9))["error_code"] == 45
    assert client.produce(topic, batch_of(b"a", producer_id=5, epoch=2, sequence=0))["error_code"] == 0
    unknown = batch_of(b"a", b"b", producer_id=6, epoch=0, sequence=2**31 - 1)
    assert client.produce(topic, unknown)["error_code"] == 0, "a producer nobody remembers may start anywhere"
    assert client.produce(topic, batch_of(b"a", producer_id=6, epoch=0, sequence=1))["error_code"] == 0, "wrapped"
    assert broker.store.hget(broker.key(topic, 0, "m"), "leo") == b"5"


def test_a_transactional_batch_without_a_transaction_is_refused(client: LogClient, topic: str) -> None:
    client.create(topic)
    data = batch_of(b"a", producer_id=5, epoch=0, sequence=0, transactional=True)
    assert client.produce(topic, data)["error_code"] == 48


def test_bad_batches_get_kafkas_codes_and_leave_no_trace(broker: BrokerProcess, client: LogClient, topic: str) -> None:
    client.create(topic, max_message_bytes="2000")
    sound = batch_of(b"abc")
    assert client.produce(topic, sound[:-1] + b"!")["error_code"] == 2
    assert client.produce(topic, batch_of(b"x" * 3000))["error_code"] == 10
    assert client.produce(topic, sound + sound)["error_code"] == 87
    assert client.produce(topic, None)["error_code"] == 87
    assert client.produce(topic, sound, partition=1)["error_code"] == 3
    assert client.produce(topic, sound, acks=2)["error_code"] == 21
    assert client.produce(topic, batch_of(b"abc", compression=ZSTD), version=6)["error_code"] == 76
    assert not broker.store.exists(broker.key(topic, 0, "log"))


def test_a_compacted_topic_wants_keys(client: LogClient, topic: str) -> None:
    client.create(topic, cleanup_policy="compact")
    assert client.produce(topic, batch_of(b"a", key=None))["error_code"] == 87
    assert client.produce(topic, batch_of(b"a", key=None, compression=ZSTD))["error_code"] == 87
    assert client.produce(topic, batch_of(b"a"))["error_code"] == 0


def test_log_append_time_is_the_brokers(client: LogClient, topic: str) -> None:
    client.create(topic, message_timestamp_type="LogAppendTime")
    row = client.produce(topic, batch_of(b"a", b"b", timestamp=5))
    assert abs(row["log_append_time"] / 1000 - time.time()) < 60
    fetched = client.fetch(topic, 0)["records"]
    assert isinstance(batch.checked(fetched), batch.Batch)
    assert {record.timestamp for record in records.iterate(fetched)} == {row["log_append_time"]}


def test_acks_0_gets_no_answer_and_a_refusal_closes_the_connection(
    broker: BrokerProcess, client: LogClient, topic: str
) -> None:
    client.create(topic)
    message = {
        "transactional_id": None,
        "acks": 0,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batch_of(b"a")}]}],
    }
    client.socket.sendall(request_bytes(PRODUCE, 9, 1, "raw", message))
    assert client.fetch(topic, 0)["high_watermark"] == 1, "the next answer is the fetch's"
    message["topic_data"][0]["partition_data"][0]["index"] = 9  # type: ignore[index]
    with LogClient(broker.port) as rude:
        rude.socket.sendall(request_bytes(PRODUCE, 9, 1, "raw", message))
        assert rude.read_frame() is None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_versions_that_are_only_listed_are_refused_in_their_own_form(
    client: LogClient, topic: str, version: int
) -> None:
    name = topic.encode()
    body = (
        struct.pack(">hii", -1, 1000, 1) + struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, 0, 3) + b"abc"
    )
    frame = struct.pack(">hhih", PRODUCE, version, 7, -1) + body
    client.socket.sendall(struct.pack(">i", len(frame)) + frame)
    answer = client.read_frame()
    assert answer is not None
    row_at = 4 + 4 + 2 + len(name) + 4
    assert struct.unpack_from(">ihq", answer, row_at) == (0, 35, -1)
    assert len(answer) == row_at + 14 + (8 if version >= 2 else 0) + (4 if version >= 1 else 0)


def test_offsets_are_found_by_time_inside_compressed_batches_too(client: LogClient, topic: str) -> None:
    client.create(topic)
    assert client.offset(topic, -1)["offset"] == 0
    assert client.offset(topic, -2)["offset"] == 0
    assert client.offset(topic, -3)["offset"] == -1
    for start in (1000, 2000, 3000):
        client.produce(topic, batch_of(*[b"x"] * 100, timestamp=start, compression=GZIP))
    assert client.offset(topic, -1)["offset"] == 300
    assert (client.offset(topic, 0)["offset"], client.offset(topic, 1000)["offset"]) == (0, 0)
    hit = client.offset(topic, 2042)
    assert (hit["offset"], hit["timestamp"]) == (142, 2042)
    assert client.offset(topic, 1500)["offset"] == 100
    assert client.offset(topic, 9999)["offset"] == -1
    newest = client.offset(topic, -3)
    assert (newest["offset"], newest["timestamp"]) == (299, 3099)


def test_the_sparse_time_index_still_finds_every_offset(broker: BrokerProcess, client: LogClient, topic: str) -> None:
    client.create(topic)
    for n in range(60):
        client.produce(topic, batch_of(b"x" * 8000, timestamp=1000 + 10 * n))
    assert 2 <= broker.store.zcard(broker.key(topic, 0, "tidx")) <= 12
    assert [client.offset(topic, 1000 + 10 * n - 5)["offset"] for n in range(60)] == list(range(60))


def test_the_end_of_a_leader_epoch_is_the_end_of_the_log(client: LogClient, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a", b"b"))

    def ask(current: int, epoch: int) -> tuple[int, int, int]:
        row = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        message = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [row]}]}
        [found] = client.call(EPOCH_END, 4, message)["topics"][0]["partitions"]
        return found["error_code"], found["leader_epoch"], found["end_offset"]

    assert ask(-1, 0) == (0, 0, 2)
    assert ask(5, 0)[0] == 75


def test_fetch_by_topic_id_and_an_unknown_session(client: LogClient, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a"))
    ask = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    [described] = client.call(METADATA, 12, {"topics": [{"topic_id": bytes(16), "name": topic}], **ask})["topics"]

    def fetch(topic_id: bytes, session: int = 0) -> dict[str, Any]:
        row = {"partition": 0, "current_leader_epoch": 0, "fetch_offset": 0, "last_fetched_epoch": 0}
        rows = [{**row, "log_start_offset": 0, "partition_max_bytes": 1000}]
        message = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1000, "isolation_level": 0, "session_id": session}
        topics = [{"topic_id": topic_id, "partitions": rows}]
        rest = {"session_epoch": 1, "topics": topics, "forgotten_topics_data": [], "rack_id": ""}
        return client.call(FETCH, 16, {**message, **rest})

    assert values(fetch(described["topic_id"])["responses"][0]["partitions"][0]) == [(0, b"a")]
    assert fetch(b"\1" * 16)["responses"][0]["partitions"][0]["error_code"] == 100
    assert fetch(described["topic_id"], session=12)["error_code"] == 70


def test_pipelined_requests_are_answered_in_order_even_behind_a_long_poll(client: LogClient, topic: str) -> None:
    client.create(topic)
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]
    fetch = {
        "replica_id": -1,
        "max_wait": 300,
        "min_bytes": 1,
        "max_bytes": 100,
        "isolation_level": 0,
        "topics": [{"topic": topic, "partitions": wanted}],
    }
    versions = request_bytes(18, 0, 2, "raw", {})
    client.socket.sendall(request_bytes(FETCH, 4, 1, "raw", fetch) + versions)
    first, second = client.read_frame(), client.read_frame()
    assert first is not None
    assert second is not None
    assert (first[:4], second[:4]) == (struct.pack(">i", 1), struct.pack(">i", 2))
    assert read_response(FETCH, 4, first, 4)["responses"][0]["partitions"][0]["error_code"] == 0


def test_a_read_from_the_store_fills_the_limit_whatever_the_size_of_the_batches(
    start_broker: StartBroker, broker: BrokerProcess, client: LogClient, topic: str
) -> None:
    client.create(topic, partitions=2)
    small, large = batch_of(b"s"), batch_of(b"x" * 200_000)
    for _ in range(300):
        client.produce(topic, small)
    for _ in range(6):
        client.produce(topic, large, partition=1)
    other = start_broker("--node-id", "2", keyspace=broker.keyspace)
    with LogClient(other.port) as stranger:
        few, big = stranger.fetch_many([(topic, 0, 0), (topic, 1, 0)], partition_max=500_000)
        assert len(few["records"]) == 300 * len(small)
        assert len(big["records"]) == 2 * len(large)
        assert len(stranger.fetch(topic, 0, partition_max=100 * len(small))["records"]) == 100 * len(small)
