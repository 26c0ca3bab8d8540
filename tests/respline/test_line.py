"""What a line does while nothing goes wrong."""

import asyncio

import pytest

import respline
from respline import NotSent, ServerError
from tests.patience import until
from tests.respline.conftest import MakeServer
from tests.respline.servers import Server
from tests.respline.wires import proxy


async def test_ten_thousand_interleaved_calls_get_their_own_replies(server: Server) -> None:
    async with await respline.open_line(server.url) as line:

        async def caller(name: int) -> None:
            for turn in range(100):
                assert await line.call("ECHO", f"{name}-{turn}") == f"{name}-{turn}".encode()

        await asyncio.gather(*(caller(name) for name in range(100)))
        # INFO of the greeting, then the calls: nothing was sent twice and nothing was left out.
        assert line.counters.commands == 10_001
        assert line.in_flight == 0


async def test_commands_of_one_loop_turn_leave_in_one_write(server: Server) -> None:
    async with proxy(server.port) as wire, await respline.open_line(wire.url) as line:
        wire.sent.clear()
        writes = line.counters.writes
        await asyncio.gather(*(line.call("SET", f"k{n}", n) for n in range(200)), line.call_many([("PING",)] * 20))
        assert line.counters.writes == writes + 1
        assert len(wire.sent) == 1
        assert wire.sent[0].count(b"SET") == 200
        assert wire.sent[0].count(b"PING") == 20


async def test_call_many_answers_in_order_and_returns_errors_as_values(server: Server) -> None:
    async with await respline.open_line(server.url) as line:
        replies = await line.call_many([("SET", "s", "x"), ("INCR", "s"), ("GET", "s"), ("GET", "nothing")])
        assert replies[0] == b"OK"
        assert isinstance(replies[1], ServerError)
        assert replies[1].code == "ERR"
        assert replies[2:] == [b"x", None]
        assert await line.call_many([]) == []


async def test_every_kind_of_argument_arrives_as_written(server: Server) -> None:
    async with await respline.open_line(server.url) as line:
        await line.call(b"RPUSH", "list", b"\x00\xff", "grün", 42, 1.5, -(10**30))
    with server.admin() as admin:
        assert admin.lrange("list", 0, -1) == [b"\x00\xff", "grün".encode(), b"42", b"1.5", b"-" + b"1" + b"0" * 30]


async def test_a_bad_argument_is_refused_before_anything_of_the_list_is_sent(server: Server) -> None:
    async with await respline.open_line(server.url) as line:
        with pytest.raises(TypeError):
            line.call_many([("SET", "a", 1), ("SET", "b", None)])  # type: ignore[list-item]
        with pytest.raises(NotSent, match="SUBSCRIBE"):
            await line.call_many([("SET", "a", 1), ("subscribe", "b")])
        assert await line.call("EXISTS", "a", "b") == 0


@pytest.mark.parametrize(
    "command",
    [("Subscribe", "c"), (b"MONITOR",), ("multi",), ("WATCH", "k"), ("SELECT", 1), ("client", "reply", "off"), ()],
)
async def test_what_would_break_a_shared_line_is_not_sent(server: Server, command: respline.Command) -> None:
    async with await respline.open_line(server.url) as line:
        with pytest.raises(NotSent, match="refused"):
            await line.call(*command)
        assert await line.call("ECHO", "still in order") == b"still in order"


async def test_a_server_error_is_raised_with_its_code(server: Server) -> None:
    async with await respline.open_line(server.url) as line:
        with pytest.raises(ServerError) as missing:
            await line.call("EVALSHA", "0" * 40, 0)
        assert missing.value.code == "NOSCRIPT"
        await line.call("SET", "s", 1)
        with pytest.raises(ServerError) as wrong:
            await line.call("LPUSH", "s", 1)
        assert wrong.value.code == "WRONGTYPE"
        assert "wrong kind of value" in wrong.value.message


async def test_a_cancelled_call_does_not_shift_the_replies_of_others(server: Server) -> None:
    async with await respline.open_line(server.url) as line:
        before, doomed, after = line.call("ECHO", "before"), line.call("ECHO", "doomed"), line.call("ECHO", "after")
        many = line.call_many([("ECHO", "m1"), ("ECHO", "m2")])
        last = line.call("ECHO", "last")
        doomed.cancel()
        many.cancel()
        assert [await before, await after, await last] == [b"before", b"after", b"last"]
        assert line.in_flight == 0


async def test_a_transaction_is_contiguous_and_atomic(server: Server) -> None:
    async with proxy(server.port) as wire, await respline.open_line(wire.url) as line:
        wire.sent.clear()
        results = await asyncio.gather(
            line.call("SET", "n", 1),
            line.transaction([("INCR", "n"), ("LPUSH", "n", 1), ("INCR", "n")]),
            line.call("INCR", "n"),
        )
        stream = b"".join(wire.sent)
        assert stream.index(b"MULTI") < stream.index(b"LPUSH") < stream.index(b"EXEC")
        first, wrong, second = results[1]
        assert (first, second, results[2]) == (2, 3, 4)
        assert isinstance(wrong, ServerError)


async def test_a_discarded_transaction_raises_and_leaves_no_trace(server: Server) -> None:
    async with await respline.open_line(server.url) as line:
        with pytest.raises(ServerError, match="wrong number of arguments") as discarded:
            await line.transaction([("SET", "a", 1), ("INCR",)])
        assert discarded.value.code == "EXECABORT"
        assert await line.call("EXISTS", "a") == 0
        assert await line.transaction([("SET", "a", 2), ("GET", "a")]) == [b"OK", b"2"]


async def test_more_than_the_allowed_commands_in_flight_are_not_sent(make_server: MakeServer) -> None:
    server = make_server()
    async with await respline.open_line(server.url, in_flight_max=10) as line:
        server.pause()
        accepted = [line.call("INCR", "n") for _ in range(10)]
        with pytest.raises(NotSent, match="10 are allowed"):
            await line.call("INCR", "n")
        with pytest.raises(NotSent, match="10 are allowed"):
            await line.call_many([("INCR", "n")])
        assert line.in_flight == 10
        server.resume()
        assert await asyncio.gather(*accepted) == list(range(1, 11))
        assert await line.call("GET", "n") == b"10"
        assert line.counters.not_sent == 2


async def test_a_server_that_does_not_read_fills_a_bounded_buffer(make_server: MakeServer) -> None:
    server = make_server()
    async with await respline.open_line(server.url, outgoing_max_bytes=8 << 20, timeout=60) as line:
        server.pause()
        value = b"x" * (1 << 20)
        calls: list[asyncio.Future[respline.Reply]] = []
        while True:
            call = line.call("SET", f"k{len(calls)}", value)
            # Each in a turn of its own, so that the transport can say that it is full.
            await asyncio.sleep(0)
            if call.done():
                break
            calls.append(call)
            assert len(calls) < 100, "nothing bounds the buffer"
        with pytest.raises(NotSent, match="do not fit"):
            await call
        server.resume()
        assert set(await asyncio.gather(*calls)) == {b"OK"}
        assert await line.call("DBSIZE") == len(calls)


async def test_a_megabyte_goes_there_and_back(server: Server) -> None:
    value = bytes(range(256)) * 4096
    async with await respline.open_line(server.url) as line:
        await line.call("SET", "big", value)
        replies = await asyncio.gather(*(line.call("GET", "big") for _ in range(10)))
        assert all(reply == value for reply in replies)
        assert line.counters.bytes_in > 10 << 20


async def test_unix_socket_and_database_number(server: Server) -> None:
    async with await respline.open_line(f"unix://{server.unix_path}?db=3") as line:
        await line.call("SET", "here", 1)
    async with await respline.open_line(f"valkey://127.0.0.1:{server.port}/3") as line:
        assert await line.call("GET", "here") == b"1"
    with server.admin(db=3) as third, server.admin() as first:
        assert third.exists("here")
        assert not first.exists("here")


async def test_the_line_has_a_name_and_knows_its_server(server: Server) -> None:
    async with await respline.open_line(server.url, name="aisle-api") as line:
        with server.admin() as admin:
            assert "aisle-api" in {client["name"] for client in admin.client_list()}
        assert line.server_info["server_name"] == "valkey"


async def test_resp3_types_and_a_push_that_nobody_wants(server: Server) -> None:
    async with await respline.open_line(server.url, protocol=3) as line:
        await line.call("HSET", "h", "f", "v")
        assert await line.call("HGETALL", "h") == {b"f": b"v"}
        await line.call("CLIENT", "TRACKING", "ON")
        await line.call("GET", "watched")
        with server.admin() as admin:
            admin.set("watched", 1)
        calls = [line.call("ECHO", n) for n in range(100)]
        assert await asyncio.gather(*calls) == [b"%d" % n for n in range(100)]
        await until(lambda: line.counters.pushes_dropped == 1, "the push was counted")


async def test_resp3_pushes_reach_who_asked_for_them(server: Server) -> None:
    pushes: list[list[object]] = []
    async with await respline.open_line(server.url, protocol=3, on_push=pushes.append) as line:
        await line.call("CLIENT", "TRACKING", "ON")
        await line.call("GET", "watched")
        with server.admin() as admin:
            admin.set("watched", 1)
        await until(lambda: pushes == [[b"invalidate", [b"watched"]]], "the push arrived")


async def test_closing_lets_what_is_in_flight_finish_and_refuses_the_rest(server: Server) -> None:
    line = await respline.open_line(server.url)
    calls = [line.call("INCR", "n") for _ in range(100)]
    await line.aclose()
    assert await asyncio.gather(*calls) == list(range(1, 101))
    with pytest.raises(NotSent, match="closed"):
        await line.call("INCR", "n")
    with pytest.raises(NotSent, match="closed"):
        await line.ready()
    await line.aclose()
    with server.admin() as admin:
        assert admin.get("n") == b"100"
