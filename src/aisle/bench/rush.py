"""A rush on an event over HTTP: the hall, the people with their tokens, and what they order in which order.

Shared by the benchmarks that sell. Orders are the same every time; they go out through `load.py`, a process of its own.
"""

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import asyncpg
import msgspec

from aisle.accounts.account import Account, Role
from aisle.accounts.desk import Desk, open_desk
from aisle.bench.load import Job, Result, run
from aisle.bench.product import Product
from aisle.ids import new_id
from aisle.store import Store

PENDING_SECONDS_MAX = 300
OPEN_SECONDS_MAX = 300
OPEN_AGAIN_SECONDS = 0.02
PARTY_MAX = 6
FEW = 20

# Nobody else books, so no event is named: the index of what is PROCESSING answers at once, and asking costs no CPU time
# that would be counted with the bookings.
UNSETTLED = "select exists(select from booking.bookings where state = 'PROCESSING')"


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
    def places(self) -> list[tuple[str, int]]:
        return [(section, n) for section in self.names for n in range(1, self.subsections + 1)]

    @property
    def seats_each(self) -> int:
        return self.rows * self.seats_per_row

    @property
    def seats(self) -> int:
        return len(self.places) * self.seats_each


FULL = Size()
QUICK = Size(sections=2, subsections=2, rows=5, seats_per_row=10, buyers=8)


class Wanted(NamedTuple):
    """The best seats of a subsection for a party."""

    section: str
    subsection: int
    party: int


class Created(msgspec.Struct, frozen=True):
    id: int
    seconds: float


def deck_of(size: Size, *, order: str = "random", parties: str = "two") -> list[Wanted]:
    """Orders that fill every subsection to its last seat, the same every time.

    `random`: anywhere; `hot`: everybody wants the best subsection that is left. `two`: pairs; `mix`: parties of 1 to 6.
    """
    choose = random.Random(7)  # noqa: S311 - the same rush every time
    deck = [Wanted(*place, party) for place in size.places for party in _parties(size.seats_each, parties, choose)]
    if order == "random":
        choose.shuffle(deck)
    return deck


def _parties(seats: int, parties: str, choose: random.Random) -> list[int]:
    found: list[int] = []
    while seats:
        found.append(min(seats, 2 if parties == "two" else choose.randint(1, PARTY_MAX)))
        seats -= found[-1]
    return found


async def invite(product: Product, database: asyncpg.Pool, store: Store, buyers: int) -> tuple[str, list[str]]:
    """The token of a seller, and those of so many buyers."""
    async with open_desk(product.config, database, store) as desk:
        hashed = await desk.passwords.hash("one password for all of them")
        seller = await _new_account(desk, Role.SELLER, 0, hashed)
        return seller, [await _new_account(desk, Role.BUYER, n + 1, hashed) for n in range(buyers)]


async def _new_account(desk: Desk, role: Role, number: int, hashed: str) -> str:
    """An account with a token, without the tenth of a second that hashing a password of its own would take."""
    now = datetime.now(UTC)
    account = Account(new_id(now), f"{role}{number}@bench.example", role, now)
    await desk.accounts.insert(account, hashed)
    return (await desk.bearers.issue(account.id, "bench", 1)).text


async def create_event(product: Product, seller: str, size: Size, *, own_lane: bool | None = None) -> Created:
    started = time.perf_counter()
    hall = hall_of(size, own_lane=own_lane)
    created = await send(product, [request_bytes(seller, "", hall, "/api/v1/events")], connections=1)
    event = msgspec.json.decode(created.bodies[0])["id"]
    await open_events(product, seller, [event])
    return Created(event, time.perf_counter() - started)


def hall_of(size: Size, *, own_lane: bool | None = None) -> bytes:
    plan = {"rows": size.rows, "seats_per_row": size.seats_per_row, "count": size.subsections}
    return msgspec.json.encode({
        "name": "Sell-out",
        "starts_at": "2030-01-01T20:00:00+00:00",
        "currency": "EUR",
        "seats_per_booking": 10,
        "seats_per_buyer": 100_000,
        "own_lane": own_lane,
        "sections": [{"name": name, "price": 3000, "subsections": [plan]} for name in size.names],
    })  # fmt: skip


async def open_events(product: Product, seller: str, events: Sequence[int]) -> None:
    """Put them on sale, each as soon as its seats are in the store."""
    closed = list(events)
    async with asyncio.timeout(OPEN_SECONDS_MAX):
        while closed:
            asked = [request_bytes(seller, "", b"{}", f"/api/v1/events/{event}/open") for event in closed]
            answers = await send(product, asked, connections=min(8, len(asked)))
            opened = {found["id"] for found in map(msgspec.json.decode, answers.bodies) if "id" in found}
            closed = [event for event in closed if event not in opened]
            await asyncio.sleep(min(OPEN_AGAIN_SECONDS * len(closed), 1))


async def place_orders(
    product: Product, event: int, buyers: Sequence[str], deck: Sequence[Wanted], *, key: str, label: str = ""
) -> Result:
    requests = orders([event], buyers, deck, key=key)
    hosts, port = product.hosts, product.config.port
    return await send_to(port, requests, connections=len(buyers), label=label, keep_bodies=False, hosts=hosts)


def orders(events: Sequence[int], buyers: Sequence[str], deck: Sequence[Wanted], *, key: str) -> list[bytes]:
    """Requests for bookings, the events taken in turn."""
    requests = []
    for n, wanted in enumerate(deck):
        event, (section, subsection, party) = events[n % len(events)], wanted
        body = b'{"event_id":%d,"quantity":%d,"section":"%s","subsection":%d}'
        filled = body % (event, party, section.encode(), subsection)
        requests.append(request_bytes(buyers[n % len(buyers)], f"{key}-{n:08}", filled))
    return requests


async def send(product: Product, requests: list[bytes], *, connections: int, label: str = "") -> Result:
    return await send_to(product.config.port, requests, connections=connections, label=label, hosts=product.hosts)


async def send_to(
    port: int,
    requests: list[bytes],
    *,
    connections: int,
    label: str = "",
    keep_bodies: bool = True,
    hosts: Sequence[str] = ("127.0.0.1",),
) -> Result:
    """`label` names the progress on a terminal; without one there is none."""
    job = Job(list(hosts), port, connections, requests, label, keep_bodies)
    if len(requests) <= FEW:
        return await run(job)  # a process of its own takes longer to start than these take
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


async def settled(database: asyncpg.Pool, answers: Result) -> float:
    """Wait until no booking is PROCESSING; returns the seconds since the first order."""
    async with asyncio.timeout(PENDING_SECONDS_MAX):
        while await database.fetchval(UNSETTLED):  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.01)
    return time.perf_counter() - answers.started


def request_bytes(token: str, key: str, body: bytes, path: str = "/api/v1/bookings") -> bytes:
    idempotency = f"idempotency-key: {key}\r\n" if key else ""
    return (
        f"POST {path} HTTP/1.1\r\nhost: aisle\r\nauthorization: Bearer {token}\r\n{idempotency}"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
