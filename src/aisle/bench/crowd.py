"""An impatient crowd: so many connections, each sending its next order the moment the last one was answered or refused.

A process of its own (`python -m aisle.bench.crowd`), so that its CPU time is not the servers'. Reads a job from
standard input and writes what the crowd was told to standard output. Nobody heeds a Retry-After: that is the point.
"""

import asyncio
import sys
import time
from collections import Counter
from functools import partial

import httptools
import msgspec
import uvloop

CONNECT_AT_ONCE = 100


class CrowdJob(msgspec.Struct):
    host: str
    port: int
    connections: int
    seconds: float
    # everything of a request but its key, in turn: what stands before the key, and what stands after it
    orders: list[tuple[bytes, bytes]]
    key: str


class Told(msgspec.Struct):
    """How often each status came; how long answers took; refusals that named no time to come back."""

    seconds: float
    statuses: dict[int, int]
    accepted_ms: list[float]
    refused_ms: list[float]
    without_retry_after: int
    cut_off: int


class Impatient(asyncio.Protocol):
    def __init__(self, crowd: "Crowd", number: int) -> None:
        self._crowd = crowd
        self._number = number
        self._sent = 0
        self._sent_at = 0.0
        self._retry_after = False
        self.waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.send()

    def send(self) -> None:
        crowd = self._crowd
        head, tail = crowd.job.orders[(self._number + self._sent * 7) % len(crowd.job.orders)]
        self._parser = httptools.HttpResponseParser(self)
        self._retry_after = False
        self._sent += 1
        self.waiting = True
        self._sent_at = time.perf_counter()
        order = b"%sidempotency-key: %s-%d-%d\r\n%s" % (head, crowd.key, self._number, self._sent, tail)
        self._transport.write(order)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._retry_after = True

    def on_message_complete(self) -> None:
        self.waiting = False
        took_ms = (time.perf_counter() - self._sent_at) * 1000
        self._crowd.hear(self._parser.get_status_code(), took_ms, self._retry_after)
        if time.perf_counter() < self._crowd.until:
            self.send()

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiting and not self._crowd.going:
            self._crowd.told.cut_off += 1
        self.waiting = False

    def leave(self) -> None:
        self._transport.close()


class Crowd:
    def __init__(self, job: CrowdJob) -> None:
        self.job = job
        self.key = job.key.encode()
        self.told = Told(0, {}, [], [], 0, 0)
        self.until = float("inf")
        self.going = False
        self._statuses: Counter[int] = Counter()

    def hear(self, status: int, took_ms: float, retry_after: bool) -> None:
        self._statuses[status] += 1
        if status == 202:
            self.told.accepted_ms.append(took_ms)
        elif status in (429, 503):
            self.told.refused_ms.append(took_ms)
            self.told.without_retry_after += not retry_after

    async def run(self) -> Told:
        loop = asyncio.get_running_loop()
        people: list[Impatient] = []
        started = time.perf_counter()
        self.until = started + self.job.seconds
        for first in range(0, self.job.connections, CONNECT_AT_ONCE):
            numbers = range(first, min(first + CONNECT_AT_ONCE, self.job.connections))
            dials = [
                loop.create_connection(partial(Impatient, self, number), self.job.host, self.job.port)
                for number in numbers
            ]
            people += [person for _, person in await asyncio.gather(*dials)]
        await asyncio.sleep(max(0.0, self.until - time.perf_counter()))
        self.told.seconds = time.perf_counter() - started
        # Whoever was promised an answer gets it, so that nobody's order is in doubt.
        while any(person.waiting for person in people):  # noqa: ASYNC110 - the server decides
            await asyncio.sleep(0.05)
        self.going = True
        for person in people:
            person.leave()
        self.told.statuses = dict(self._statuses)
        return self.told


def main() -> None:
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=CrowdJob)
    sys.stdout.buffer.write(msgspec.msgpack.encode(uvloop.run(Crowd(job).run())))


if __name__ == "__main__":
    main()
