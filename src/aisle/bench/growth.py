"""`aisle bench growth`: does a booking cost more in a larger hall, or among more events that are on sale?

    by_seats     CPU time a booking in events of 500 seats, one of 50,000 and one of 1,000,000
    by_events    the same with 1, 100 and 1,000 events on sale, the bookings spread over all of them
    startup_s    `aisle up` on the data directory with those events, until it answers

Each step sells as many bookings of two, in an order that is the same every time. Ratios are the dearest step over the
cheapest one; 1.5 is the bound.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import msgspec

from aisle.bench.cost import percentile
from aisle.bench.product import Product, running_product
from aisle.bench.report import bar, circumstances, say
from aisle.bench.rush import (
    Size,
    Wanted,
    create_event,
    deck_of,
    hall_of,
    invite,
    open_events,
    orders,
    request_bytes,
    send,
    settled,
)
from aisle.db import open_database
from aisle.embedded.server import free_port
from aisle.errors import StartupError
from aisle.metrics import Metrics
from aisle.reservation.keys import event_sections, subsection_keys
from aisle.reservation.reads import places_of
from aisle.store import Store, open_store

STARTUP_SECONDS_MAX = 120
CREATE_AT_ONCE = 8
KEYS_A_ROUND_TRIP = 1000

PENDING = """
    select count(*) from booking.bookings where event_id = any($1::bigint[]) and state = 'PENDING_PAYMENT'
"""


class Sizes(msgspec.Struct, frozen=True):
    bookings: int
    # The first kind of hall is sold out, in as many events as it takes.
    halls: tuple[Size, ...]
    # One large event, then so many of the small ones beside it.
    large: Size
    small: Size
    events: tuple[int, ...]
    buyers: int = 256


FULL = Sizes(
    5_000,
    (Size(sections=1, subsections=1), Size(), Size(subsections=200)),
    large=Size(rows=10, seats_per_row=10),
    small=Size(sections=1, subsections=2, rows=10, seats_per_row=10),
    events=(100, 1_000),
)
QUICK = Sizes(
    20,
    (Size(sections=1, subsections=1, rows=2, seats_per_row=10), Size(2, 1, 4, 10), Size(2, 2, 4, 10)),
    large=Size(2, 1, 4, 10),
    small=Size(1, 1, 4, 10),
    events=(3, 6),
    buyers=4,
)


def bench_growth(sizes: Sizes) -> dict[str, object]:
    result: dict[str, object] = {"bench": "growth", **circumstances(), "bookings": sizes.bookings}
    with running_product() as product:
        by_seats = asyncio.run(_grow_halls(product, sizes))
    with tempfile.TemporaryDirectory(prefix="aisle-bench-") as folder:
        with running_product(Path(folder)) as product:
            by_events = asyncio.run(_grow_events(product, sizes))
        say(f"starting again with {sizes.events[-1]:,} events")
        with _up_again(Path(folder)) as startup_s:
            result["startup_s"] = round(startup_s, 2)
    return {
        **result,
        "startup_events": sizes.events[-1],
        "ratio_seats": _ratio(by_seats),
        "ratio_events": _ratio(by_events),
        "by_seats": by_seats,
        "by_events": by_events,
    }


Step = dict[str, object]


async def _grow_halls(product: Product, sizes: Sizes) -> dict[str, Step]:
    steps: dict[str, Step] = {}
    async with open_database(product.config) as database, open_store(product.config, Metrics()) as store:
        seller, buyers = await invite(product, database, store, sizes.buyers)
        await _warm_up(product, database, seller, buyers, sizes)
        for size in sizes.halls:
            say(f"an event of {size.seats:,} seats")
            created = [await create_event(product, seller, size)]
            deck = deck_of(size)[: sizes.bookings]
            while len(created) * len(deck) < sizes.bookings:
                created.append(await create_event(product, seller, size))
            events = [event.id for event in created]
            requests = _in_turn(events, buyers, deck, sizes.bookings, f"hall{size.seats}")
            steps[str(size.seats)] = {
                **await _sell(product, database, events, requests, sizes, f"{size.seats:,} seats"),
                "events": len(events),
                "create_s": round(created[-1].seconds, 2),
                "store_bytes": await _store_bytes(store, events[-1]),
            }
    return steps


async def _grow_events(product: Product, sizes: Sizes) -> dict[str, Step]:
    steps: dict[str, Step] = {}
    async with open_database(product.config) as database, open_store(product.config, Metrics()) as store:
        seller, buyers = await invite(product, database, store, sizes.buyers)
        await _warm_up(product, database, seller, buyers, sizes)
        events = [(await create_event(product, seller, sizes.large)).id]
        requests = _in_turn(events, buyers, deck_of(sizes.large), sizes.bookings, "alone")
        steps["1"] = await _sell(product, database, events, requests, sizes, "1 event")
        events = []
        for count in sizes.events:
            started = time.perf_counter()
            events += await _create_many(product, seller, sizes.small, count - len(events))
            seconds = time.perf_counter() - started
            requests = _in_turn(events, buyers, deck_of(sizes.small), sizes.bookings, f"among{count}")
            steps[str(count)] = {
                **await _sell(product, database, events, requests, sizes, f"{count:,} events"),
                "create_s": round(seconds, 2),
                "store_bytes_per_event": await _store_bytes(store, events[-1]),
            }
    return steps


async def _warm_up(product: Product, database: asyncpg.Pool, seller: str, buyers: Sequence[str], sizes: Sizes) -> None:
    """Connections, caches and code that the first bookings of a fresh process pay for."""
    event = (await create_event(product, seller, sizes.large)).id
    await _sell(
        product, database, [event], orders([event], buyers, deck_of(sizes.large), key="warm"), sizes, "warming up"
    )


def _in_turn(events: Sequence[int], buyers: Sequence[str], deck: Sequence[Wanted], count: int, key: str) -> list[bytes]:
    """Orders that go round the events, each with its own way through the hall."""
    each = -(-count // len(events))
    wanted = [deck[n] for n in range(each) for _ in events][:count]
    return orders(events, buyers, wanted, key=key)


async def _sell(
    product: Product, database: asyncpg.Pool, events: Sequence[int], requests: list[bytes], sizes: Sizes, label: str
) -> Step:
    await _visit(product, events)
    before = await database.fetchval(PENDING, events)
    cpu = product.cpu_seconds()
    answers = await send(product, requests, connections=sizes.buyers, label=label)
    seconds = await settled(database, answers)
    spent = product.cpu_since(cpu)
    sold = await database.fetchval(PENDING, events) - before
    if sold != len(requests):
        raise StartupError(f"{label}: {sold} of {len(requests)} bookings found their seats: {answers.statuses}")
    return {
        "cpu_us_per_booking": round(sum(spent.values()) / sold * 1e6, 1),
        "cpu_us_by_process": {name: round(s / sold * 1e6, 1) for name, s in spent.items()},
        "bookings_per_s": round(sold / seconds, 1),
        "p50_ms": round(percentile(answers.milliseconds, 50), 2),
        "p99_ms": round(percentile(answers.milliseconds, 99), 2),
    }


async def _visit(product: Product, events: Sequence[int]) -> None:
    """Whoever orders has looked at the event before."""
    looks = [f"GET /api/v1/events/{event}/sections HTTP/1.1\r\nhost: aisle\r\n\r\n".encode() for event in events]
    await send(product, looks, connections=min(CREATE_AT_ONCE, len(looks)))


async def _create_many(product: Product, seller: str, size: Size, count: int) -> list[int]:
    request, made = request_bytes(seller, "", hall_of(size), "/api/v1/events"), list[int]()
    while len(made) < count:
        some = [request] * min(50, count - len(made))
        answers = await send(product, some, connections=CREATE_AT_ONCE)
        made += [msgspec.json.decode(body)["id"] for body in answers.bodies]
        bar("events created", len(made), count)
    await open_events(product, seller, made)
    return made


async def _store_bytes(store: Store, event: int) -> int:
    """Of the keys of an event, as the store counts them."""
    keys = [event_sections(store.prefix, event)]
    for place in await places_of(store, event):
        keys += subsection_keys(store.prefix, place)
    total = 0
    for first in range(0, len(keys), KEYS_A_ROUND_TRIP):
        some = keys[first : first + KEYS_A_ROUND_TRIP]
        usages = await store.call_many([("MEMORY", "USAGE", key, "SAMPLES", 0) for key in some])
        total += sum(usage or 0 for usage in usages)
    return total


@contextmanager
def _up_again(folder: Path) -> Iterator[float]:
    """`aisle up` as a person starts it, on a data directory that is there; yields the seconds until it answers."""
    port = free_port()
    settings = {"AISLE_DATA_DIR": str(folder / "data"), "AISLE_PORT": str(port)}
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "aisle", "up"], env={**os.environ, **settings}, stdout=subprocess.DEVNULL
    )
    try:
        while not _answers(port):
            if process.poll() is not None or time.perf_counter() - started > STARTUP_SECONDS_MAX:
                raise StartupError(f"`aisle up` does not start again (exit code {process.returncode})")
            time.sleep(0.02)
        yield time.perf_counter() - started
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _ratio(steps: dict[str, Step]) -> float:
    costs = [float(str(step["cpu_us_per_booking"])) for step in steps.values()]
    return round(max(costs) / max(min(costs), 0.1), 2)
