"""Idle consumers: a fetch that repeats one in vain is parked; it is answered in time, in order, or with what came."""

import re
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from aisle.embedded.server import free_port
from tests.patience import eventually
from tests.penstock.batches import batch_of
from tests.penstock.conftest import BrokerProcess, StartBroker
from tests.penstock.test_log import LogClient, values
from tests.penstock.test_tools import page

WAIT_MS = 3_000


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture
def broker(start_broker: StartBroker, metrics_port: int) -> BrokerProcess:
    return start_broker("--metrics-listen", f"127.0.0.1:{metrics_port}")


class Idle(LogClient):
    def fetches_in_vain(self, topic: str) -> float:
        began = time.monotonic()
        assert values(self.fetch(topic, 0, wait=WAIT_MS)) == []
        return time.monotonic() - began


@pytest.fixture
def idle(broker: BrokerProcess, topic: str) -> Iterator[Idle]:
    """A consumer that has asked in vain: its next fetch is parked."""
    with Idle(broker.port) as client:
        client.create(topic)
        client.fetches_in_vain(topic)
        yield client


def in_flight(port: int) -> float:
    [found] = re.findall(r"^penstock_in_flight_bytes (\S+)$", page(port, "/metrics")[1], re.MULTILINE)
    return float(found)


def test_parked_fetches_are_answered_in_their_time(idle: Idle, topic: str, metrics_port: int) -> None:
    for _ in range(2):
        assert idle.fetches_in_vain(topic) > WAIT_MS / 1000 - 0.1, "at most a tick early"
    assert in_flight(metrics_port) == 0
    found = page(metrics_port, "/metrics")[1]
    assert 'penstock_requests_total{api="Fetch"} 3.0' in found


def test_a_parked_fetch_gets_what_is_appended_meanwhile(
    idle: Idle, broker: BrokerProcess, topic: str, metrics_port: int
) -> None:
    found: list[object] = []
    reading = threading.Thread(target=lambda: found.extend(values(idle.fetch(topic, 0, wait=WAIT_MS))))
    reading.start()
    eventually(lambda: in_flight(metrics_port) > 0, "the fetch to be parked")
    with LogClient(broker.port) as other:
        other.produce(topic, batch_of(b"a", b"b"))
    reading.join(60)
    assert found == [(0, b"a"), (1, b"b")]


def test_what_comes_behind_a_parked_fetch_is_answered_after_it(
    idle: Idle, topic: str, metrics_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []
    plain = idle.socket

    class Recording:
        def sendall(self, data: bytes) -> None:
            sent.append(data)
            plain.sendall(data)

        def recv(self, size: int) -> bytes:
            return plain.recv(size)

    monkeypatch.setattr(idle, "socket", Recording())
    idle.fetches_in_vain(topic)
    idle.call(18, 0, {})
    fetch, versions = sent

    def numbered(frame: bytes, number: int) -> bytes:
        return frame[:8] + struct.pack(">i", number) + frame[12:]

    plain.sendall(numbered(fetch, 100))
    eventually(lambda: in_flight(metrics_port) > 0, "the fetch to be parked")
    plain.sendall(numbered(versions, 101) + numbered(fetch, 102))
    assert [struct.unpack_from(">i", idle.read_frame() or b"")[0] for _ in range(3)] == [100, 101, 102]
    monkeypatch.undo()
    assert in_flight(metrics_port) == 0


def test_a_client_that_leaves_while_its_fetch_is_parked_leaves_nothing(
    idle: Idle, broker: BrokerProcess, topic: str, metrics_port: int
) -> None:
    def left_alone() -> None:
        with pytest.raises(AssertionError, match="closed the connection"):
            idle.fetch(topic, 0, wait=WAIT_MS)

    leaving = threading.Thread(target=left_alone)
    leaving.start()
    eventually(lambda: in_flight(metrics_port) > 0, "the fetch to be parked")
    idle.socket.shutdown(2)
    eventually(lambda: in_flight(metrics_port) == 0, "the broker to let go of it")
    leaving.join(60)
    with LogClient(broker.port) as other:
        assert other.produce(topic, batch_of(b"a"))["error_code"] == 0


def test_a_broker_that_stops_answers_parked_fetches_first(
    idle: Idle, broker: BrokerProcess, topic: str, metrics_port: int
) -> None:
    found: list[object] = []
    reading = threading.Thread(target=lambda: found.append(idle.fetch(topic, 0, wait=WAIT_MS)["error_code"]))
    reading.start()
    eventually(lambda: in_flight(metrics_port) > 0, "the fetch to be parked")
    assert broker.stop() == 0
    reading.join(60)
    assert found == [0]
