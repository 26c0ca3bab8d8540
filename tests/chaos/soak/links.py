"""A TCP proxy on one link between two programs, which can be told to misbehave, and counts whom that met.

What a fault does to bytes is what a network can do: connections are refused or reset, in the middle of a frame or
between two; bytes arrive late, in pieces, or not until the fault is over; the first byte of a frame is another one.
Bytes inside a frame are never changed: no protocol here but Kafka's could tell, and TCP's own checksum stands before.
"""

import asyncio
import random
import time
from contextlib import suppress

KINDS = ("refuse", "blackhole", "up_lost", "down_lost", "delay", "slice", "cut", "corrupt")
UP, DOWN = "up", "down"
SLICED_BYTES_MAX = 300


class Pair:
    """One connection through the link: the client's side and the server's."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        self.last = ""  # the direction of the last bytes: up means that somebody waits for an answer
        self.corrupted = False

    def abort(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


class Link:
    def __init__(self, name: str, host: str, port: int, seed: int) -> None:
        self.name, self.target = name, (host, port)
        self.port = 0
        self.kind = ""
        self.met = 0
        self.busy_at = 0.0  # when bytes last passed
        self._delay_s = 0.0
        self._healed = asyncio.Event()
        self._healed.set()
        self._chance = random.Random(seed)
        self._pairs: set[Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self.heal()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()

    def spoil(self, kind: str, *, delay_s: float = 0.0) -> None:
        assert kind in KINDS, kind
        self.kind, self.met, self._delay_s = kind, 0, delay_s
        for pair in self._pairs:
            pair.corrupted = False
        self._healed.clear()
        if kind == "refuse":
            self.met += len(self._pairs)
            self.cut()

    def heal(self, *, and_cut: bool = False) -> None:
        """What was kept back arrives now, late; or its connections are gone."""
        self.kind = ""
        if and_cut:
            self.cut()
        self._healed.set()

    def cut(self) -> None:
        for pair in list(self._pairs):
            pair.abort()

    def lead_to(self, host: str, port: int) -> None:
        """Another server stands there from now on."""
        self.target = (host, port)
        self.cut()

    @property
    def waiting(self) -> int:
        """Connections on which somebody waits for an answer."""
        return sum(pair.last == UP for pair in self._pairs)

    def was_busy(self, seconds: float = 0.5) -> bool:
        return self.waiting > 0 or time.monotonic() - self.busy_at < seconds

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.kind == "refuse":
            self.met += 1
            writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = Pair(writer, server_writer)
        self._pairs.add(pair)
        up = asyncio.create_task(self._pump(pair, UP, reader, server_writer))
        down = asyncio.create_task(self._pump(pair, DOWN, server_reader, writer))
        self._tasks |= {up, down}
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pairs.discard(pair)
            pair.abort()
            for task in (up, down):
                task.cancel()
            self._tasks -= {up, down}

    async def _pump(self, pair: Pair, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                starts_a_frame = pair.last != way
                pair.last = way
                self.busy_at = time.monotonic()
                if self.kind:
                    chunk = await self._mistreat(pair, way, chunk, writer, starts_a_frame)
                if chunk:
                    writer.write(chunk)
                    await writer.drain()

    async def _mistreat(
        self, pair: Pair, way: str, chunk: bytes, writer: asyncio.StreamWriter, starts_a_frame: bool
    ) -> bytes:
        kind = self.kind
        if kind == "blackhole" or kind == f"{way}_lost":
            self.met += 1
            await self._healed.wait()
        elif kind == "delay":
            self.met += 1
            await asyncio.sleep(self._delay_s * self._chance.random())
        elif kind == "slice":
            self.met += 1
            chunk = await self._in_pieces(chunk, writer)
        elif kind == "cut" and len(chunk) > 1:
            self.met += 1
            writer.write(chunk[: self._chance.randrange(1, len(chunk))])
            with suppress(OSError):
                await writer.drain()
            await asyncio.sleep(0)
            pair.abort()
            return b""
        elif kind == "corrupt" and starts_a_frame and not pair.corrupted:
            self.met += 1
            pair.corrupted = True
            chunk = bytes([chunk[0] ^ 0x80]) + chunk[1:]
        return chunk

    async def _in_pieces(self, chunk: bytes, writer: asyncio.StreamWriter) -> bytes:
        sliced = chunk[:SLICED_BYTES_MAX]
        while sliced:
            size = self._chance.randrange(1, 8)
            writer.write(sliced[:size])
            await writer.drain()
            await asyncio.sleep(0)
            sliced = sliced[size:]
        return chunk[SLICED_BYTES_MAX:]
