"""Buyers: so many keep-alive connections, each sending its next order when the last one was answered.

A process of its own (`python -m aisle.bench.load`), so that its CPU time is not counted with the servers'. Reads one
JSON object from standard input (address, requests, connections) and writes one to standard output (status codes,
milliseconds). Bare protocol on httptools: a request costs 10-15 us here, an ordinary client library 70-2,000.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

import httptools
import msgspec
import uvloop

from aisle.bench.report import bar

PROGRESS_SECONDS = 0.2


class Job(msgspec.Struct):
    # the connections are shared out over these
    hosts: list[str]
    port: int
    connections: int
    # whole requests, head and body, sent in this order by whichever connection is free
    requests: list[bytes]
    # names the progress on a terminal; without one there is none
    label: str = ""
    keep_bodies: bool = True


class Result(msgspec.Struct):
    started: float  # by the monotonic clock, which all processes of a machine share
    seconds: float
    statuses: dict[int, int]
    milliseconds: list[float]
    bodies: list[bytes]
    cpu_seconds: float = 0


class Buyer(asyncio.Protocol):
    def __init__(
        self,
        orders: Iterator[bytes],
        done: "asyncio.Future[None]",
        result: Result,
        statuses: Counter[int],
        keep_bodies: bool,
    ) -> None:
        self._orders = orders
        self._done = done
        self._keep_bodies = keep_bodies
        self._result = result
        self._statuses = statuses
        self._body = b""
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._result.milliseconds.append((time.perf_counter() - self._sent_at) * 1000)
        self._statuses[self._parser.get_status_code()] += 1
        if self._keep_bodies:
            self._result.bodies.append(self._body)
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def _next(self) -> None:
        order = next(self._orders, None)
        if order is None:
            self._transport.close()
            return
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""
        self._sent_at = time.perf_counter()
        self._transport.write(order)  # type: ignore[attr-defined]


async def run(job: Job) -> Result:
    started, spent = time.perf_counter(), time.process_time()
    result, statuses = Result(started, 0, {}, [], []), Counter[int]()
    orders = iter(job.requests)
    loop = asyncio.get_running_loop()
    ends = []
    for number in range(min(job.connections, len(job.requests))):
        done = loop.create_future()
        ends.append(done)
        buyer = partial(Buyer, orders, done, result, statuses, job.keep_bodies)
        await loop.create_connection(buyer, job.hosts[number % len(job.hosts)], job.port)
    watch = asyncio.create_task(_show_progress(job, result))
    await asyncio.gather(*ends)
    result.seconds = time.perf_counter() - started
    result.cpu_seconds = time.process_time() - spent
    watch.cancel()
    bar(job.label, len(result.milliseconds), len(job.requests))
    result.statuses = dict(statuses)
    return result


async def _show_progress(job: Job, result: Result) -> None:
    while True:
        bar(job.label, len(result.milliseconds), len(job.requests))
        await asyncio.sleep(PROGRESS_SECONDS)


def main() -> None:
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
    sys.stdout.buffer.write(msgspec.msgpack.encode(uvloop.run(run(job))))


if __name__ == "__main__":
    main()
