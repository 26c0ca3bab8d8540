"""Holds and checkout inside the test's own process, on the database and the store of a stage.

For what HTTP cannot say: a cart that lasts milliseconds, a checkout that dies in the middle, a guard taken away.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import msgspec

from aisle.booking.booking import Booking, Request
from aisle.booking.cart import Cart, Hold
from aisle.booking.carts import Carts
from aisle.booking.checkout import Checkout, Conversion
from aisle.booking.hold import Holder
from aisle.booking.place import FindSale
from aisle.bridges import sales_from
from aisle.cart_bridges import conversion, seat_holds
from aisle.errors import Problem
from aisle.relay import Relay
from aisle.reservation.holds import HoldInventory, HoldPools, Holds
from aisle.reservation.inventory import Inventory
from aisle.reservation.pools import Pools
from aisle.store import Store
from aisle.ticketing.catalogue import Catalogue
from tests.people import new_key
from tests.running import PATIENCE_SECONDS
from tests.stage import Stage

PAYMENT = timedelta(minutes=15)


@dataclass
class Shop:
    database: asyncpg.Pool
    store: Store
    carts: Carts
    holder: Holder
    checkout: Checkout
    conversion: Conversion
    find_sale: FindSale
    relay: Relay

    async def hold(self, event: int, buyer: UUID, request: Request) -> tuple[Cart, Hold]:
        return await self.holder.hold(event, request, buyer, new_key())

    async def named(self, event: int, buyer: UUID, *seats: int) -> tuple[Cart, Hold]:
        return await self.hold(event, buyer, Request(quantity=len(seats), section="A", subsection=1, seats=seats))

    async def check_out(self, buyer: UUID, key: str = "") -> Booking:
        return await self.checkout.check_out(buyer, key or new_key())


@asynccontextmanager
async def open_shop(stage: Stage, *, hold_ms: int = 600_000, hold_ms_max: int = 1_800_000) -> AsyncIterator[Shop]:
    async with stage.behind() as (database, store):
        carts, catalogue = Carts(store), Catalogue(database, store)
        find_sale, relay = sales_from(catalogue), Relay("booking", database, None)  # type: ignore[arg-type]
        holds = Holds(store, HoldInventory(store), HoldPools(store))
        times = {"hold": timedelta(milliseconds=hold_ms), "hold_max": timedelta(milliseconds=hold_ms_max)}
        holder = Holder(database, carts, seat_holds(holds), find_sale, **times)
        converting = conversion(Inventory(store), Pools(store), catalogue)
        checkout = Checkout(database, carts, converting, find_sale, relay, payment=PAYMENT, clock=now)
        yield Shop(database, store, carts, holder, checkout, converting, find_sale, relay)


def now() -> datetime:
    return datetime.now(UTC)


def codes(outcomes: Sequence[object]) -> list[str]:
    """`ok`, or the code of the refusal; anything else that was raised is a failure of the test."""
    found = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, Problem):
            raise outcome
        found.append(outcome.code if isinstance(outcome, Problem) else "ok")
    return found


def buyers(count: int) -> list[UUID]:
    return [uuid4() for _ in range(count)]


async def time_passes(store: Store, event: int, buyer: UUID | str) -> None:
    """The deadline of a buyer's cart and of its holds is now, by the store's own clock."""
    key = f"{store.prefix}cart:{buyer}"
    seconds, microseconds = await store.call("TIME")
    now_ms = int(seconds) * 1000 + int(microseconds) // 1000
    cart = msgspec.json.decode(await store.call("GET", key), type=Cart)
    for hold in cart.holds:
        for taking in hold.takings:
            place = f"{{{event}:{taking.section}-{taking.subsection}}}"
            line = (await store.call("HGET", f"{store.prefix}holds:{place}", hold.id)).decode().split("|")
            line[5] = str(now_ms)
            await store.call("HSET", f"{store.prefix}holds:{place}", hold.id, "|".join(line))
            await store.call("ZADD", f"{store.prefix}locks:exp:{place}", now_ms, hold.id)
    await store.call("SET", key, msgspec.json.encode(msgspec.structs.replace(cart, deadline_ms=now_ms)))


async def swept(store: Store, event: int) -> None:
    """Returns when nothing of the event that is overdue is left for the sweepers."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await _overdue(store, event):
            await asyncio.sleep(0.05)


async def _overdue(store: Store, event: int) -> int:
    seconds, microseconds = await store.call("TIME")
    now_ms = int(seconds) * 1000 + int(microseconds) // 1000
    keys = await store.call("KEYS", f"{store.prefix}locks:exp:{{{event}:*")
    return sum(await store.call_many([("ZCOUNT", key, "-inf", now_ms) for key in keys]))
