"""Getting in: passwords, users, TLS, old servers. No password may show up in an error or a repr."""

import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest

import respline
from respline import NotSent, ServerError
from tests import children
from tests.needs import need
from tests.patience import PATIENCE_SECONDS
from tests.respline.conftest import MakeServer
from tests.respline.servers import Server
from tests.respline.wires import answering, listening, proxy


async def test_a_wrong_password_is_one_clear_error_without_the_password(make_server: MakeServer) -> None:
    server = make_server("--requirepass", "right-secret")
    with pytest.raises(NotSent, match="refused AUTH: WRONGPASS") as refused:
        await respline.open_line(f"redis://:wrong-secret@127.0.0.1:{server.port}")
    assert "wrong-secret" not in repr(refused.value)
    with pytest.raises(NotSent, match="NOAUTH"):
        await respline.open_line(server.url)
    async with await respline.open_line(f"redis://:right-secret@127.0.0.1:{server.port}/1") as line:
        await line.call("SET", "k", 1)
        assert "secret" not in repr(line)
        assert "secret" not in repr(line.address)


async def test_a_user_with_few_rights_gets_in_and_is_told_what_is_forbidden(make_server: MakeServer) -> None:
    server = make_server()
    with server.admin() as admin:
        admin.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "~open:*", "+get", "+auth")
    async with await respline.open_line(f"redis://reader:pw@127.0.0.1:{server.port}", name="r", protocol=3) as line:
        assert await line.call("GET", "open:1") is None
        assert line.server_info == {}
        with pytest.raises(ServerError) as forbidden:
            await line.call("GET", "closed:1")
        assert forbidden.value.code == "NOPERM"


async def test_an_old_server_without_hello_is_spoken_to_in_resp2_and_its_quotes_are_censored() -> None:
    """Servers of that age quote the arguments of a command they do not know, the password among them."""

    def answer(command: list[bytes]) -> bytes:
        match command:
            case [b"AUTH", b"good"]:
                return b"+OK\r\n"
            case [b"AUTH" | b"HELLO" | b"CLIENT", *arguments]:
                return b"-ERR unknown command, with args beginning with: %b\r\n" % b" ".join(arguments)
            case [b"INFO", *_]:
                return b"$0\r\n\r\n"
        return b"+PONG\r\n"

    async with listening(answering(answer)) as port:
        async with await respline.open_line(f"redis://:good@127.0.0.1:{port}", protocol=3, name="n") as line:
            assert await line.call("PING") == b"PONG"
        with pytest.raises(NotSent, match=r"\*\*\*") as refused:
            await respline.open_line(f"redis://:bad@127.0.0.1:{port}")
        assert "bad" not in str(refused.value)


@pytest.mark.parametrize("refusal", ["ERR max number of clients reached", "DENIED Valkey is running in protected mode"])
async def test_a_server_that_refuses_everybody_is_not_taken_for_one_that_forbids_info(refusal: str) -> None:
    async with listening(answering(lambda command: f"-{refusal}\r\n".encode())) as port:
        with pytest.raises(NotSent, match=refusal):
            await respline.open_line(f"redis://127.0.0.1:{port}", protocol=3, name="n")


async def test_a_full_server_says_so(make_server: MakeServer) -> None:
    server = make_server("--maxclients", "1")
    with take_the_only_place(server), pytest.raises(NotSent, match=r"max number of clients|closed|lost"):
        await respline.open_line(server.url)


def take_the_only_place(server: Server) -> socket.socket:
    """Tries until it has it: the client that waited for the server to start may not have left it yet."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        place = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS)
        with suppress(OSError):
            place.sendall(b"PING\r\n")
            if place.recv(100) == b"+PONG\r\n":
                return place
        place.close()
    raise AssertionError("the place never became free")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    need("openssl", "it makes the certificate")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    children.run(
        ["openssl", "req", "-x509", *curve, "-keyout", key, "-out", cert, *subject], check=True, capture_output=True
    )
    return key, cert


async def test_tls_checks_the_certificate_and_carries_the_protocol(
    server: Server, certificate: tuple[Path, Path]
) -> None:
    key, cert = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    async with proxy(server.port, tls=context) as wire:
        async with await respline.open_line(f"rediss://127.0.0.1:{wire.port}/0?ssl_ca_certs={cert}") as line:
            value = b"x" * (1 << 20)
            await line.call("SET", "over tls", value)
            assert await line.call("GET", "over tls") == value
        trusting = ssl.create_default_context(cafile=str(cert))
        async with await respline.open_store(f"valkeys://localhost:{wire.port}", ssl_context=trusting) as line:
            assert await line.call("STRLEN", "over tls") == 1 << 20
        with pytest.raises(NotSent, match="certificate"):
            await respline.open_line(f"rediss://127.0.0.1:{wire.port}")
