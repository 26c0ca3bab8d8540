"""`aisle bench sellout`: an event is created, opened and sold out over HTTP, with everything switched on.

    25,000 bookings of 2 by 256 buyers with tokens, best available in random sections, until every one of them is
    PENDING_PAYMENT in PostgreSQL; then a wave that finds nothing; then one buyer alone.

`--order hot`: everybody wants the best subsection that is left. `--parties mix`: parties of 1 to 6. `--topology scale`:
Apache Kafka, a store cluster, two processes a role; and what a rush on one event does to the orders of another.

The clock runs from the first order to the last state change in the database, not to the last answer. Judged by reading:
no seat twice, no booking lost, store and tickets alike.
"""

import asyncio
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from aisle.bench.cost import percentile
from aisle.bench.neighbour import measure_neighbour
from aisle.bench.product import Product, running_product, running_topology
from aisle.bench.report import circumstances, say
from aisle.bench.rush import (
    Size,
    Wanted,
    create_event,
    deck_of,
    invite,
    place_orders,
    request_bytes,
    send,
    send_to,
    settled,
)
from aisle.bench.yardstick import seconds_of_the_usual_design
from aisle.config import Config
from aisle.db import open_database
from aisle.metrics import Metrics
from aisle.reservation.verify import verify_places
from aisle.store import open_store
from aisle.ticket_facts import facts_of

SINGLE_BOOKINGS = 50

OUTCOMES = """
    select state, extract(epoch from deadline - placed_at) * 1000 as ms from booking.bookings where event_id = $1
"""
HELD = """
    select count(*) as held, count(distinct (place, seat)) as distinct_seats
    from ticketing.tickets where event_id = $1 and state = 1
"""


def sell_out(
    size: Size, *, order: str = "random", parties: str = "two", topology: Path | None = None
) -> dict[str, object]:
    """`topology`: the jars of Apache Kafka, to measure two processes a role on it and a store cluster."""
    with running_topology(topology) if topology else running_product() as product:
        result = {"bench": "sellout", **circumstances(), "topology": "scale" if topology else "embedded"}
        result |= {"seats": size.seats, "order": order, "parties": parties}
        deck = deck_of(size, order=order, parties=parties)
        return result | asyncio.run(_sell_out(product, size, deck, neighbour=topology is not None))


async def _sell_out(product: Product, size: Size, deck: Sequence[Wanted], *, neighbour: bool) -> dict[str, object]:
    config, result = product.config, dict[str, object]()
    async with open_database(config) as database, open_store(config, Metrics()) as store:
        seller, buyers = await invite(product, database, store, size.buyers)
        event = await create_event(product, seller, size)
        result["create_s"] = round(event.seconds, 3)
        sold = await _rush(product, database, event.id, buyers, size, deck)
        result.update(sold)
        wave = await place_orders(product, event.id, buyers, deck, key="late", label="a wave after the last seat")
        result["refusals_per_s"] = round(len(wave.milliseconds) / await settled(database, wave), 1)
        say("one buyer at a time")
        result["single_p50_ms"] = await _one_at_a_time(product, database, seller, buyers[0])
        if neighbour:
            result["neighbour"] = await measure_neighbour(product, database, seller, buyers, size)
        facts = await facts_of(database, event.id)
        result["drift"] = len((await verify_places(store, facts.halls)).findings)
    usual = await _usual_seconds(config, size, deck)
    result["yardstick_seconds"] = round(usual, 3) if usual else None
    result["ratio"] = round(usual / sold["seconds"], 2) if usual else None
    return result


async def _usual_seconds(config: Config, size: Size, deck: Sequence[Wanted]) -> float | None:
    return await seconds_of_the_usual_design(
        config.database_url,
        size.names,
        (size.subsections, size.rows, size.seats_per_row),
        deck,
        partial(send_to, connections=size.buyers, label="the usual design: a transaction a booking, rows locked"),
    )


async def _rush(
    product: Product, database: asyncpg.Pool, event: int, buyers: Sequence[str], size: Size, deck: Sequence[Wanted]
) -> dict[str, Any]:
    bookings = len(deck)
    cpu = product.cpu_seconds()
    answers = await place_orders(product, event, buyers, deck, key="rush", label="selling")
    seconds = await settled(database, answers)
    spent = product.cpu_since(cpu)
    rows = await database.fetch(OUTCOMES, event)
    window_ms = product.config.payment_seconds * 1000
    pending = [float(row["ms"]) - window_ms for row in rows if row["state"] == "PENDING_PAYMENT"]
    seats = await database.fetchrow(HELD, event)
    return {
        "bookings": bookings,
        "seconds": round(seconds, 3),
        "bookings_per_s": round(bookings / seconds, 1),
        "cpu_us_per_booking": round(sum(spent.values()) / bookings * 1e6, 1),
        "cpu_us_by_process": {name: round(s / bookings * 1e6, 1) for name, s in spent.items()},
        "cpu_us_of_buyers": round(answers.cpu_seconds / bookings * 1e6, 1),
        "p50_ms": round(percentile(answers.milliseconds, 50), 2),
        "p99_ms": round(percentile(answers.milliseconds, 99), 2),
        "pending_p50_ms": round(percentile(pending, 50), 2) if pending else None,
        "pending_p99_ms": round(percentile(pending, 99), 2) if pending else None,
        "answers": {str(status): count for status, count in sorted(answers.statuses.items())},
        "oversold": seats["held"] - seats["distinct_seats"],
        "lost": answers.statuses.get(202, 0) - len(rows),
        "unsold": size.seats - seats["held"],
    }


async def _one_at_a_time(product: Product, database: asyncpg.Pool, seller: str, buyer: str) -> float:
    """Median time from an order to PENDING_PAYMENT in PostgreSQL when nobody else wants anything."""
    size = Size(sections=1, subsections=1, rows=10, seats_per_row=20, buyers=1)
    event = await create_event(product, seller, size)
    for n in range(SINGLE_BOOKINGS):
        body = b'{"event_id":%d,"quantity":2,"section":"A","subsection":1}' % event.id
        answers = await send(product, [request_bytes(buyer, f"single-{n:08}", body)], connections=1)
        await settled(database, answers)
    rows = await database.fetch(OUTCOMES, event.id)
    return round(statistics.median(float(r["ms"]) for r in rows) - product.config.payment_seconds * 1000, 2)
