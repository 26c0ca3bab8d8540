"""A proxy in front of a store that notes every command a client sends, decoded from the wire."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from hiredis import Reader

from respline.address import parse_url
from tests.respline.wires import listening


class Recording:
    """`commands` holds what was sent, in order; `url` is the address of the proxy, with the store's own login."""

    def __init__(self, store_url: str) -> None:
        self.commands: list[list[bytes]] = []
        self.url = ""
        self._target = parse_url(store_url)

    def listen_at(self, port: int) -> None:
        login = f":{self._target.password}@" if self._target.password else ""
        self.url = f"redis://{login}127.0.0.1:{port}/{self._target.db}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = self._target
        if target.path:
            server_reader, server_writer = await asyncio.open_unix_connection(target.path)
        else:
            server_reader, server_writer = await asyncio.open_connection(target.host, target.port)
        try:
            await asyncio.gather(self._record(reader, server_writer), _copy(server_reader, writer))
        finally:
            server_writer.transport.abort()

    async def _record(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Reader()
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                wire.feed(chunk)
                while (command := wire.gets()) is not False:
                    self.commands.append(command)
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def recording(store_url: str) -> AsyncIterator[Recording]:
    record = Recording(store_url)
    async with listening(record.serve) as port:
        record.listen_at(port)
        yield record


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
    writer.transport.abort()
