"""Pub/sub: what is published is heard, and what may have been missed is said."""

import asyncio

import pytest

import respline
from tests.patience import until
from tests.respline.conftest import MakeServer
from tests.respline.servers import Server
from tests.respline.wires import listening, proxy


class Heard:
    def __init__(self) -> None:
        self.messages: list[tuple[bytes, bytes]] = []
        self.gaps = 0

    def message(self, channel: bytes, payload: bytes) -> None:
        self.messages.append((channel, payload))

    def gap(self) -> None:
        self.gaps += 1


async def test_messages_arrive_in_order_on_subscribed_channels_only(server: Server) -> None:
    heard = Heard()
    async with await respline.open_listener(server.url, heard.message, heard.gap) as listener:
        await listener.subscribe(["a", b"b"])
        with server.admin() as admin:
            for n in range(500):
                admin.publish("ab"[n % 2], n)
                admin.publish("c", n)
            await until(lambda: len(heard.messages) == 500, "all messages came")
            assert [int(payload) for _, payload in heard.messages] == list(range(500))
            await listener.unsubscribe(["a"])
            assert admin.publish("a", "nobody") == 0
            assert admin.publish("b", "somebody") == 1
        await until(lambda: heard.messages[-1] == (b"b", b"somebody"), "the last message came")
        assert heard.gaps == 0


async def test_after_a_reconnect_the_gap_is_told_once_the_channels_are_back(server: Server) -> None:
    heard = Heard()
    async with proxy(server.port) as wire, await respline.open_listener(wire.url, heard.message, heard.gap) as listener:
        await listener.subscribe(["a", "b"])
        with server.admin() as admin:
            wire.cut()
            await until(lambda: heard.gaps == 1, "the gap was told")
            assert admin.publish("a", "after") == 1, "at the time of the gap the channel is subscribed again"
            await until(lambda: heard.messages == [(b"a", b"after")], "messages flow again")
            wire.cut()
            await until(lambda: heard.gaps == 2, "the second gap was told")


async def test_the_gap_is_told_only_after_the_server_confirmed_the_channels() -> None:
    """A caller reads its state anew in `on_gap`; told too early, it would miss what is published right after."""
    heard = Heard()
    subscriptions = 0
    confirm = asyncio.Event()
    confirm.set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal subscriptions
        await reader.readuntil(b"INFO\r\n")
        writer.write(b"$0\r\n\r\n")
        await reader.readuntil(b"$1\r\na\r\n")
        subscriptions += 1
        await confirm.wait()
        writer.write(b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
        if subscriptions == 2:
            await reader.read()

    async with listening(serve) as port:
        url = f"redis://127.0.0.1:{port}"
        async with await respline.open_listener(url, heard.message, heard.gap) as listener:
            subscribing = asyncio.ensure_future(listener.subscribe(["a"]))
            await until(lambda: subscriptions == 1, "the first subscription came")
            confirm.clear()
            await subscribing
            await until(lambda: subscriptions == 2, "the listener subscribed again")
            await asyncio.wait([asyncio.ensure_future(listener.subscribe(["a"]))], timeout=0.1)
            assert heard.gaps == 0
            confirm.set()
            await until(lambda: heard.gaps == 1, "the gap was told")


async def test_a_dead_server_is_noticed_and_a_new_one_found(make_server: MakeServer) -> None:
    server = make_server()
    heard = Heard()
    options: respline.Settings = {"health_check_interval": 0.1, "connect_timeout": 0.5, "timeout": 20}
    async with await respline.open_listener(server.url, heard.message, heard.gap, **options) as listener:
        await listener.subscribe(["a"])
        server.pause()
        await until(lambda: not listener.connected, "the silence was noticed")
        waiting = asyncio.ensure_future(listener.subscribe(["b"]))
        server.kill()
        server.start()
        await waiting
        await until(lambda: heard.gaps == 1, "the gap was told")
        with server.admin() as admin:
            assert admin.publish("a", 1) == admin.publish("b", 2) == 1
        await until(lambda: len(heard.messages) == 2, "both channels are heard")


async def test_an_error_in_the_callback_is_reported_and_ends_nothing(server: Server) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    heard = Heard()

    def stumble(channel: bytes, payload: bytes) -> None:
        heard.message(channel, payload)
        if payload == b"1":
            raise RuntimeError("a bug of the caller")

    async with await respline.open_listener(server.url, stumble, heard.gap) as listener:
        await listener.subscribe(["a"])
        with server.admin() as admin:
            admin.publish("a", 1)
            admin.publish("a", 2)
        await until(lambda: len(heard.messages) == 2, "the second message came too")
        assert heard.gaps == 0
        assert [str(error) for error in reported] == ["a bug of the caller"]


async def test_a_forbidden_channel_is_a_server_error(make_server: MakeServer) -> None:
    server = make_server()
    with server.admin() as admin:
        admin.execute_command("ACL", "SETUSER", "ears", "on", ">pw", "resetchannels", "&open:*", "+subscribe", "+ping")
    heard = Heard()
    url = f"redis://ears:pw@127.0.0.1:{server.port}"
    async with await respline.open_listener(url, heard.message, heard.gap) as listener:
        with pytest.raises(respline.ServerError, match="NOPERM"):
            await listener.subscribe(["closed:1"])
        await listener.subscribe(["open:1"])
    with pytest.raises(respline.NotSent, match="closed"):
        await listener.subscribe(["open:2"])
