"""What comes from outside: webhooks twenty times and forged, a provider that keeps the money, stampedes, storms of
streams, clients that send slowly, too much, or nonsense."""

import asyncio
import json
import random
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg

from aisle.payment.sandbox import ACCOUNT, SIGNATURE
from aisle.payment.signature import sign
from tests.chaos.soak.audit import GIVE_REFUNDS, REFUSE_REFUNDS
from tests.chaos.soak.buyers import Sale
from tests.chaos.soak.nemesis import Nemesis, fault
from tests.chaos.soak.world import WEBHOOK_SECRET
from tests.people import a_hall

GONE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


@fault("F23", "webhooks: twenty at once, forged, old, of nobody", crowd=True, weight=2)
async def webhooks(nemesis: Nemesis, chance: random.Random) -> int:
    try:
        connection = await asyncpg.connect(nemesis.world.config.database_url, timeout=5)
    except GONE:
        return 0
    try:
        rows = await connection.fetch("select id, state from payment.payments order by id desc limit 20")
    except GONE:
        return 0
    finally:
        with suppress(*GONE):
            await connection.close(timeout=2)
    payments = [row["id"] for row in rows] or [uuid4()]
    payment, now = chance.choice(payments), datetime.now(UTC)
    kinds = ("authorised", "captured", "declined", "pending", "refunded")
    good = _notice(payment, chance.choice(kinds))
    calls = [_post(nemesis, good, sign(WEBHOOK_SECRET, good, now)) for _ in range(20)]
    stranger, forged = _notice(uuid4(), "authorised"), _notice(payment, "authorised")
    calls.append(_post(nemesis, stranger, sign(WEBHOOK_SECRET, stranger, now)))
    calls.append(_post(nemesis, forged, sign("a wrong secret", forged, now)))
    calls.append(_post(nemesis, forged, sign(WEBHOOK_SECRET, forged, now - timedelta(hours=1))))
    calls.append(_post(nemesis, b"{nonsense", sign(WEBHOOK_SECRET, b"{nonsense", now)))
    statuses = await asyncio.gather(*calls)
    wrongly_heard = [status for status in statuses[21:] if status == 200]
    assert not wrongly_heard, "a forged webhook was believed"
    return int(statuses[:20].count(200) > 1)


def _notice(payment: object, kind: str) -> bytes:
    return json.dumps({"id": f"note_{uuid4().hex}", "account": ACCOUNT, "payment": str(payment), "kind": kind}).encode()


async def _post(nemesis: Nemesis, body: bytes, signature: str) -> int:
    door = random.choice(nemesis.world.doors)
    head = "POST /api/v1/payments/webhooks/sandbox HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += f"{SIGNATURE}: {signature}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return await _status(door, head.encode() + body)


async def _status(door: tuple[str, int], data: bytes, seconds: float = 12) -> int:
    """The status of the answer to these bytes; 0 if none came."""
    writer = None
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(*door)
            writer.write(data)
            line = await reader.readline()
            return int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else 0
    except (OSError, TimeoutError, ValueError, IndexError):
        return 0
    finally:
        if writer is not None:
            writer.transport.abort()


@fault("F25", "the provider gives no money back", crowd=True, weight=2)
async def refunds_refused(nemesis: Nemesis, chance: random.Random) -> int:
    url = nemesis.world.config.database_url
    before = await _execute(url, "select count(*) from chaos.moves where what = 'refund refused'", REFUSE_REFUNDS)
    await asyncio.sleep(chance.uniform(3, 8))
    after = None
    while after is None:
        after = await _execute(url, "select count(*) from chaos.moves where what = 'refund refused'", GIVE_REFUNDS)
        await asyncio.sleep(0.5)
    # A refusal is rolled back with its note where the sandbox raises, so what refunds wait for is counted as well.
    waiting = await _execute(url, "select count(*) from payment.refunds where state = 'ASKED'", "select 1")
    return int((before is not None and after > before) or bool(waiting))


async def _execute(url: str, count: str, statement: str) -> Any:
    try:
        connection = await asyncpg.connect(url, timeout=5)
    except GONE:
        return None
    try:
        await connection.execute("set lock_timeout = '3s'")
        await connection.execute(statement)
        return await connection.fetchval(count)
    except GONE:
        return None
    finally:
        with suppress(*GONE):
            await connection.close(timeout=2)


@fault("F27", "a stampede for the last seats", crowd=True)
async def stampede(nemesis: Nemesis, chance: random.Random) -> int:
    """Many people want one seat or a few, at the same moment, from both processes."""
    sale, seats = nemesis.sale, chance.choice((1, 2, 5))
    event = await _opened(sale, a_hall(("A", 700, 1, seats), seats_per_booking=1, name="Last seats"))
    if event is None:
        return 0
    tokens = nemesis.shared["crowd tokens"]
    asked = await asyncio.gather(
        *(
            sale.ask(f"crowd-{n}", "book", "POST", "/bookings", {"event_id": event, "quantity": 1}, token=token,
                     key=f"stampede-{event}-{n}", door=n, event=event, seconds=20)
            for n, token in enumerate(tokens)
        )
    )  # fmt: skip
    sale.sometimes["wanted a last seat"] += len(asked)
    return int(sum(operation.outcome == "ok" for operation in asked) > seats)


async def _opened(sale: Sale, description: dict[str, Any]) -> int | None:
    created = await sale.ask("seller", "create", "POST", "/events", description, token=sale.seller_token)
    if created.outcome != "ok":
        return None
    event = int(created.answer["id"])
    for _ in range(20):
        opened = await sale.ask("seller", "open", "POST", f"/events/{event}/open", token=sale.seller_token, event=event)
        if opened.outcome == "ok":
            return event
        await asyncio.sleep(0.5)
    return None


@fault("F28", "a storm of streams that nobody reads", crowd=True)
async def stream_storm(nemesis: Nemesis, chance: random.Random) -> int:
    event = chance.choice(nemesis.sale.events)
    opened: list[asyncio.StreamWriter] = []
    answered = 0

    async def watch(number: int) -> None:
        nonlocal answered
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(8):
                door = nemesis.world.doors[number % len(nemesis.world.doors)]
                reader, writer = await asyncio.open_connection(*door, limit=1024)
                opened.append(writer)
                stale = chance.choice(("", "last-event-id: 1\r\n", "last-event-id: 99999999999999999\r\n"))
                path = f"/api/v1/events/{event}/updates"
                writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n{stale}\r\n".encode())
                answered += (await reader.readline()).startswith(b"HTTP/1.1 200")

    try:
        await asyncio.gather(*(watch(n) for n in range(150)))
        await asyncio.sleep(chance.uniform(1, 3))
    finally:
        for writer in opened:
            writer.transport.abort()
    return int(answered > 0)


@fault("F29", "slow, huge and senseless requests", crowd=True, weight=2)
async def hostile_clients(nemesis: Nemesis, chance: random.Random) -> int:
    door = chance.choice(nemesis.world.doors)
    post = b"POST /api/v1/bookings HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    requests = {
        "large body": (post + b"content-length: 104857600\r\n\r\n" + b"x" * 65_536, {413, 401, 400, 0}),
        "large header": (b"GET /livez HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 1_000_000 + b"\r\n\r\n", {431, 400, 0}),
        "deep JSON": (_with_length(post, b"[" * 30_000), {400, 401, 0}),
        "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {400, 0}),
    }
    slow = [asyncio.create_task(_slowly(door)) for _ in range(10)]
    answers = await asyncio.gather(*(_status(door, data) for data, _ in requests.values()))
    for (what, (_, expected)), status in zip(requests.items(), answers, strict=True):
        assert status in expected | {503}, f"{what}: {status}"
    alive = await _status(door, b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    await asyncio.gather(*slow)
    return int(any(answers) and alive in (200, 0))


def _with_length(head: bytes, body: bytes) -> bytes:
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


async def _slowly(door: tuple[str, int]) -> None:
    """Headers that trickle in and never end."""
    started = time.monotonic()
    with suppress(OSError, RuntimeError):  # uvloop's word for a connection that is gone
        _, writer = await asyncio.open_connection(*door)
        try:
            writer.write(b"POST /api/v1/bookings HTTP/1.1\r\nhost: x\r\n")
            while time.monotonic() - started < 4:
                writer.write(b"x-slow: 1\r\n")
                await writer.drain()
                await asyncio.sleep(0.5)
        finally:
            writer.transport.abort()
