"""What the payment verbs are given: tickets from the ticketing slice, seats from the store, the providers.

Used by the composition root only. Each turns one slice's values into another's; nothing here decides but the order of
candidates for seats that are as good.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import asyncpg

from aisle.booking import order_store
from aisle.booking.late_money import LateMoney, Number, SellFree
from aisle.booking.pay import Payer, Till
from aisle.booking.payment_api import MoneyDesk, Owner
from aisle.booking.payment_moves import Sell, TakeBack
from aisle.booking.payment_start import CurrencyOf
from aisle.booking.resolve import Resolver
from aisle.booking.review_api import ReviewDesk
from aisle.bridges import sales_from
from aisle.config import Config
from aisle.messages import POOL, Part
from aisle.metrics import Metrics
from aisle.payment.provider import Provider
from aisle.payment.sandbox import Sandbox
from aisle.reservation.claims import Claim, Settlement, Verb
from aisle.reservation.generation import Gate
from aisle.reservation.hall import UNDONE
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place
from aisle.reservation.pool import PoolPlace, PoolSettlement, Take
from aisle.reservation.pools import Pools
from aisle.reservation.reads import seat_maps
from aisle.reservation.seating import seat_side_by_side
from aisle.reservation.subsection import SeatState, Subsection, gaps_of, unpack
from aisle.services import Parts
from aisle.store import Store
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.event import Subhall
from aisle.ticketing.pool_store import Wanted as WantedPlaces
from aisle.ticketing.pool_store import number_places
from aisle.ticketing.sell import Owned, TicketSeller


@dataclass(frozen=True, slots=True)
class Counter:
    """Everything that takes money in one process."""

    till: Till
    payer: Payer
    resolver: Resolver


async def open_counter(parts: Parts, metrics: Metrics, stack: AsyncExitStack) -> Counter:
    """Made once a process that has the role `api` or `booking`; closed with the stack."""
    find_sale = sales_from(parts.catalogue)
    seller = TicketSeller()
    sandbox = Sandbox(
        parts.database,
        clock=parts.clock,
        late_s=parts.config.sandbox_late_seconds,
        secret=parts.config.sandbox_webhook_secret,
    )
    stack.push_async_callback(sandbox.aclose)
    till = Till(
        database=parts.database,
        providers=_providers(parts.config, sandbox),
        provider=parts.config.payment_provider,
        provider_seconds=parts.config.provider_timeout,
        sell=sell_with(seller),
        take_back=take_back_with(seller),
        currency_of=_currencies(),
        relay=parts.relays["booking"],
        clock=parts.clock,
        metrics=metrics.money,
    )
    payer = Payer(till)
    stack.push_async_callback(payer.aclose)
    seats = StoreSeats(parts.store, parts.inventory, parts.pools, parts.gate, parts.catalogue)
    late_money = LateMoney(
        till, payer, seats, find_sale, number=number_with(parts.catalogue), sell_free=sell_free_with(seller)
    )
    resolver = Resolver(till, payer, late_money, verdict_seconds=parts.config.payment_verdict_seconds)
    sandbox.send = lambda body, headers: resolver.hear("sandbox", body, headers)
    return Counter(till, payer, resolver)


def money_desk(parts: Parts, counter: Counter) -> MoneyDesk:
    async def find_owner(event: int) -> Owner:
        found = (await parts.catalogue.find(event)).event
        return Owner(found.seller, found.starts_at)

    find_sale = sales_from(parts.catalogue)
    hours = parts.config.refund_hours_before
    return MoneyDesk(counter.till, counter.payer, counter.resolver, find_sale, find_owner, hours)


def review_desk(parts: Parts, counter: Counter) -> ReviewDesk:
    async def events_of(seller: UUID) -> list[int]:
        async with parts.database.acquire() as connection:
            rows = await connection.fetch("select id from ticketing.events where seller = $1", seller)
        return [row["id"] for row in rows]

    return ReviewDesk(counter.till, counter.resolver, events_of)


def _providers(config: Config, sandbox: Sandbox) -> dict[str, Provider]:
    if config.payment_provider != "stripe":
        return {sandbox.name: sandbox}
    from aisle.payment.stripe_provider import Stripe  # it takes half a second to load

    stripe = Stripe(
        key=config.stripe_secret_key,
        webhook_secret=config.stripe_webhook_secret,
        account=config.stripe_account,
        api_base=config.stripe_api_base,
    )
    return {stripe.name: stripe, sandbox.name: sandbox}


@asynccontextmanager
async def provider_of(config: Config, database: asyncpg.Pool) -> AsyncIterator[Provider]:
    """The one that the settings name, for a command that asks it something."""
    sandbox = Sandbox(database, clock=lambda: datetime.now(UTC))
    try:
        yield _providers(config, sandbox)[config.payment_provider]
    finally:
        await sandbox.aclose()


def _currencies() -> CurrencyOf:
    kept: dict[int, str] = {}

    async def currency_of(connection: asyncpg.Connection, event: int) -> str:
        """The currency of an event never changes."""
        if event not in kept:
            kept[event] = await connection.fetchval("select currency from ticketing.events where id = $1", event)
        return kept[event]

    return currency_of


def _owned(row: asyncpg.Record, parts: Sequence[Part] | None = None) -> Owned:
    return Owned(
        event=row["event_id"],
        booking=row["id"],
        buyer=row["buyer"],
        parts=order_store.parts_of(row["parts"]) if parts is None else tuple(parts),
        lane=row["lane"],
        partition=row["partition"],
    )


def sell_with(seller: TicketSeller) -> Sell:
    async def sell(connection: asyncpg.Connection, rows: Sequence[asyncpg.Record]) -> set[UUID]:
        return await seller.sell(connection, [_owned(row) for row in rows])

    return sell


def sell_free_with(seller: TicketSeller) -> SellFree:
    async def sell_free(connection: asyncpg.Connection, row: asyncpg.Record) -> bool:
        return await seller.sell_free(connection, _owned(row), epoch=row["epoch"])

    return sell_free


def number_with(catalogue: Catalogue) -> Number:
    async def number(
        connection: asyncpg.Connection, event: int, booking: UUID, parts: Sequence[Part]
    ) -> tuple[Part, ...] | None:
        numbered = []
        for part in parts:
            if part.in_pool:
                [place] = [pool.place for pool in (await catalogue.find(event)).pools if pool.pool == part.section]
                wanted = WantedPlaces(event, place, booking, len(part.seats))
                seats = (await number_places(connection, [wanted]))[wanted]
                if len(seats) < len(part.seats):
                    return None
                part = Part(part.section, POOL, seats, part.price)
            numbered.append(part)
        return tuple(numbered)

    return number


def take_back_with(seller: TicketSeller) -> TakeBack:
    async def take_back(
        connection: asyncpg.Connection, row: asyncpg.Record, parts: Sequence[Part], *, why: str, now: datetime
    ) -> bool:
        id = f"{row['id']}.back.{int(now.timestamp() * 1000)}"
        return await seller.take_back(connection, _owned(row, parts), id=id, why=why, now=now)

    return take_back


class StoreSeats:
    """`late_money.SeatsAgain` on the hot store."""

    def __init__(self, store: Store, inventory: Inventory, pools: Pools, gate: Gate, catalogue: Catalogue) -> None:
        self._store = store
        self._inventory = inventory
        self._pools = pools
        self._gate = gate
        self._catalogue = catalogue

    async def as_good(self, event: int, parts: Sequence[Part]) -> tuple[Part, ...] | None:
        """In the subsections that rank as high or higher, at the same price; there in a row as near or nearer."""
        if any(part.in_pool for part in parts):
            return None  # one place of a pool is as good as another: there was none
        listing = await self._catalogue.find(event)
        ranks = {(hall.section, hall.subsection): hall for hall in listing.halls}
        price, size = parts[0].price, sum(len(part.seats) for part in parts)
        if any(part.price != price for part in parts):
            return None
        best_place, best_row = min(
            (ranks[part.section, part.subsection].place, min(part.seats) // _width(ranks, part)) for part in parts
        )
        halls = [hall for hall in listing.halls if hall.price == price and hall.place <= best_place]
        maps = await seat_maps(self._store, [Place(event, hall.section, hall.subsection) for hall in halls])
        for hall, found in sorted(zip(halls, maps, strict=True), key=lambda pair: pair[0].place, reverse=True):
            rows = best_row + 1 if hall.place == best_place else hall.rows
            seats = _side_by_side(hall, found.packed, size, rows) if found is not None else None
            if seats is not None:
                return (Part(hall.section, hall.subsection, seats, price),)
        return None

    async def take(self, event: int, booking: UUID, buyer: UUID, parts: Sequence[Part]) -> bool:
        await self._gate.require_open()
        epoch = (await self._catalogue.find(event)).event.epoch
        for part in parts:
            take = self._take_places if part.in_pool else self._take_seats
            if not await take(event, booking, buyer, part, epoch):
                await self.give_back(event, booking, buyer, parts)
                return False
        return True

    async def give_back(self, event: int, booking: UUID, buyer: UUID, parts: Sequence[Part]) -> None:
        epoch = (await self._catalogue.find(event)).event.epoch
        for part in parts:
            if part.in_pool:
                back = PoolSettlement(verb=Verb.RELEASE, id=str(booking), owner=str(buyer), why=UNDONE)
                await self._pools.settle(PoolPlace(event, part.section), [back], epoch=epoch)
            else:
                settlement = Settlement(Verb.RELEASE, str(booking), str(buyer), UNDONE)
                await self._inventory.settle(Place(event, part.section, part.subsection), [settlement], epoch=epoch)

    async def _take_seats(self, event: int, booking: UUID, buyer: UUID, part: Part, epoch: int) -> bool:
        claim = Claim(id=str(booking), owner=str(buyer), seats=part.seats, accessible=len(part.seats))
        place = Place(event, part.section, part.subsection)
        [outcome] = await self._inventory.claim(place, [claim], epoch=epoch)
        # At another price than was paid these are not the seats that were bought.
        return outcome.ok and outcome.price == part.price and outcome.seats == tuple(sorted(part.seats))

    async def _take_places(self, event: int, booking: UUID, buyer: UUID, part: Part, epoch: int) -> bool:
        """As many places as it had: which of them has no meaning."""
        asked = Take(id=str(booking), owner=str(buyer), quantity=len(part.seats))
        [taken] = await self._pools.take(PoolPlace(event, part.section), [asked], epoch=epoch)
        return taken.ok and taken.price == part.price


def _width(ranks: dict[tuple[str, int], Subhall], part: Part) -> int:
    return ranks[part.section, part.subsection].seats_per_row


def _side_by_side(hall: Subhall, packed: bytes, size: int, rows: int) -> tuple[int, ...] | None:
    """The best free block in the first `rows` rows; accessible seats are kept for those who need them."""
    shape = Subsection(hall.rows, hall.seats_per_row, frozenset(hall.accessible))
    free = [
        seat
        for seat, state in enumerate(unpack(shape, packed)[: rows * hall.seats_per_row])
        if state is SeatState.AVAILABLE and seat not in shape.accessible
    ]
    choice = seat_side_by_side(gaps_of(shape, free), size)
    return choice.seats if choice else None
