"""Accept an order: check it, write it, put it on the log. The seats are chosen later, by the reservation service.

The request path waits for one thing, the shared commit. What the log does not take at once stays PROCESSING in the
database, which is this message's outbox: `ask_again` publishes it until an answer has come (decision 0004).
"""

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import asyncpg
import msgspec
import structlog

from aisle.booking import order_store, store
from aisle.booking.backlog import Backlog
from aisle.booking.booking import Booking, Request, State
from aisle.crash_points import crash_point
from aisle.db import in_one_go
from aisle.errors import Problem
from aisle.group_commit import GroupCommit
from aisle.ids import new_id
from aisle.limits import PLACE_BATCH_MAX, PLACE_QUEUE_MAX, RELAY_ROWS_MAX
from aisle.log import LogUnavailable, LogWriter
from aisle.messages import TicketReserveRequested

STALE = timedelta(seconds=5)

log = structlog.get_logger()


class Sale(msgspec.Struct, frozen=True):
    """What this slice has to know of an event: can it be bought, by how many, and where do its messages travel."""

    event: int
    lane: str
    epoch: int
    on_sale: bool
    seats_per_booking: int
    seats_per_buyer: int
    partitions: dict[str, int]
    currency: str
    # (section, subsection) -> (rows, seats per row)
    subsections: dict[tuple[str, int], tuple[int, int]]
    pools: dict[str, "PoolTerms"] = {}

    def limit_of(self, pool: str | None) -> int:
        """How many seats of the hall, or places of the pool, one buyer may have at a time."""
        return self.seats_per_buyer if pool is None else self.pools[pool].places_per_buyer


class PoolTerms(msgspec.Struct, frozen=True):
    places_per_buyer: int
    partition: int


# Answers from a copy that may be a second old; raises 404 for an event that does not exist.
FindSale = Callable[[int], Awaitable[Sale]]


# Whether an event has nothing left where this request looks, by a copy that may be a moment old.
NothingFor = Callable[[int, Request], Awaitable[bool]]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    sale: Sale
    request: Request
    buyer: UUID
    idempotency_key: str


class Placer:
    def __init__(
        self,
        database: asyncpg.Pool,
        writer: LogWriter,
        nothing_for: NothingFor,
        *,
        clock: Callable[[], datetime],
        replayed: Callable[[], object] = lambda: None,
        key_reused: Callable[[], object] = lambda: None,
        wait_s_max: float = math.inf,
        backlog: Backlog | None = None,
    ) -> None:
        self._replayed, self._key_reused = replayed, key_reused
        self._database = database
        self._writer = writer
        self._nothing_for = nothing_for
        self._clock = clock
        self._backlog = backlog
        self._publishing: set[asyncio.Task[None]] = set()
        self._commit: GroupCommit[order_store.Placing, order_store.Placed] = GroupCommit(
            self._write,
            apart=lambda placing: placing.buyer,
            batch_max=PLACE_BATCH_MAX,
            queue_max=PLACE_QUEUE_MAX,
            wait_s_max=wait_s_max,
        )
        self._repeats: GroupCommit[Order, bool] = GroupCommit(
            self._find_repeats, apart=lambda _: object(), batch_max=PLACE_BATCH_MAX, queue_max=PLACE_QUEUE_MAX
        )

    def is_full(self) -> bool:
        """Whether orders would be refused now, whoever they come from."""
        return self._commit.is_full() or (self._backlog is not None and self._backlog.is_full())

    async def place(self, order: Order) -> Booking:
        """The booking, new or of an earlier request with the same key. Raises a Problem if it cannot be."""
        sale = order.sale
        check_order(order.request, sale)
        if await self._nothing_for(sale.event, order.request) and not await self._repeats.submit(order):
            raise Problem(409, "sold_out", "nothing is left there now; seats that are not paid for come back")
        now = self._clock()
        placing = order_store.Placing(
            id=new_id(now),
            event_id=sale.event,
            lane=sale.lane,
            buyer=order.buyer,
            request=order.request,
            idempotency_key=order.idempotency_key,
            request_hash=_hash(order),
            seats_max=sale.limit_of(order.request.pool),
            partition=partition_of(order.request, sale),
            epoch=sale.epoch,
        )
        placed = await self._commit.submit(placing)
        if placed.other_request:
            self._key_reused()
            raise Problem(422, "key_reused", "this Idempotency-Key was used for another request")
        if placed.over_limit:
            of_what = f"places of {order.request.pool}" if order.request.pool else "seats of this event"
            raise Problem(409, "limit", f"one buyer may have {placing.seats_max} {of_what} at a time")
        if placed.new:
            return _fresh(placing, now)
        self._replayed()
        async with self._database.acquire() as connection:
            [booking] = await store.bookings_of(connection, [placed.id])
        return booking

    async def aclose(self) -> None:
        await self._commit.drain()
        if self._publishing:
            await asyncio.wait(self._publishing)

    async def _find_repeats(self, orders: Sequence[Order]) -> list[bool]:
        """Whether each was placed before: then its booking answers, whatever is left."""
        asked = [(order.buyer, order.idempotency_key) for order in orders]
        async with self._database.acquire() as connection:
            known = await order_store.known_keys(connection, asked)
        return [key in known for key in asked]

    async def _write(self, placings: Sequence[order_store.Placing]) -> list[order_store.Placed]:
        write = partial(order_store.place, placings=placings, now=self._clock())
        placed = await in_one_go(self._database, write, lost=order_store.NOT_PLACED)
        crash_point("after_place_commit")
        new = [reserve_message(p) for p, answer in zip(placings, placed, strict=True) if answer.new]
        if new:
            # Not waited for: the buyer has a booking as soon as it is committed, and `ask_again` covers what is lost.
            task = asyncio.create_task(self._publish(new))
            self._publishing.add(task)
            task.add_done_callback(self._publishing.discard)
        return placed

    async def _publish(self, messages: Sequence[TicketReserveRequested]) -> None:
        try:
            await self._writer.post(messages)
        except LogUnavailable as error:
            log.warning("requests_wait_for_the_log", count=len(messages), reason=str(error))


def check_order(request: Request, sale: Sale) -> None:
    """Refuse what can be refused before anything is written."""
    if not sale.on_sale:
        raise Problem(409, "sale_not_open", "this event is not on sale")
    if request.pool is not None:
        _check_places(request, sale)
        return
    if not sale.partitions:
        raise Problem(422, "bad_order", "this event has pools only: name one")
    if not 1 <= request.quantity <= sale.seats_per_booking:
        raise Problem(422, "bad_quantity", f"a booking has 1 to {sale.seats_per_booking} seats")
    if not 0 <= request.accessible <= request.quantity:
        raise Problem(422, "bad_quantity", "more accessible seats than seats")
    if request.section is not None and request.section not in sale.partitions:
        raise Problem(404, "unknown_section", f"there is no section {request.section!r}")
    if request.subsection is not None:
        shape = sale.subsections.get((request.section or "", request.subsection))
        if shape is None:
            raise Problem(404, "unknown_section", f"there is no subsection {request.section}-{request.subsection}")
        if request.seats is not None and not all(0 <= seat < shape[0] * shape[1] for seat in request.seats):
            raise Problem(404, "unknown_seat", "a named seat does not exist")


def _check_places(request: Request, sale: Sale) -> None:
    terms = sale.pools.get(request.pool or "")
    if terms is None:
        raise Problem(404, "unknown_pool", f"there is no pool {request.pool!r}")
    if not 1 <= request.quantity <= terms.places_per_buyer:
        raise Problem(422, "bad_quantity", f"a booking has 1 to {terms.places_per_buyer} places of this pool")


def partition_of(request: Request, sale: Sale) -> int:
    if request.pool is not None:
        return sale.pools[request.pool].partition
    return sale.partitions[request.section or next(iter(sale.partitions))]


def reserve_message(placing: order_store.Placing) -> TicketReserveRequested:
    request = placing.request
    return TicketReserveRequested(
        id=str(placing.id),
        lane=placing.lane,
        event=placing.event_id,
        section=request.pool or request.section or "any",
        partition=placing.partition,
        epoch=placing.epoch,
        booking=str(placing.id),
        buyer=str(placing.buyer),
        quantity=request.quantity,
        in_section=request.section,
        in_subsection=request.subsection,
        seats=request.seats,
        accessible=request.accessible,
        allow_partial=request.allow_partial,
        in_pool=request.pool,
        held=request.held,
    )


async def ask_again(database: asyncpg.Pool, writer: LogWriter, find_sale: FindSale, *, now: datetime) -> int:
    """Publish the requests of bookings that have been PROCESSING for too long. Repeating one is harmless.

    They are asked in the epoch that holds now: the store may have been rebuilt since they were placed.
    """
    async with database.acquire() as connection:
        stale = await order_store.stale_placings(connection, not_asked_since=now - STALE, limit=RELAY_ROWS_MAX, now=now)
    epochs = {event: (await find_sale(event)).epoch for event in {placing.event_id for placing in stale}}
    asked = [msgspec.structs.replace(placing, epoch=epochs[placing.event_id]) for placing in stale]
    await writer.publish([reserve_message(placing) for placing in asked])
    return len(stale)


def _fresh(placing: order_store.Placing, now: datetime) -> Booking:
    return Booking(
        id=placing.id, event_id=placing.event_id, state=State.PROCESSING, quantity=placing.request.quantity, parts=(),
        total=0, reason="", placed_at=now, deadline=None, ended_at=None,
    )  # fmt: skip


def _hash(order: Order) -> bytes:
    return hashlib.blake2b(msgspec.json.encode((order.sale.event, order.request)), digest_size=16).digest()
