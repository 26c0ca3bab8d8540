"""`aisle bench status`: how often a second the state of an event can be read over HTTP.

    reads_per_s      `GET /events/{id}/sections`, prices and free seats by section: what a page of an event asks first
    seatmaps_per_s   `GET /events/{id}/seatmap`, every seat in two bits: what its map is drawn from

Sixty-four people, each asking again when answered, on an event of 50,000 seats in 100 subsections; one process answers.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from aisle.bench.cost import percentile
from aisle.bench.load import Result
from aisle.bench.product import Product, running_product
from aisle.bench.report import circumstances
from aisle.bench.rush import FULL, QUICK, Size, create_event, invite, send, send_to
from aisle.db import open_database
from aisle.errors import StartupError
from aisle.metrics import Metrics
from aisle.store import open_store

CONNECTIONS = 64
READS, SEATMAPS, WARM_UP = 150_000, 15_000, 5_000


def bench_status(*, quick: bool = False) -> dict[str, object]:
    with running_product() as product:
        return {"bench": "status", **circumstances(), **asyncio.run(_read(product, quick))}


async def _read(product: Product, quick: bool) -> dict[str, object]:
    size, share = (QUICK, 50) if quick else (FULL, 1)
    async with open_database(product.config) as database, open_store(product.config, Metrics()) as store:
        seller, _ = await invite(product, database, store, 0)
    event = (await create_event(product, seller, size)).id
    sections, seatmap = (f"/api/v1/events/{event}/{what}" for what in ("sections", "seatmap"))
    await _check(product, sections, size)
    await _ask(product, sections, WARM_UP // share, "")
    read = await _measured(product, sections, READS // share, "reading sections")
    drawn = await _measured(product, seatmap, SEATMAPS // share, "reading seat maps")
    return {
        "seats": size.seats,
        "reads_per_s": read.pop("per_s"),
        **read,
        "seatmaps_per_s": drawn["per_s"],
        "cpu_us_per_seatmap": drawn["cpu_us_per_read"],
    }


async def _check(product: Product, path: str, size: Size) -> None:
    """An answer that is fast and wrong is worth nothing."""
    answer = await send(product, [_get(path)], connections=1)
    shown = msgspec.json.decode(answer.bodies[0])
    if sum(section["available"] for section in shown) != size.seats:
        raise StartupError(f"the event shows {shown} instead of {size.seats} free seats")


async def _measured(product: Product, path: str, reads: int, label: str) -> dict[str, object]:
    cpu = product.cpu_seconds()
    answers = await _ask(product, path, reads, label)
    spent = product.cpu_since(cpu)
    if set(answers.statuses) != {200}:
        raise StartupError(f"{path} was answered with {answers.statuses}")
    return {
        "per_s": round(reads / answers.seconds, 1),
        "p50_ms": round(percentile(answers.milliseconds, 50), 2),
        "p99_ms": round(percentile(answers.milliseconds, 99), 2),
        "cpu_us_per_read": round(sum(spent.values()) / reads * 1e6, 1),
        "cpu_us_by_process": _each(spent, reads),
    }


def _each(spent: Mapping[str, float], reads: int) -> dict[str, float]:
    return {name: round(seconds / reads * 1e6, 1) for name, seconds in spent.items()}


async def _ask(product: Product, path: str, reads: int, label: str) -> Result:
    requests = [_get(path)] * reads
    return await send_to(product.config.port, requests, connections=CONNECTIONS, label=label, keep_bodies=False)


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: aisle\r\n\r\n".encode()
