"""Logging in and TLS, with the clients that people use; and what strangers get, which is nothing."""

import asyncio
import ssl
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.sasl import Credential, Denied, Plain, Scram, Users
from penstock.wire.read import read_response
from penstock.wire.write import request_bytes
from tests import children
from tests.patience import eventually
from tests.penstock.conftest import BrokerProcess, StartBroker
from tests.penstock.wire import RawClient

HANDSHAKE, AUTHENTICATE, API_VERSIONS, METADATA = 17, 36, 18, 3
PASSWORD = "correct horse, battery=staple"


@pytest.fixture
def users_file(tmp_path: Path) -> str:
    command = [sys.executable, "-m", "penstock.cli", "user", "alice"]
    made = children.run(command, input=PASSWORD + "\n", capture_output=True, text=True, timeout=60, check=True)
    assert PASSWORD not in made.stdout
    path = tmp_path / "users"
    path.write_text("# who may log in\n" + made.stdout)
    return str(path)


@pytest.fixture
def guarded(start_broker: StartBroker, users_file: str) -> BrokerProcess:
    return start_broker("--sasl-users", users_file)


def login(mechanism: str, password: str) -> dict[str, Any]:
    names = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": password}
    return {"security.protocol": "SASL_PLAINTEXT", **names}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_librdkafka_logs_in_and_a_wrong_password_is_refused(guarded: BrokerProcess, topic: str, mechanism: str) -> None:
    producer = Producer({"bootstrap.servers": guarded.address, **login(mechanism, PASSWORD)})
    errors: list[object] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]
    failures: list[str] = []
    wrong = {"bootstrap.servers": guarded.address, **login(mechanism, "guess")}
    admin = AdminClient({**wrong, "error_cb": lambda error: failures.append(error.name())})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    eventually(lambda: admin.poll(0.1) >= 0 and "_AUTHENTICATION" in failures, "the error to be told")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_aiokafka_logs_in(guarded: BrokerProcess, topic: str, mechanism: str) -> None:
    async def run() -> int:
        async with AIOKafkaProducer(
            bootstrap_servers=guarded.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORD,
        ) as producer:
            return int((await producer.send_and_wait(topic, b"x", partition=0)).offset)

    assert asyncio.run(run()) == 0


def test_strangers_may_ask_for_versions_and_nothing_else(guarded: BrokerProcess) -> None:
    with RawClient(guarded.port) as client:
        listed = {row["api_key"] for row in client.call(API_VERSIONS, 0, {})["api_keys"]}
        assert {HANDSHAKE, AUTHENTICATE} <= listed
        client.socket.sendall(request_bytes(METADATA, 1, 1, "stranger", {"topics": None}))
        assert client.read_frame() is None
    with RawClient(guarded.port) as client:
        assert client.call(AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0x"})["error_code"] == 34
        assert client.call(HANDSHAKE, 1, {"mechanism": "GSSAPI"})["error_code"] == 33
    with RawClient(guarded.port) as client:
        client.socket.sendall(struct.pack(">i", 1_000_000) + b"x" * 100)
        assert client.read_frame() is None, "large frames are for those we know"


def test_the_old_handshake_takes_tokens_without_headers(guarded: BrokerProcess) -> None:
    def handshake(client: RawClient, password: str) -> bytes | None:
        assert client.call(HANDSHAKE, 0, {"mechanism": "PLAIN"})["error_code"] == 0
        token = b"\0alice\0" + password.encode()
        client.socket.sendall(struct.pack(">i", len(token)) + token)
        return client.read_frame()

    with RawClient(guarded.port) as client:
        assert handshake(client, PASSWORD) == b""
        assert client.call(METADATA, 1, {"topics": None})["brokers"]
    with RawClient(guarded.port) as client:
        assert handshake(client, "guess") is None


def test_a_broker_without_users_has_no_login(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        listed = {row["api_key"] for row in client.call(API_VERSIONS, 0, {})["api_keys"]}
        assert not {HANDSHAKE, AUTHENTICATE} & listed


def test_exchanges_refuse_what_is_not_the_password() -> None:
    users = Users({"alice": Credential.of(PASSWORD)})
    plain = Plain(users)
    for token in (b"", b"\xff", b"\0alice\0", b"\0alice\0wrong", b"\0bob\0" + PASSWORD.encode(), b"bob\0alice\0x"):
        with pytest.raises(Denied):
            plain.step(token)
    for token in (b"", b"\xff", b"n,,n=alice", b"p=tls-unique,,n=alice,r=abc"):
        with pytest.raises(Denied):
            Scram(users).step(token)
    scram = Scram(users)
    challenge = scram.step(b"n,,n=alice,r=nonce").decode()
    nonce = challenge.split(",")[0]
    for token in (f"c=biws,{nonce},p=AAAA", f"c=biws,{nonce},p=!", "c=biws,r=nonce,p=AAAA", f"c=xxxx,{nonce},p=AAAA"):
        with pytest.raises(Denied):
            scram.step(token.encode())
    assert scram.user is None
    salts = {Scram(users).step(b"n,,n=nobody,r=x").split(b",s=")[1] for _ in range(3)}
    assert len(salts) == 1, "an unknown name looks like a known one"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    key, chain = str(tmp_path / "key.pem"), str(tmp_path / "chain.pem")
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", chain]
    children.run([*command, *subject], check=True, capture_output=True, timeout=60)
    return chain, key


def test_clients_talk_tls_and_large_records_pass(
    start_broker: StartBroker, certificate: tuple[str, str], topic: str
) -> None:
    chain, key = certificate
    broker = start_broker("--tls-certificate", chain, "--tls-key", key)
    secure = {"bootstrap.servers": broker.address, "security.protocol": "SSL", "ssl.ca.location": chain}
    producer = Producer(secure)
    errors: list[object] = []
    for _ in range(20):
        producer.produce(topic, b"x" * 500_000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert set(errors) == {None}
    context = ssl.create_default_context(cafile=chain)
    with RawClient(broker.port) as client:
        client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
        client.socket.sendall(request_bytes(API_VERSIONS, 0, 1, "x", {}))
        frame = client.read_frame()
    assert frame is not None
    assert read_response(API_VERSIONS, 0, frame, 4)["error_code"] == 0
    with RawClient(broker.port) as plain:
        plain.socket.sendall(request_bytes(API_VERSIONS, 0, 1, "x", {}))
        frame = plain.read_frame()
        assert frame is None or len(frame) < 10, "no answer without TLS"


def test_a_certificate_that_cannot_be_used_is_one_line_and_exit_code_2(valkey: Any, tmp_path: Path) -> None:
    flags = ["--tls-certificate", str(tmp_path / "none"), "--tls-key", str(tmp_path / "none")]
    command = [sys.executable, "-m", "penstock.cli", "serve", "--listen", "127.0.0.1:0", "--store", valkey.url, *flags]
    ended = children.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
