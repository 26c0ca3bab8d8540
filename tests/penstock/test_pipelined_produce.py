"""Appends that arrive together on one connection: one round trip to the store, each answered, in their order."""

import struct
from typing import Any

import pytest

from penstock.wire.read import read_response
from penstock.wire.write import request_bytes
from tests.penstock.batches import batch_of
from tests.penstock.conftest import BrokerProcess
from tests.penstock.test_log import PRODUCE, LogClient, values

VERSION = 8


@pytest.fixture
def client(broker: BrokerProcess) -> Any:
    with LogClient(broker.port) as client:
        yield client


def frame(number: int, topic: str, data: bytes, partition: int = 0, acks: int = -1) -> bytes:
    rows = [{"index": partition, "records": data}]
    message = {
        "transactional_id": None,
        "acks": acks,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": rows}],
    }
    return request_bytes(PRODUCE, VERSION, number, "raw", message)


def answers(client: LogClient, count: int) -> list[tuple[int, int, int]]:
    """Correlation id, error code and base offset of each."""
    found = []
    for _ in range(count):
        answer = client.read_frame()
        assert answer is not None, "the broker closed the connection"
        [row] = read_response(PRODUCE, VERSION, answer, 4)["responses"][0]["partition_responses"]
        found.append((struct.unpack_from(">i", answer)[0], row["error_code"], row["base_offset"]))
    return found


def test_each_is_answered_in_order_and_keeps_its_place_in_the_log(client: LogClient, topic: str) -> None:
    client.create(topic, partitions=2)
    many = [frame(n, topic, batch_of(b"%d" % n), partition=n % 2) for n in range(40)]
    client.socket.sendall(b"".join(many))
    assert answers(client, 40) == [(n, 0, n // 2) for n in range(40)]
    assert [value for _, value in values(client.fetch(topic, 0))] == [b"%d" % n for n in range(0, 40, 2)]


def test_a_refused_one_spoils_only_itself(client: LogClient, topic: str) -> None:
    client.create(topic)
    damaged = batch_of(b"no")[:-1] + b"\xff"
    wrong_acks = frame(4, topic, batch_of(b"no"), acks=7)
    together = [frame(1, topic, batch_of(b"a")), frame(2, topic, damaged), frame(3, f"{topic}-not", batch_of(b"no"))]
    client.socket.sendall(b"".join([*together, wrong_acks, frame(5, topic, batch_of(b"b"))]))
    assert answers(client, 5) == [(1, 0, 0), (2, 2, -1), (3, 3, -1), (4, 21, -1), (5, 0, 1)]
    assert values(client.fetch(topic, 0)) == [(0, b"a"), (1, b"b")]


def test_one_that_wants_no_answer_gets_none_among_those_that_do(client: LogClient, topic: str) -> None:
    client.create(topic)
    silent = frame(2, topic, batch_of(b"b"), acks=0)
    client.socket.sendall(frame(1, topic, batch_of(b"a"), acks=1) + silent + frame(3, topic, batch_of(b"c")))
    assert answers(client, 2) == [(1, 0, 0), (3, 0, 2)]
    assert values(client.fetch(topic, 0)) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_malformed_one_costs_the_connection_and_what_came_with_it_may_be_sent_again(
    client: LogClient, broker: BrokerProcess, topic: str
) -> None:
    client.create(topic)
    good = frame(1, topic, batch_of(b"a"))
    cut = frame(2, topic, batch_of(b"b"))[4:-10]
    client.socket.sendall(good + struct.pack(">i", len(cut)) + cut)
    while client.read_frame() is not None:
        pass
    with LogClient(broker.port) as again:
        assert again.produce(topic, batch_of(b"c"))["error_code"] == 0
