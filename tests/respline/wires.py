"""What stands between a line and its server: a proxy that watches and misbehaves, and servers made of a script."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from hiredis import Reader


class Proxy:
    """Forwards to a server; records what the client sent, chunk by chunk; swallows replies and cuts connections."""

    def __init__(self, target_port: int) -> None:
        self.sent: list[bytes] = []
        self.connections = 0
        self.swallow_replies = False
        self.port = 0
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers |= {writer, server_writer}
        try:
            await asyncio.gather(self._upward(reader, server_writer), self._downward(server_reader, writer))
        finally:
            self._writers -= {writer, server_writer}

    async def _upward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 20):
                self.sent.append(chunk)
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()

    async def _downward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 20):
                if not self.swallow_replies:
                    writer.write(chunk)
                    await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def proxy(target_port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Proxy]:
    wire = Proxy(target_port)
    async with listening(wire.serve, tls) as port:
        wire.port = port
        try:
            yield wire
        finally:
            wire.cut()


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A TCP server on a free port that runs `serve` for each connection and is gone, with all of them, at the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await serve(reader, writer)
        finally:
            writer.transport.abort()
            tasks.discard(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in set(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(set(tasks))


def answering(answer: Callable[[list[bytes]], bytes]) -> Serve:
    """A server that gives each command the reply that `answer` has for it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = Reader()
        while request := await reader.read(1 << 16):
            commands.feed(request)
            while command := commands.gets():
                writer.write(answer(command))

    return serve
