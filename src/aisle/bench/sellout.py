"""`aisle bench sellout`: an event is created, opened and sold out over HTTP, with everything switched on.

    25,000 bookings of 2 by 256 buyers with tokens, best available in random sections, until every one of them is
    PENDING_PAYMENT in PostgreSQL; then a wave that finds nothing; then one buyer alone.

The clock runs from the first order to the last state change in the database, not to the last answer. Judged by reading:
no seat twice, no booking lost, store and tickets alike.
"""

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import asyncpg
import msgspec

from aisle.accounts.account import Account, Role
from aisle.accounts.desk import Desk, open_desk
from aisle.bench.cost import percentile
from aisle.bench.load import Job, Result
from aisle.bench.product import Product, running_product
from aisle.bench.report import circumstances, say
from aisle.bench.yardstick import seconds_of_the_usual_design
from aisle.config import Config
from aisle.db import open_database
from aisle.ids import new_id
from aisle.metrics import Metrics
from aisle.reservation.verify import verify_places
from aisle.store import open_store
from aisle.ticket_facts import facts_of

PENDING_SECONDS_MAX = 300
SINGLE_BOOKINGS = 50

UNSETTLED = "select exists(select from booking.bookings where state = 'PROCESSING' and event_id = $1)"
OUTCOMES = """
    select state, extract(epoch from deadline - placed_at) * 1000 as ms from booking.bookings where event_id = $1
"""
HELD = """
    select count(*) as held, count(distinct (place, seat)) as distinct_seats
    from ticketing.tickets where event_id = $1 and state = 1
"""


class Size(msgspec.Struct, frozen=True):
    sections: int = 10
    subsections: int = 10
    rows: int = 25
    seats_per_row: int = 20
    buyers: int = 256

    @property
    def names(self) -> list[str]:
        return [chr(65 + n) for n in range(self.sections)]

    @property
    def seats(self) -> int:
        return self.sections * self.subsections * self.rows * self.seats_per_row


FULL = Size()
QUICK = Size(sections=2, subsections=2, rows=5, seats_per_row=10, buyers=8)


def sell_out(size: Size) -> dict[str, object]:
    with running_product() as product:
        return asyncio.run(_sell_out(product, size))


async def _sell_out(product: Product, size: Size) -> dict[str, object]:
    config = product.config
    result: dict[str, object] = {"bench": "sellout", **circumstances(), "seats": size.seats}
    async with open_database(config) as database, open_store(config, Metrics()) as store:
        async with open_desk(config, database, store) as desk:
            hashed = await desk.passwords.hash("one password for all of them")
            seller = await new_account(desk, Role.SELLER, 0, hashed)
            buyers = [await new_account(desk, Role.BUYER, n + 1, hashed) for n in range(size.buyers)]
        event = await create_event(product, seller, size)
        result["create_s"] = round(event.seconds, 3)
        say("selling")
        sold = await _rush(product, database, event.id, buyers, size)
        result.update(sold)
        say("a wave after the last seat")
        wave = await place_orders(product, event.id, buyers, size, size.seats // 2, key="late")
        result["refusals_per_s"] = round(len(wave.milliseconds) / await settled(database, event.id, wave), 1)
        result["single_p50_ms"] = await _one_at_a_time(product, database, seller, buyers[0])
        facts = await facts_of(database, event.id)
        result["drift"] = len((await verify_places(store, facts.halls)).findings)
    say("the usual design: one transaction a booking, rows locked")
    usual = await _usual_seconds(config, size)
    result["yardstick_seconds"] = round(usual, 3) if usual else None
    result["ratio"] = round(usual / sold["seconds"], 2) if usual else None
    return result


async def _usual_seconds(config: Config, size: Size) -> float | None:
    return await seconds_of_the_usual_design(
        config.database_url,
        size.names,
        (size.subsections, size.rows, size.seats_per_row),
        deck_of(size, size.seats // 2),
        partial(send_to, connections=size.buyers),
    )


class Created(msgspec.Struct, frozen=True):
    id: int
    seconds: float


async def _rush(
    product: Product, database: asyncpg.Pool, event: int, buyers: Sequence[str], size: Size
) -> dict[str, Any]:
    bookings = size.seats // 2
    cpu, started = product.cpu_seconds(), time.perf_counter()
    answers = await place_orders(product, event, buyers, size, bookings, key="rush")
    await settled(database, event, answers)
    seconds = time.perf_counter() - started
    spent = {name: after - cpu[name] for name, after in product.cpu_seconds().items()}
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
        "p50_ms": round(percentile(answers.milliseconds, 50), 2),
        "p99_ms": round(percentile(answers.milliseconds, 99), 2),
        "pending_p50_ms": round(percentile(pending, 50), 2) if pending else None,
        "pending_p99_ms": round(percentile(pending, 99), 2) if pending else None,
        "answers": {str(status): count for status, count in sorted(answers.statuses.items())},
        "oversold": seats["held"] - seats["distinct_seats"],
        "lost": answers.statuses.get(202, 0) - len(rows),
        "unsold": size.seats - seats["held"],
    }


async def place_orders(
    product: Product, event: int, buyers: Sequence[str], size: Size, count: int, *, key: str
) -> Result:
    requests = []
    for n, (section, subsection) in enumerate(deck_of(size, count)):
        body = b'{"event_id":%d,"quantity":2,"section":"%s","subsection":%d}' % (event, section.encode(), subsection)
        requests.append(request_bytes(buyers[n % len(buyers)], f"{key}-{n:08}", body))
    return await send(product, requests, connections=size.buyers)


def deck_of(size: Size, count: int) -> list[tuple[str, int]]:
    """Every subsection as often as it can seat a pair, in an order that is the same every time."""
    places = [(section, n) for section in size.names for n in range(1, size.subsections + 1)]
    deck = (places * (count // len(places) + 1))[:count]
    random.Random(7).shuffle(deck)  # noqa: S311 - the same rush every time
    return deck


async def send(product: Product, requests: list[bytes], *, connections: int) -> Result:
    return await send_to(product.config.port, requests, connections=connections)


async def send_to(port: int, requests: list[bytes], *, connections: int) -> Result:
    job = Job("127.0.0.1", port, connections, requests)
    # Into a file: a pipe of ten megabytes was cut short on a busy machine.
    with tempfile.TemporaryFile() as answers:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "aisle.bench.load", stdin=asyncio.subprocess.PIPE, stdout=answers
        )
        await process.communicate(msgspec.msgpack.encode(job))
        assert process.returncode == 0, f"the buyers ended with {process.returncode}"
        answers.seek(0)
        output = answers.read()
    return msgspec.msgpack.decode(output, type=Result)


async def settled(database: asyncpg.Pool, event: int, answers: Result) -> float:
    """Wait until no booking of the event is PROCESSING; returns the seconds since the first order."""
    started = time.perf_counter() - answers.seconds
    async with asyncio.timeout(PENDING_SECONDS_MAX):
        while await database.fetchval(UNSETTLED, event):  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.01)
    return time.perf_counter() - started


async def _one_at_a_time(product: Product, database: asyncpg.Pool, seller: str, buyer: str) -> float:
    """Median time from an order to PENDING_PAYMENT in PostgreSQL when nobody else wants anything."""
    size = Size(sections=1, subsections=1, rows=10, seats_per_row=20, buyers=1)
    event = await create_event(product, seller, size)
    for n in range(SINGLE_BOOKINGS):
        body = b'{"event_id":%d,"quantity":2,"section":"A","subsection":1}' % event.id
        answers = await send(product, [request_bytes(buyer, f"single-{n:08}", body)], connections=1)
        await settled(database, event.id, answers)
    rows = await database.fetch(OUTCOMES, event.id)
    return round(statistics.median(float(r["ms"]) for r in rows) - product.config.payment_seconds * 1000, 2)


async def create_event(product: Product, seller: str, size: Size) -> Created:
    plan = {"rows": size.rows, "seats_per_row": size.seats_per_row, "count": size.subsections}
    body = {
        "name": "Sell-out",
        "starts_at": "2030-01-01T20:00:00+00:00",
        "currency": "EUR",
        "seats_per_booking": 10,
        "seats_per_buyer": 100_000,
        "sections": [{"name": name, "price": 3000, "subsections": [plan]} for name in size.names],
    }
    started = time.perf_counter()
    created = await send(
        product, [request_bytes(seller, "", msgspec.json.encode(body), "/api/v1/events")], connections=1
    )
    event = msgspec.json.decode(created.bodies[0])["id"]
    async with asyncio.timeout(60):
        opened = Result(0, {}, [], [])
        while 200 not in opened.statuses:
            opened = await send(
                product, [request_bytes(seller, "", b"{}", f"/api/v1/events/{event}/open")], connections=1
            )
    return Created(event, time.perf_counter() - started)


def request_bytes(token: str, key: str, body: bytes, path: str = "/api/v1/bookings") -> bytes:
    idempotency = f"idempotency-key: {key}\r\n" if key else ""
    return (
        f"POST {path} HTTP/1.1\r\nhost: aisle\r\nauthorization: Bearer {token}\r\n{idempotency}"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body


async def new_account(desk: Desk, role: Role, number: int, hashed: str) -> str:
    """An account with a token, without the tenth of a second that hashing a password of its own would take."""
    now = datetime.now(UTC)
    account = Account(new_id(now), f"{role}{number}@bench.example", role, now)
    await desk.accounts.insert(account, hashed)
    return (await desk.bearers.issue(account.id, "bench", 1)).text
