"""`aisle bench sse`: viewers watch an event while it is sold, as the page of an event does.

    last_delivery_ms   from the last change of a seat in the store until the last viewer has heard of it
    staleness_p99_ms   from the oldest change in a message to its arrival, over all messages and viewers
    gaps               messages that do not lead on from the one before, by the versions of each subsection; must be 0
    resets             viewers that fell behind and were started anew from a snapshot: no gap, and no good sign

The event is sold at an even pace by bookings of two in random subsections; all viewers watch all of it.
"""

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import msgspec

from aisle.bench.cost import percentile
from aisle.bench.hearing import hear
from aisle.bench.product import Product, resident_bytes, running_product
from aisle.bench.report import bar, circumstances, say
from aisle.bench.rush import FULL, QUICK, Size, create_event, deck_of, invite, orders, send, settled
from aisle.bench.viewers import Heard, Job
from aisle.config import Config
from aisle.db import open_database
from aisle.errors import StartupError
from aisle.metrics import Metrics
from aisle.reservation.reads import places_of, statuses
from aisle.reservation.record import Record
from aisle.reservation.snapshot import Snapshot, read_snapshots
from aisle.store import Store, open_store

FILES_BESIDE_VIEWERS = 200
# There are 28,000 ports for connections from one address to another.
VIEWERS_OF_AN_ADDRESS = 20_000
BOOKINGS_PER_S, SALE_SECONDS, TURN_SECONDS = 100, 10, 0.1

# When a seat was taken, in ms of the store's clock, by the name of its subsection and its index.
Taken = dict[tuple[str, int], int]


def bench_sse(viewers: int, *, quick: bool = False) -> dict[str, object]:
    most = min(_allow_files() - FILES_BESIDE_VIEWERS, Config().live_connections_max)
    if viewers > most:
        raise StartupError(f"one process serves at most {most} viewers here: each is an open file (ulimit -Hn)")
    with running_product() as product:
        return {"bench": "sse", **circumstances(), **asyncio.run(_watch(product, viewers, quick))}


def _allow_files() -> int:
    """Servers and viewers inherit it: each stream is an open file on both sides."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


async def _watch(product: Product, viewers: int, quick: bool) -> dict[str, object]:
    size, seconds = (QUICK, 1) if quick else (FULL, SALE_SECONDS)
    config = product.config
    async with open_database(config) as database, open_store(config, Metrics()) as store:
        seller, buyers = await invite(product, database, store, size.buyers)
        event = (await create_event(product, seller, size)).id
        before = resident_bytes(product.pids["aisle"])
        say(f"{viewers:,} viewers arrive")
        async with _audience(product, event, viewers) as audience:
            memory = resident_bytes(product.pids["aisle"]) - before
            cpu = product.cpu_seconds()
            sale = await _sell(product, database, event, buyers, size, seconds)
            found = [status for status in await statuses(store, await places_of(store, event)) if status]
            heard = await audience.heard(sum(status.version for status in found))
        spent = product.cpu_since(cpu)
        taken = await _taken(store, event)
    return {
        "viewers": viewers,
        **sale,
        **_figures(heard, taken, max(status.updated_ms for status in found)),
        "memory_bytes_per_viewer": round(memory / viewers),
        "cpu_s_by_process": {name: round(s, 2) for name, s in spent.items()},
    }


async def _sell(
    product: Product, database: asyncpg.Pool, event: int, buyers: Sequence[str], size: Size, seconds: int
) -> dict[str, object]:
    """At an even pace, a few orders at a time; what a busy machine cannot place in its turn is placed late."""
    requests = orders([event], buyers, deck_of(size)[: BOOKINGS_PER_S * seconds], key="watched")
    each = int(BOOKINGS_PER_S * TURN_SECONDS)
    started = time.perf_counter()
    for turn, first in enumerate(range(0, len(requests), each)):
        await asyncio.sleep(started + turn * TURN_SECONDS - time.perf_counter())
        answers = await send(product, requests[first : first + each], connections=2)
        if set(answers.statuses) != {202}:
            raise StartupError(f"orders were answered with {answers.statuses}")
        bar("selling", min(first + each, len(requests)), len(requests))
    placed = time.perf_counter() - started
    await settled(database, answers)
    return {"bookings": len(requests), "bookings_per_s": round(len(requests) / placed, 1)}


def _figures(heard: Sequence[Heard], taken: Taken, last_change_ms: int) -> dict[str, object]:
    reports = [hear(one, taken) for one in heard]
    staleness = [ms for report in reports for ms in report.staleness_ms]
    last = max((second for one in heard for times in one.times for second in times[-1:]), default=0.0)
    messages = sum(len(times) for one in heard for times in one.times)
    viewers = sum(len(one.times) for one in heard)
    return {
        "last_delivery_ms": round(last * 1000 - last_change_ms, 1),
        "staleness_p50_ms": round(percentile(staleness, 50), 1) if staleness else None,
        "staleness_p99_ms": round(percentile(staleness, 99), 1) if staleness else None,
        "gaps": sum(report.gaps for report in reports),
        "behind": sum(report.behind for report in reports),
        "resets": sum(len(one.own) for one in heard),
        "lost_connections": sum(one.lost for one in heard),
        "arrivals_per_viewer": round(messages / viewers, 1),
        "bytes_per_viewer": max((len(one.snapshot) + len(one.stream) for one in heard), default=0),
        "snapshot_bytes": max((len(one.snapshot) for one in heard), default=0),
    }


async def _taken(store: Store, event: int) -> Taken:
    places, taken = await places_of(store, event), Taken()
    for place, snapshot in zip(places, await read_snapshots(store, places), strict=True):
        if isinstance(snapshot, Snapshot):
            for line in snapshot.records.values():
                record = Record.parse(line)
                name = f"{place.section}-{place.subsection}"
                taken.update({(name, seat): record.taken_ms for seat in record.seats})
    return taken


class _Audience:
    """Processes that hold the viewers."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._processes: list[tuple[asyncio.subprocess.Process, str]] = []

    async def enter(self, port: int, path: str, viewers: int) -> None:
        number = len(self._processes)
        file = f"{self._folder}/{number}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aisle.bench.viewers"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._processes.append((process, file))
        assert process.stdin is not None
        assert process.stdout is not None
        job = Job(port, path, viewers, f"127.0.0.{number + 1}", file)
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        if await process.stdout.readline() != b"ready\n":
            raise StartupError("the viewers could not connect")

    async def heard(self, version: int) -> list[Heard]:
        """Wait until everybody has heard of this version of the event."""
        for process, _ in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"%d\n" % version)
        found = []
        for process, file in self._processes:
            await process.wait()
            found.append(msgspec.msgpack.decode(Path(file).read_bytes(), type=Heard))  # noqa: ASYNC240
        return found

    async def leave(self) -> None:
        for process, _ in self._processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


@asynccontextmanager
async def _audience(product: Product, event: int, viewers: int) -> AsyncIterator[_Audience]:
    with tempfile.TemporaryDirectory(prefix="aisle-viewers-") as folder:
        audience = _Audience(folder)
        try:
            for first in range(0, viewers, VIEWERS_OF_AN_ADDRESS):
                some = min(VIEWERS_OF_AN_ADDRESS, viewers - first)
                await audience.enter(product.config.port, f"/api/v1/events/{event}/updates?seats=true", some)
            yield audience
        finally:
            await audience.leave()
