"""`aisle bench pay`: an event that is sold out is paid for over HTTP with the sandbox provider.

    25,000 bookings of 2 that wait for their payment, paid by 256 buyers with tokens, each with a key of its own, until
    every one of them is PAID in PostgreSQL; then until the store's seats are all sold.

The clock runs from the first payment to the last booking that is PAID. Judged by reading: the books balance and agree
with the provider's, every ticket is sold, store and tickets alike.
"""

import asyncio
import random
import time
from collections.abc import Sequence

import asyncpg

from aisle.bench.cost import percentile
from aisle.bench.load import Result
from aisle.bench.product import Product, running_product
from aisle.bench.report import circumstances
from aisle.bench.rush import Size, create_event, deck_of, invite, place_orders, request_bytes, send, settled
from aisle.db import open_database
from aisle.metrics import Metrics
from aisle.reservation.reads import places_of, statuses
from aisle.reservation.verify import verify_places
from aisle.store import Store, open_store
from aisle.ticket_facts import facts_of

FINALIZED_SECONDS_MAX = 120

WAITING = "select id, idempotency_key from booking.bookings where event_id = $1 and state = 'PENDING_PAYMENT'"
UNPAID = "select count(*) from booking.bookings where event_id = $1 and state <> 'PAID'"
# What we say we kept, what the provider says it took for us, and what the sold tickets cost.
BOOKS = """
    select (select balance from payment.balances where account = 'sales') as sales,
           (select -balance from payment.balances where account = 'provider:sandbox') as provider,
           (select sum(amount - refunded) from payment.sandbox_charges where state = 'captured') as charged,
           (select sum(price) from ticketing.tickets where event_id = $1 and state = 2) as delivered
"""


def pay_for_all(size: Size) -> dict[str, object]:
    with running_product() as product:
        return asyncio.run(_pay_for_all(product, size))


async def _pay_for_all(product: Product, size: Size) -> dict[str, object]:
    config = product.config
    result: dict[str, object] = {"bench": "pay", **circumstances(), "seats": size.seats}
    async with open_database(config) as database, open_store(config, Metrics()) as store:
        seller, buyers = await invite(product, database, store, size.buyers)
        event = (await create_event(product, seller, size)).id
        orders = await place_orders(product, event, buyers, deck_of(size), key="rush", label="selling")
        await settled(database, orders)
        result.update(await _pay(product, database, store, event, buyers))
        facts = await facts_of(database, event)
        result["drift"] = len((await verify_places(store, facts.halls)).findings)
        books = await database.fetchrow(BOOKS, event)
        result["ledger_balanced"] = len(set(books.values())) == 1
        result["unpaid"] = await database.fetchval(UNPAID, event)
    return result


async def _pay(
    product: Product, database: asyncpg.Pool, store: Store, event: int, buyers: Sequence[str]
) -> dict[str, object]:
    requests = []
    for row in await database.fetch(WAITING, event):
        number = int(row["idempotency_key"].rpartition("-")[2])
        path = f"/api/v1/bookings/{row['id']}/payments"
        requests.append(request_bytes(buyers[number % len(buyers)], f"pay-{number:08}", b'{"method":"card_ok"}', path))
    random.Random(7).shuffle(requests)  # noqa: S311 - the same order every time
    cpu, started = product.cpu_seconds(), time.perf_counter()
    answers = await send(product, requests, connections=len(buyers), label="paying")
    # A payment is answered when its booking is PAID, so the last answer is the last state change.
    seconds = answers.seconds
    await _until_sold(store, event, len(requests) * 2)
    finalized = time.perf_counter() - started
    spent = product.cpu_since(cpu)
    return {
        "payments": len(requests),
        "seconds": round(seconds, 3),
        "payments_per_s": round(len(requests) / seconds, 1),
        "finalized_seconds": round(finalized, 3),
        "cpu_us_per_payment": round(sum(spent.values()) / len(requests) * 1e6, 1),
        "cpu_us_by_process": {name: round(s / len(requests) * 1e6, 1) for name, s in spent.items()},
        "answers": _counted(answers),
        "p50_ms": round(percentile(answers.milliseconds, 50), 2),
        "p99_ms": round(percentile(answers.milliseconds, 99), 2),
    }


def _counted(answers: Result) -> dict[str, int]:
    return {str(status): count for status, count in sorted(answers.statuses.items())}


async def _until_sold(store: Store, event: int, seats: int) -> None:
    places = await places_of(store, event)
    async with asyncio.timeout(FINALIZED_SECONDS_MAX):
        while sum(status.sold for status in await statuses(store, places) if status) < seats:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
