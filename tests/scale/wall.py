"""A wall between a process and its database: a TCP proxy that lets everything through, or nothing at all.

While it is up, bytes stand still both ways and new connections hang: a partition, which nobody is told of. Runs in a
thread of its own with an event loop, so that tests without one can use it.
"""

import asyncio
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class Wall:
    def __init__(self) -> None:
        self._port = 0
        self._target = ("127.0.0.1", 5432)
        self._listens = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="wall", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listens.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(30)

    def before(self, url: str) -> str:
        """The URL of the proxy in front of the server that `url` names."""
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)
        return parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{self._port}").geturl()

    def raise_up(self) -> None:
        self._loop.call_soon_threadsafe(self._open.clear)

    def tear_down(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    async def _run(self) -> None:
        self._loop, self._open, self._over = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._open.set()
        self._streams: set[asyncio.StreamWriter] = set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = int(server.sockets[0].getsockname()[1])
        self._listens.set()
        await self._over.wait()
        self._open.set()
        server.close()
        for stream in list(self._streams):
            stream.transport.abort()
        await asyncio.sleep(0.1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams.add(writer)
        out = None
        try:
            await self._open.wait()
            there, out = await asyncio.open_connection(*self._target)
            self._streams.add(out)
            await asyncio.gather(self._copy(reader, out), self._copy(there, writer))
        except OSError:
            return
        finally:
            for stream in filter(None, (writer, out)):
                stream.transport.abort()
                self._streams.discard(stream)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                await self._open.wait()
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()
