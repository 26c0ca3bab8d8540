"""The hand-packed Produce and Fetch say, byte for byte, what kio says; and what is not a message is refused."""

import contextlib
import io
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from penstock.wire.hot_fetch import FetchRow, read_fetch, write_fetch
from penstock.wire.hot_produce import ProduceRow, read_produce, write_produce
from penstock.wire.read import Malformed
from penstock.wire.schema import request_plan
from tests.penstock.test_wire import as_kio, messages

PRODUCE, FETCH = 0, 1
thorough = settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
offsets = st.integers(-1, 2**53)
codes = st.sampled_from([ErrorCode.none, ErrorCode.offset_out_of_range, ErrorCode.kafka_storage_error])


def by_kio(cls: type[Any], message: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    entity_writer(cls)(out, as_kio(cls, message))
    return out.getvalue()


@pytest.mark.parametrize("version", range(3, 12))
@thorough
@given(data=st.data())
def test_produce_requests_of_kio_are_read(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(request_plan(PRODUCE, version)))
    read = read_produce(by_kio(load_request_schema(PRODUCE, version), message), 0, version)
    assert (read.transactional_id, read.acks, read.timeout_ms) == (
        message["transactional_id"],
        message["acks"],
        message["timeout"],
    )
    assert read.topics == [
        (topic["name"], [(row["index"], row["records"]) for row in topic["partition_data"]])
        for topic in message["topic_data"]
    ]


produce_rows = st.builds(
    ProduceRow,
    st.integers(0, 2**31 - 1),
    codes,
    offsets,
    st.just(-1) | st.integers(0, 4_000_000_000).map(lambda s: s * 1000),
    offsets,
    st.none() | st.text(max_size=300),
)


@pytest.mark.parametrize("version", range(3, 12))
@thorough
@given(topics=st.lists(st.tuples(st.text(max_size=300), st.lists(produce_rows, max_size=3)), max_size=3))
def test_produce_answers_are_byte_for_byte_kios(version: int, topics: list[tuple[str, list[ProduceRow]]]) -> None:
    from datetime import UTC, datetime

    cls = load_response_schema(PRODUCE, version)
    [topic_cls] = [f.type.__args__[0] for f in cls.__dataclass_fields__.values() if f.name == "responses"]
    [row_cls] = [f.type.__args__[0] for f in topic_cls.__dataclass_fields__.values() if f.name == "partition_responses"]
    responses = []
    for name, rows in topics:
        built = []
        for row in rows:
            when = None if row.log_append_ms < 0 else datetime.fromtimestamp(row.log_append_ms / 1000, UTC)
            values = {
                "index": row.partition,
                "error_code": row.code,
                "base_offset": row.base_offset,
                "log_append_time": when,
                "log_start_offset": row.log_start,
                "record_errors": (),
                "error_message": row.message,
            }
            built.append(row_cls(**{k: v for k, v in values.items() if k in row_cls.__dataclass_fields__}))
        responses.append(topic_cls(name=name, partition_responses=tuple(built)))
    out = io.BytesIO()
    entity_writer(cls)(out, cls(responses=tuple(responses)))
    assert b"".join(write_produce(version, topics)) == out.getvalue()


@pytest.mark.parametrize("version", range(4, 17))
@thorough
@given(data=st.data())
def test_fetch_requests_of_kio_are_read(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(request_plan(FETCH, version)))
    read = read_fetch(by_kio(load_request_schema(FETCH, version), message), 0, version)
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes) == (
        message["max_wait"],
        message["min_bytes"],
        message["max_bytes"],
    )
    assert read.read_committed == (message["isolation_level"] == 1)
    assert read.session_id == message.get("session_id", 0)
    expected = []
    for topic in message["topics"]:
        rows = [
            (row["partition"], row.get("current_leader_epoch", -1), row["fetch_offset"], row["partition_max_bytes"])
            for row in topic["partitions"]
        ]
        expected.append((topic["topic_id"] if version >= 13 else topic["topic"], rows))
    assert [(name, [tuple(row) for row in rows]) for name, rows in read.topics] == expected


fetch_rows = st.builds(
    FetchRow,
    st.integers(0, 2**31 - 1),
    codes,
    offsets,
    offsets,
    offsets,
    st.none() | st.lists(st.tuples(offsets, offsets), max_size=3),
    st.none() | st.lists(st.binary(min_size=1, max_size=300), max_size=3),
)


@pytest.mark.parametrize("version", range(4, 17))
@thorough
@given(rows=st.lists(st.lists(fetch_rows, max_size=3), max_size=3), name=st.text(max_size=200), code=codes)
def test_fetch_answers_are_byte_for_byte_kios(
    version: int, rows: list[list[FetchRow]], name: str, code: ErrorCode
) -> None:
    topic: str | bytes = bytes(range(16)) if version >= 13 else name
    message = {
        "throttle_time": 0,
        "error_code": code,
        "session_id": 0,
        "node_endpoints": [],
        "responses": [
            {"topic": topic, "topic_id": topic, "partitions": [_fetch_row(row) for row in topic_rows]}
            for topic_rows in rows
        ],
    }
    expected = by_kio(load_response_schema(FETCH, version), message)
    assert b"".join(write_fetch(version, [(topic, topic_rows) for topic_rows in rows], code)) == expected


def _fetch_row(row: FetchRow) -> dict[str, Any]:
    aborted = row.aborted
    return {
        "partition_index": row.partition,
        "error_code": row.code,
        "high_watermark": row.high_watermark,
        "last_stable_offset": row.last_stable,
        "log_start_offset": row.log_start,
        "aborted_transactions": aborted and [{"producer_id": p, "first_offset": f} for p, f in aborted]
        if aborted is not None
        else None,
        "preferred_read_replica": -1,
        "records": b"".join(row.batches or []),
        "diverging_epoch": {"epoch": -1, "end_offset": -1},
        "current_leader": {"leader_id": -1, "leader_epoch": -1},
        "snapshot_id": {"end_offset": -1, "epoch": -1},
    }


@settings(max_examples=300, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.binary(max_size=120), st.integers(0, 11), st.integers(4, 16))
def test_noise_is_refused_and_nothing_else(noise: bytes, produce_version: int, fetch_version: int) -> None:
    with contextlib.suppress(Malformed):
        read_produce(noise, 0, produce_version)
    with contextlib.suppress(Malformed):
        read_fetch(noise, 0, fetch_version)
