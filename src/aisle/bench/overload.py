"""`aisle bench overload`: what happens when far more orders come than can be written.

    sustainable_per_s   bookings accepted a second by a crowd that just keeps the shared commit busy
    ratio               orders that came a second during the overload, by the sustainable ones; the aim is 20
    p99_ms, budget_ms   of what was accepted, and what it may be: the promised wait, the commit under way and its own,
                        and the second in which nothing is read from somebody who was just refused
    refused_p99_ms      of what was refused
    without_retry_after, other, lost, drift   0, or something is wrong
    memory_mb_growth    of the process that answers, at its largest
    recovery_s          after the crowd has left, until an order is accepted in the time it takes alone

The database is slowed down to a commit a second, 250 orders each: on one machine, no generator could send
twenty times what an undisturbed one takes.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import asyncpg
import msgspec

from aisle.accounts.account import Role
from aisle.accounts.desk import open_desk
from aisle.accounts.passwords import NOBODY
from aisle.accounts.tokens import Kind
from aisle.bench.cost import percentile
from aisle.bench.crowd import CrowdJob, Told
from aisle.bench.product import Product, resident_bytes, running_product
from aisle.bench.report import circumstances
from aisle.bench.rush import Size, create_event, invite, request_bytes, send, settled
from aisle.db import open_database
from aisle.hot_http import REST_SECONDS
from aisle.ids import new_id
from aisle.limits import PLACE_BATCH_MAX
from aisle.metrics import Metrics
from aisle.store import Store, open_store
from aisle.ticket_facts import verify_against_tickets

COMMIT_SECONDS = 1.0
STEADY = PLACE_BATCH_MAX * 2
PATIENT_SECONDS = 30

SLOW_DOWN = """
    create function booking.slowly() returns trigger language plpgsql as $$
    begin
        perform pg_sleep(%s);
        return null;
    end $$;
    create trigger slowly before insert on booking.bookings for each statement execute function booking.slowly();
"""


class Shape(msgspec.Struct, frozen=True):
    size: Size
    people: int
    steady_s: float
    overload_s: float


FULL = Shape(Size(), people=5_000, steady_s=8, overload_s=60)
QUICK = Shape(Size(sections=5, subsections=4), people=1_500, steady_s=3, overload_s=6)


def bench_overload(*, quick: bool = False) -> dict[str, object]:
    with running_product() as product:
        return {"bench": "overload", **circumstances(), **asyncio.run(_overload(product, QUICK if quick else FULL))}


async def _overload(product: Product, shape: Shape) -> dict[str, object]:
    async with open_database(product.config) as database, open_store(product.config, Metrics()) as store:
        seller, _ = await invite(product, database, store, 0)
        buyers = await _buyers(product, database, store, shape.people)
        event = (await create_event(product, seller, shape.size)).id
        orders = _orders(event, buyers, shape.size)
        await database.execute(SLOW_DOWN % COMMIT_SECONDS)
        steady = await _come(product, orders, "steady", STEADY, shape.steady_s)
        async with _memory_watched(product.pids["aisle"]) as growth:
            told = await _come(product, orders, "rush", shape.people, shape.overload_s)
        recovery_s = await _recovered(product, orders[0])
        await settled(database, await send(product, [_with_key(orders[0], "last-of-all")], connections=1))
        written = await database.fetchval("select count(*) from booking.bookings where idempotency_key like 'rush-%'")
        drift = len((await verify_against_tickets(database, store)).findings)
    return {**_figures(steady, told), "memory_mb_growth": growth[0], "recovery_s": round(recovery_s, 2),
            "lost": told.statuses.get(202, 0) - written, "drift": drift}  # fmt: skip


async def _buyers(product: Product, database: asyncpg.Pool, store: Store, count: int) -> list[str]:
    """Tokens of so many accounts, one for each of the crowd, written all at once."""
    now = datetime.now(UTC)
    until = now + timedelta(days=1)
    async with open_desk(product.config, database, store) as desk, database.acquire() as connection:
        issued = [desk.signer.issue(Kind.BEARER, int(until.timestamp() * 1000)) for _ in range(count)]
        ids = [new_id(now) for _ in issued]
        accounts = [(id, f"{id.hex}@bench.example", Role.BUYER.value, NOBODY, now) for id in ids]
        tokens = [
            (new_id(now), id, "bench", one.reference.digest, now, until) for id, one in zip(ids, issued, strict=True)
        ]
        await connection.copy_records_to_table("accounts", schema_name="accounts", records=accounts)
        await connection.copy_records_to_table("tokens", schema_name="accounts", records=tokens)
    return [one.text for one in issued]


def _orders(event: int, buyers: Sequence[str], size: Size) -> list[tuple[bytes, bytes]]:
    orders = []
    for number, buyer in enumerate(buyers):
        section, subsection = size.places[number % len(size.places)]
        body = b'{"event_id":%d,"quantity":1,"section":"%s","subsection":%d}' % (event, section.encode(), subsection)
        head, tail = request_bytes(buyer, "", body).split(b"content-type", 1)
        orders.append((head, b"content-type" + tail))
    return orders


def _with_key(order: tuple[bytes, bytes], key: str) -> bytes:
    return b"%sidempotency-key: %s\r\n%s" % (order[0], key.encode(), order[1])


async def _come(product: Product, orders: list[tuple[bytes, bytes]], key: str, people: int, seconds: float) -> Told:
    job = CrowdJob("127.0.0.1", product.config.port, people, seconds, orders, key)
    # Into a file: a pipe of ten megabytes was cut short on a busy machine.
    with tempfile.TemporaryFile() as answers:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "aisle.bench.crowd", stdin=asyncio.subprocess.PIPE, stdout=answers
        )
        await process.communicate(msgspec.msgpack.encode(job))
        assert process.returncode == 0, f"the crowd ended with {process.returncode}"
        answers.seek(0)
        return msgspec.msgpack.decode(answers.read(), type=Told)


@asynccontextmanager
async def _memory_watched(pid: int) -> AsyncIterator[list[float]]:
    before = resident_bytes(pid)
    growth = [0.0]

    async def watch() -> None:
        while True:
            growth[0] = max(growth[0], round((resident_bytes(pid) - before) / 2**20, 1))
            await asyncio.sleep(0.2)

    watching = asyncio.create_task(watch())
    try:
        yield growth
    finally:
        watching.cancel()


async def _recovered(product: Product, order: tuple[bytes, bytes]) -> float:
    """Alone, an order waits for a commit under way and for its own."""
    started = time.perf_counter()
    for attempt in range(10_000):
        answer = await send(product, [_with_key(order, f"after-it-{attempt}")], connections=1)
        if answer.statuses == {202: 1} and answer.milliseconds[0] < 3 * COMMIT_SECONDS * 1000:
            return time.perf_counter() - started
        if time.perf_counter() - started > PATIENT_SECONDS:
            break
    return float("inf")


def _figures(steady: Told, told: Told) -> dict[str, object]:
    accepted, refused = told.statuses.get(202, 0), len(told.refused_ms)
    answered = sum(told.statuses.values())
    sustainable = steady.statuses.get(202, 0) / steady.seconds
    return {
        "sustainable_per_s": round(sustainable, 1),
        "offered_per_s": round(answered / told.seconds, 1),
        "ratio": round(answered / told.seconds / sustainable, 1),
        "accepted_per_s": round(accepted / told.seconds, 1),
        "refused_per_s": round(refused / told.seconds, 1),
        "p50_ms": round(percentile(told.accepted_ms, 50), 1),
        "p99_ms": round(percentile(told.accepted_ms, 99), 1),
        "budget_ms": round((_wait_s() + 2 * COMMIT_SECONDS + REST_SECONDS) * 1000),
        "refused_p99_ms": round(percentile(told.refused_ms, 99), 1) if told.refused_ms else None,
        "without_retry_after": told.without_retry_after,
        "other": answered - accepted - refused + told.cut_off,
    }


def _wait_s() -> float:
    from aisle.config import Config

    return Config().accept_wait_seconds
