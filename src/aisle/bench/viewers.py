"""Browsers that watch an event: so many streams of server-sent events, and when each of them heard what.

A process of its own (`python -m aisle.bench.viewers`), so that its CPU time is not counted with the servers'. The first
line of standard input is the job. It writes "ready" when every viewer has its snapshot. The second line is the version
of the event to wait for; what was heard goes to the file that the job names.

All who have started from the same snapshot are sent the same bytes. They are kept once; a viewer is a place in them,
and one whose bytes differ (it fell behind and was started anew) keeps its own.
"""

import asyncio
import contextlib
import re
import sys
import time
from array import array
from functools import partial
from pathlib import Path

import httptools
import msgspec
import uvloop

from aisle.live.sse import HEARTBEAT

CONNECT_AT_ONCE = 200
READY_SECONDS_MAX = 120
HEARD_SECONDS_MAX = 60

SNAPSHOT = re.compile(rb"id: \d+\nevent: snapshot\ndata: .*?\n\n", re.DOTALL)
ID = re.compile(rb"^id: (\d+)\d{9}\n", re.MULTILINE)


class Job(msgspec.Struct):
    port: int
    path: str
    viewers: int
    # of this process, so that many processes do not share the ports of one
    address: str
    file: str


class Heard(msgspec.Struct):
    """By viewer: how much of `stream` it had at which times, in seconds since the epoch. `own`: what followed in its
    place for those that heard something else."""

    snapshot: bytes
    stream: bytes
    positions: list[list[int]]
    times: list[list[float]]
    own: dict[int, bytes]
    lost: int


class Audience:
    def __init__(self) -> None:
        self.viewers: list[Viewer] = []
        self.snapshot = b""
        self.stream = bytearray()
        self.started = 0
        self.lost = 0

    def latest(self) -> int:
        """The version of the event that the last message led to."""
        return max((version_in(bytes(self.stream[-100_000:])), version_in(self.snapshot)))

    def all_have(self, version: int) -> bool:
        whole = len(self.stream)
        return self.latest() >= version and all(viewer.has(whole, version) for viewer in self.viewers)


class Viewer(asyncio.Protocol):
    def __init__(self, audience: Audience, request: bytes) -> None:
        self._audience = audience
        self._request = request
        self._parser = httptools.HttpResponseParser(self)
        self._start = b""
        self.following = False
        self.at = 0
        self.own: bytearray | None = None
        self.positions, self.times = array("Q"), array("d")
        audience.viewers.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._audience.lost += 1

    def on_body(self, body: bytes) -> None:
        if not self.following:
            self._begin(body)
            return
        if HEARTBEAT in body:
            body = body.replace(HEARTBEAT, b"")
        if self.own is not None:
            self.own += body
        elif not self._follow(body):
            self.own = bytearray(body)
        if body:
            self.positions.append(self.at)
            self.times.append(time.time())

    def has(self, whole: int, version: int) -> bool:
        return self.at >= whole if self.own is None else version_in(bytes(self.own)) >= version

    def _begin(self, body: bytes) -> None:
        self._start += body
        found = SNAPSHOT.search(self._start)
        if found is None:
            return
        audience = self._audience
        audience.snapshot = audience.snapshot or found[0]
        audience.started += 1
        self.following = True
        if found[0] != audience.snapshot:
            self.own = bytearray(found[0])  # something changed while viewers were still arriving
        if rest := self._start[found.end() :]:
            self.on_body(rest)

    def _follow(self, body: bytes) -> bool:
        stream, at = self._audience.stream, self.at
        known = len(stream) - at
        if stream[at : at + len(body)] != body[:known]:
            return False
        if known < len(body):
            stream += body[known:]
        self.at += len(body)
        return True


def version_in(stream: bytes) -> int:
    return max((int(found) for found in ID.findall(stream)), default=-1)


async def watch(job: Job, commands: asyncio.StreamReader) -> Heard:
    audience = Audience()
    request = f"GET {job.path} HTTP/1.1\r\nhost: aisle\r\naccept: text/event-stream\r\n\r\n".encode()
    async with asyncio.timeout(READY_SECONDS_MAX):
        for first in range(0, job.viewers, CONNECT_AT_ONCE):
            some = range(first, min(first + CONNECT_AT_ONCE, job.viewers))
            await asyncio.gather(*(_connect(job, partial(Viewer, audience, request)) for _ in some))
            while audience.started < some.stop:  # noqa: ASYNC110 - another process decides
                await asyncio.sleep(0.01)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    version = int(await commands.readline())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEARD_SECONDS_MAX):
            while not audience.all_have(version):  # noqa: ASYNC110 - another process decides
                await asyncio.sleep(0.1)
    viewers = audience.viewers
    return Heard(
        audience.snapshot,
        bytes(audience.stream),
        [viewer.positions.tolist() for viewer in viewers],
        [viewer.times.tolist() for viewer in viewers],
        {n: bytes(viewer.own) for n, viewer in enumerate(viewers) if viewer.own is not None},
        audience.lost,
    )


async def _connect(job: Job, viewer: "partial[Viewer]") -> None:
    loop = asyncio.get_running_loop()
    await loop.create_connection(viewer, "127.0.0.1", job.port, local_addr=(job.address, 0))


async def _main() -> None:
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    job = msgspec.json.decode(await commands.readline(), type=Job)
    heard = await watch(job, commands)
    Path(job.file).write_bytes(msgspec.msgpack.encode(heard))  # noqa: ASYNC240 - nothing else is left to do


if __name__ == "__main__":
    uvloop.run(_main())
