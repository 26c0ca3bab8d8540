"""What callers are told when the connection breaks, and that nothing is ever sent twice."""

import asyncio

import pytest

import respline
from respline import NotSent, OutcomeUnknown
from tests.patience import PATIENCE_SECONDS, until
from tests.respline.conftest import MakeServer
from tests.respline.servers import Server
from tests.respline.wires import answering, listening, proxy


async def test_a_lost_reply_is_an_unknown_outcome_and_the_command_ran_exactly_once(server: Server) -> None:
    async with proxy(server.port) as wire, await respline.open_line(wire.url) as line:
        with server.admin() as admin:
            wire.sent.clear()
            wire.swallow_replies = True
            call = line.call("INCR", "n")
            await until(lambda: admin.get("n") == b"1", "the command ran")
            wire.swallow_replies = False
            wire.cut()
            with pytest.raises(OutcomeUnknown):
                await call
            await line.ready(PATIENCE_SECONDS)
            assert await line.call("GET", "n") == b"1"
            assert b"".join(wire.sent).count(b"INCR") == 1
            assert (line.counters.unknown, line.counters.reconnects, wire.connections) == (1, 1, 2)


async def test_kill_9_tells_written_from_unwritten_and_the_line_comes_back(make_server: MakeServer) -> None:
    server = make_server()
    async with await respline.open_line(server.url, timeout=60) as line:
        server.pause()
        value = b"x" * (1 << 20)
        calls = []
        for n in range(40):
            calls.append(line.call("SET", f"k{n}", value))
            await asyncio.sleep(0)
        server.kill()
        outcomes = [type(outcome) for outcome in await asyncio.gather(*calls, return_exceptions=True)]
        written = outcomes.count(OutcomeUnknown)
        assert 0 < written < 40
        assert outcomes == [OutcomeUnknown] * written + [NotSent] * (40 - written)
        with pytest.raises(NotSent):
            await line.call("PING")
        assert not line.connected
        server.start()
        await line.ready(PATIENCE_SECONDS)
        assert await line.call("DBSIZE") == 0
        assert line.counters.reconnects == 1


async def test_what_was_not_sent_is_not_in_the_store(make_server: MakeServer) -> None:
    server = make_server()
    async with proxy(server.port) as wire, await respline.open_line(wire.url, timeout=60) as line:
        server.pause()
        calls = []
        for n in range(60):
            calls.append(line.call("SET", f"k{n}", b"x" * (1 << 20)))
            await asyncio.sleep(0)
        wire.cut()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        server.resume()
        await line.ready(PATIENCE_SECONDS)
        unsent = [f"k{n}" for n, outcome in enumerate(outcomes) if isinstance(outcome, NotSent)]
        assert unsent
        assert await line.call("EXISTS", *unsent) == 0


async def test_a_silent_server_is_given_up_after_the_time_out(make_server: MakeServer) -> None:
    server = make_server()
    async with await respline.open_line(server.url, timeout=0.4) as line:
        server.pause()
        first, second = line.call("INCR", "n"), line.call_many([("INCR", "n")] * 3)
        with pytest.raises(OutcomeUnknown, match="no reply in time"):
            await first
        with pytest.raises(OutcomeUnknown):
            await second
        assert line.counters.unknown == 4
        server.resume()
        await line.ready(PATIENCE_SECONDS)
        assert await line.call("ECHO", "again") == b"again"


async def test_a_line_without_time_out_waits_for_a_blocking_read(server: Server) -> None:
    async with await respline.open_line(server.url, timeout=None, health_check_interval=0.2) as line:
        popped = line.call("BLPOP", "list", 0)
        with server.admin() as admin:
            await until(lambda: int(admin.info("clients")["blocked_clients"]) == 1, "the read blocks")
            done, _ = await asyncio.wait([popped], timeout=0.8)
            assert not done, "silence during a blocking read is normal"
            admin.rpush("list", "x")
        assert await popped == [b"list", b"x"]


async def test_closing_does_not_wait_for_a_blocking_read(server: Server) -> None:
    line = await respline.open_line(server.url, timeout=None)
    popped = line.call("BLPOP", "nothing", 0)
    await asyncio.wait_for(line.aclose(), PATIENCE_SECONDS)
    with pytest.raises(respline.ResplineError):
        await popped


async def test_an_idle_line_is_checked_and_a_dead_server_noticed(make_server: MakeServer) -> None:
    server = make_server()
    async with (
        proxy(server.port) as wire,
        await respline.open_line(wire.url, timeout=None, health_check_interval=0.1, connect_timeout=0.5) as line,
    ):
        await until(lambda: b"".join(wire.sent).count(b"PING") > 1, "health checks are sent")
        assert line.connected
        server.pause()
        await until(lambda: not line.connected, "the silence was noticed")
        server.resume()
        await line.ready(PATIENCE_SECONDS)
        assert await line.call("ECHO", "back") == b"back"


async def test_the_line_returns_logged_in_named_and_on_its_database(make_server: MakeServer) -> None:
    server = make_server("--requirepass", "pa:ss/w@rd")
    url = f"redis://:pa%3Ass%2Fw%40rd@127.0.0.1:{server.port}/5"
    async with await respline.open_line(url, name="comes-back", protocol=3) as line:
        await line.call("SET", "k", 1)
        own_id = await line.call("CLIENT", "ID")
        with pytest.raises(OutcomeUnknown):
            await line.call_many([("CLIENT", "KILL", "ID", own_id, "SKIPME", "no"), ("DEBUG", "SLEEP", 0)])
        await line.ready(PATIENCE_SECONDS)
        assert await line.call("GET", "k") == b"1"
        assert await line.call("CLIENT", "GETNAME") == b"comes-back"
        assert isinstance(await line.call("CONFIG", "GET", "port"), dict)


async def test_calls_while_disconnected_fail_at_once_and_say_why(make_server: MakeServer) -> None:
    server = make_server()
    async with await respline.open_line(server.url) as line:
        server.kill()
        await until(lambda: not line.connected, "the loss was noticed")
        for refused in (line.call("PING"), line.call_many([("PING",)]), line.transaction([("PING",)])):
            assert refused.done()
            with pytest.raises(NotSent, match=str(server.port)):
                await refused
        with pytest.raises(NotSent):
            await line.ready(timeout=0.1)


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x46", b"*4000000000\r\n"]
)
async def test_a_server_of_another_kind_is_named_as_such(garbage: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(garbage)
        await reader.read()

    async with listening(serve) as port:
        with pytest.raises(NotSent, match="does not speak the Redis protocol"):
            await respline.open_line(f"redis://127.0.0.1:{port}")


async def test_a_server_that_hangs_up_or_keeps_silent_is_not_waited_for() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(hang_up) as port:
        with pytest.raises(NotSent, match=r"closed|lost"):
            await respline.open_line(f"redis://127.0.0.1:{port}")
    async with listening(keep_silent) as port:
        with pytest.raises(NotSent, match=r"within 0\.2 s"):
            await respline.open_line(f"redis://127.0.0.1:{port}", connect_timeout=0.2)
    with pytest.raises(NotSent, match="cannot connect"):
        await respline.open_line(f"redis://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"?what\r\n", "Redis protocol"),
        (b"%1\r\n*0\r\n:1\r\n", "Redis protocol"),
        (b"$1000\r\n" + b"x" * 900, "larger than 500 bytes"),
        (b"*1000\r\n" + b":1\r\n" * 900, "larger than 500 bytes"),
    ],
)
async def test_garbage_in_mid_stream_drops_the_connection_and_nothing_else(garbage: bytes, reason: str) -> None:
    infos = 0

    def answer(command: list[bytes]) -> bytes:
        nonlocal infos
        infos += command[0] == b"INFO"
        return b"$0\r\n\r\n" if command[0] == b"INFO" else garbage if infos == 1 else b"+PONG\r\n"

    async with (
        listening(answering(answer)) as port,
        await respline.open_line(f"redis://127.0.0.1:{port}", reply_max_bytes=500) as line,
    ):
        with pytest.raises(OutcomeUnknown, match=reason):
            await line.call("PING")
        await line.ready(PATIENCE_SECONDS)
        assert await line.call("PING") == b"PONG"


async def test_a_reply_that_nobody_asked_for_ends_the_connection() -> None:
    infos = 0

    def answer(command: list[bytes]) -> bytes:
        nonlocal infos
        infos += command[0] == b"INFO"
        return b"$0\r\n\r\n" if command[0] == b"INFO" else b"+ONE\r\n+TOO MANY\r\n" if infos == 1 else b"+PONG\r\n"

    async with listening(answering(answer)) as port, await respline.open_line(f"redis://127.0.0.1:{port}") as line:
        assert await line.call("PING") == b"ONE"
        await until(lambda: infos == 2, "the line dialled again")
        await line.ready(PATIENCE_SECONDS)
        assert await line.call("PING") == b"PONG"
