"""Frames, order and manners: what the broker does with bytes before any API sees them."""

import os
import signal
import struct
import sys

import pytest

from aisle.embedded.server import free_port
from penstock.dispatch import APIS
from penstock.wire.read import read_response
from penstock.wire.write import request_bytes
from tests import children
from tests.penstock.conftest import BrokerProcess, StartBroker
from tests.penstock.wire import RawClient

API_VERSIONS, METADATA = 18, 3
LOGIN = {17, 36}  # listed only where users log in


def alive(broker: BrokerProcess) -> bool:
    with RawClient(broker.port) as client:
        return bool(client.call(API_VERSIONS, 0, {})["error_code"] == 0)


def test_the_versions_answered_are_the_table(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        rows = client.call(API_VERSIONS, 3, {"client_software_name": "t", "client_software_version": "1"})["api_keys"]
    assert {r["api_key"]: (r["min_version"], r["max_version"]) for r in rows} == {
        key: (api.low, api.high) for key, api in APIS.items() if key not in LOGIN
    }


def test_an_api_versions_request_from_the_future_is_answered_in_version_0(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.socket.sendall(struct.pack(">ihhih", 10, API_VERSIONS, 99, 42, -1))
        frame = client.read_frame()
        assert frame is not None
        assert frame[:4] == struct.pack(">i", 42)
        answer = read_response(API_VERSIONS, 0, frame, 4)
        assert answer["error_code"] == 35
        assert {"api_key": 18, "min_version": 0, "max_version": 4} in answer["api_keys"]
        assert client.call(API_VERSIONS, 0, {})["error_code"] == 0, "the connection stays usable"


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhih", 999, 0, 1, -1),  # unknown API
        struct.pack(">hhih", METADATA, 99, 1, -1),  # unknown version
        b"\0\3",  # too short for a header
        struct.pack(">hhih", METADATA, 1, 1, 500) + b"x",  # client id longer than the frame
        struct.pack(">hhih", METADATA, 1, 1, -9),
        # The 15 bytes that abort a process which trusts array lengths: Metadata v9, 2^32-2 topics.
        struct.pack(">hhih", METADATA, 9, 1, -1) + b"\0" + b"\xff\xff\xff\xff\x0f",
    ],
)
def test_a_bad_request_costs_its_connection_and_nothing_else(broker: BrokerProcess, frame: bytes) -> None:
    with RawClient(broker.port) as client:
        client.socket.sendall(struct.pack(">i", len(frame)) + frame)
        assert client.read_frame() is None
    assert alive(broker)


@pytest.mark.parametrize("size", [-1, 0, 2**31 - 1])
def test_an_absurd_frame_size_closes_the_connection(broker: BrokerProcess, size: int) -> None:
    with RawClient(broker.port) as client:
        client.socket.sendall(struct.pack(">i", size) + b"GET / HTTP/1.1\r\n")
        assert client.read_frame() is None
    assert alive(broker)


def test_a_request_may_arrive_byte_by_byte_and_many_in_one_piece(broker: BrokerProcess) -> None:
    request = request_bytes(API_VERSIONS, 0, 7, "raw", {})
    with RawClient(broker.port) as client:
        for byte in request:
            client.socket.sendall(bytes([byte]))
        assert client.read_frame() is not None
        numbered = [request_bytes(API_VERSIONS, 0, n, "raw", {}) for n in range(200)]
        client.socket.sendall(b"".join(numbered))
        answers = [client.read_frame() for _ in numbered]
    assert [struct.unpack_from(">i", answer or b"")[0] for answer in answers] == list(range(200))


def test_sigterm_answers_what_arrived_and_ends_with_code_0(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawClient(broker.port) as client:
        assert client.call(API_VERSIONS, 0, {})["error_code"] == 0
        assert broker.stop(signal.SIGTERM) == 0
        assert client.read_frame() is None
    assert not broker.store.hgetall(f"{{{broker.keyspace}}}:nodes"), "the lease is given back"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--listen", "nowhere", "--store", "redis://127.0.0.1:1"], "not HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--store", f"redis://127.0.0.1:{free_port()}"], "the store does not answer"),
        (["--listen", "127.0.0.1:0", "--store", "ftp://x"], ""),
        (["--listen", "127.0.0.1:0", "--store", "redis://127.0.0.1:1", "--keyspace", "a{b"], "keyspace"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(flags: list[str], words: str) -> None:
    command = [sys.executable, "-m", "penstock.cli", "serve", *flags]
    ended = children.run(command, capture_output=True, text=True, timeout=60, env={**os.environ})
    assert ended.returncode == 2
    assert ended.stderr.startswith("penstock: ")
    assert words in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
