"""What a rush on one event does to somebody who orders for another: part of `aisle bench sellout --topology scale`.

One buyer orders for a quiet event, one order after the other, three times: alone, while a rush goes on in a lane of its
own, and while the same rush goes through the lane that small events share. The rush has few connections, so that it
does not take the whole machine: what is compared is who waits behind whom in the log, not who gets the processor.
"""

import asyncio
from collections.abc import Sequence

import asyncpg

from aisle.bench.cost import percentile
from aisle.bench.product import Product
from aisle.bench.rush import Size, Wanted, create_event, orders, request_bytes, send, send_to

ORDERS = 200
RUSH_CONNECTIONS = 8
QUIET = Size(sections=1, subsections=1, rows=25, seats_per_row=20, buyers=1)
# 10,000 orders: a rush that outlasts the neighbour's.
HOT = Size(sections=4)

SERVED = """
    select extract(epoch from deadline - placed_at) * 1000 - $2 as ms from booking.bookings
    where event_id = $1 and state = 'PENDING_PAYMENT'
"""


async def measure_neighbour(
    product: Product, database: asyncpg.Pool, seller: str, buyers: Sequence[str], size: Size
) -> dict[str, object]:
    """Milliseconds until PENDING_PAYMENT in PostgreSQL, and how often slower a rush makes that."""
    size = min(size, HOT, key=lambda each: each.seats)
    alone = await _quiet_orders(product, database, seller, buyers[0], "alone")
    result: dict[str, object] = {"alone_p50_ms": _p(alone, 50), "alone_p99_ms": _p(alone, 99)}
    for name, own_lane in (("own_lane", True), ("shared_lane", False)):
        hot = await create_event(product, seller, size, own_lane=own_lane)
        rush = asyncio.create_task(_rush(product, hot.id, buyers, size, name))
        beside = await _quiet_orders(product, database, seller, buyers[0], name)
        rushed = rush.done()
        await rush
        result |= {f"{name}_p50_ms": _p(beside, 50), f"{name}_p99_ms": _p(beside, 99)}
        result |= {f"{name}_ratio": round(_p(beside, 99) / _p(alone, 99), 2), f"{name}_rush_ended_first": rushed}
    return result


async def _quiet_orders(
    product: Product, database: asyncpg.Pool, seller: str, buyer: str, name: str
) -> Sequence[float]:
    event = await create_event(product, seller, QUIET, own_lane=False)
    for n in range(ORDERS):
        body = b'{"event_id":%d,"quantity":1,"section":"A","subsection":1}' % event.id
        await send(product, [request_bytes(buyer, f"quiet-{name}-{n:06}", body)], connections=1)
    window_ms = product.config.payment_seconds * 1000
    while len(rows := await database.fetch(SERVED, event.id, window_ms)) < ORDERS:  # noqa: ASYNC110 - others serve
        await asyncio.sleep(0.05)
    return [float(row["ms"]) for row in rows]


async def _rush(product: Product, event: int, buyers: Sequence[str], size: Size, name: str) -> None:
    deck = [Wanted(section, n, 2) for section, n in size.places for _ in range(size.seats_each // 2)]
    requests = orders([event], buyers, deck, key=f"beside-{name}")
    port, hosts = product.config.port, product.hosts
    await send_to(port, requests, connections=RUSH_CONNECTIONS, label=f"a rush, {name}", keep_bodies=False, hosts=hosts)


def _p(samples: Sequence[float], percent: float) -> float:
    return round(percentile(samples, percent), 2)
