"""Turn a cart into one booking that waits for its payment, without ever letting go of a seat.

    1 cart       closed to changes, with the id of the booking it is to become: two checkouts find out about each other
    2 PostgreSQL the booking PROCESSING, with its key, its limit and the holds it is made of
    3 store      the holds become the booking's claim, all or none: the store's deadline ends here
    4 PostgreSQL tickets AVAILABLE -> RESERVED, rows counted, and the booking PENDING_PAYMENT, in one transaction
    5 cart       gone

A crash after 1 leaves a cart that the next checkout takes over. After 2 the row is its own outbox (decision 0004):
`ask_again` has the reservation service do 3 and the log does 4. A refusal in 3 or 4 ends the booking and gives back
whatever it had. `docs/explanation/holds.md` goes through every place at which a process can die.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import asyncpg

from aisle.booking import cart as rules
from aisle.booking import order_store, store
from aisle.booking.booking import Booking, Request, State
from aisle.booking.cart import Cart
from aisle.booking.carts import Carts
from aisle.booking.place import FindSale, Sale
from aisle.crash_points import crash_point
from aisle.db import in_one_go
from aisle.errors import Problem
from aisle.group_commit import GroupCommit
from aisle.ids import new_id
from aisle.limits import CHECKOUT_BATCH_MAX, CHECKOUT_QUEUE_MAX
from aisle.messages import BookingExpired, Part
from aisle.relay import Relay

# Not a refusal: the store may not be asked now, or not in the epoch that the booking knows.
UNDECIDED = "fenced"
REFUSED_FINALLY = "this checkout was refused"


Parts = tuple[Part, ...]
Reserved = dict[UUID, tuple[Parts, int]]


@dataclass(frozen=True, slots=True)
class Conversion:
    """What this slice asks of the other two to finish a checkout. Each is safe to repeat."""

    # Holds into a booking's claim, all or none; the code says why not, UNDECIDED that it cannot be said yet.
    convert: Callable[[order_store.Placing], Awaitable[str]]
    # Inside the caller's transaction; what each booking asks for, and how many of it is RESERVED for it now.
    reserve_tickets: Callable[[asyncpg.Connection, Sequence[order_store.Placing]], Awaitable[Reserved]]
    release_tickets: Callable[[asyncpg.Connection, Sequence[tuple[order_store.Placing, Parts]]], Awaitable[object]]


class Checkout:
    def __init__(
        self,
        database: asyncpg.Pool,
        carts: Carts,
        conversion: Conversion,
        find_sale: FindSale,
        relay: Relay,
        *,
        payment: timedelta,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._carts = carts
        self._conversion = conversion
        self._find_sale = find_sale
        self._relay = relay
        self._payment = payment
        self._clock = clock
        self._placing: GroupCommit[order_store.Placing, order_store.Placed] = GroupCommit(
            self._place,
            apart=lambda placing: placing.buyer,
            batch_max=CHECKOUT_BATCH_MAX,
            queue_max=CHECKOUT_QUEUE_MAX,
            lanes=2,
        )
        self._reserving: GroupCommit[order_store.Placing, Booking] = GroupCommit(
            self._reserve,
            apart=lambda placing: placing.id,
            batch_max=CHECKOUT_BATCH_MAX,
            queue_max=CHECKOUT_QUEUE_MAX,
            lanes=2,
        )

    async def check_out(self, buyer: UUID, key: str, asked: bytes = b"") -> Booking:
        """The booking, new or of an earlier request with the same key; `asked` is what the request said."""
        request_hash = hashlib.blake2b(b"cart" + asked, digest_size=16).digest()
        earlier = await self._earlier(buyer, key, request_hash)
        if earlier is not None:
            return await self._closed(earlier, await self._finish(earlier))
        try:
            cart, now_ms = await self._claim_cart(buyer, key)
        except Problem:
            # A twin of this request may have made the booking meanwhile, and emptied the cart.
            earlier = await self._earlier(buyer, key, request_hash)
            if earlier is None:
                raise
            return await self._closed(earlier, await self._finish(earlier))
        crash_point("after_cart_closed")
        sale = await self._find_sale(cart.event)
        placing = _placing(cart, sale, buyer, key, request_hash)
        placed = await self._placing.submit(placing)
        if placed.other_request:
            raise Problem(422, "key_reused", "this Idempotency-Key was used for another request")
        if placed.over_limit or placed.id != placing.id:
            await self._carts.change(buyer, lambda c, _: rules.reopen(c, cart.booking))
        if placed.over_limit:
            raise Problem(409, "limit", f"one buyer may have {placing.seats_max} of these at a time")
        if placed.id != placing.id:
            # A twin was so much faster that this is the buyer's next cart already: it is not what was asked for.
            placing = await self._earlier(buyer, key, request_hash) or placing
        crash_point("after_checkout_placed")
        booking = await self._finish(placing, is_new=placed.new)
        # Nobody else has changed the cart, as a rule; then it is emptied without another look.
        if placed.new and await self._carts.swap(buyer, cart, None, now_ms):
            return _unless_failed(booking)
        return await self._closed(placing, booking)

    async def is_known(self, buyer: UUID, key: str) -> bool:
        """Whether a request with this key has got as far as a booking, or is about to make one of the cart."""
        cart, _ = await self._carts.read(buyer)
        if cart is not None and cart.booking_key == key:
            return True
        async with self._database.acquire() as connection:
            return await order_store.placing_of_key(connection, buyer, key) is not None

    async def _earlier(self, buyer: UUID, key: str, request_hash: bytes) -> order_store.Placing | None:
        async with self._database.acquire() as connection:
            earlier = await order_store.placing_of_key(connection, buyer, key)
        if earlier is not None and earlier.request_hash != request_hash:
            raise Problem(422, "key_reused", "this Idempotency-Key was used for another request")
        return earlier

    async def aclose(self) -> None:
        await self._placing.drain()
        await self._reserving.drain()

    async def _claim_cart(self, buyer: UUID, key: str) -> tuple[Cart, int]:
        """The cart as it is going to be booked, closed to changes, and the store's time.

        Of two checkouts one is told about the other.
        """
        cart, now_ms = await self._carts.read(buyer)
        if cart is not None and not (await self._find_sale(cart.event)).on_sale:
            raise Problem(409, "sale_not_open", "this event is not on sale")
        dead = cart.booking if cart is not None and cart.booking and not await self._exists(cart.booking) else ""
        booking = new_id(self._clock())

        def close(seen: Cart | None, now_ms: int) -> Cart:
            return rules.check_out(seen, booking=booking, key=key, instead_of=dead, now_ms=now_ms)

        claimed: Cart | None = close(cart, now_ms)
        if not await self._carts.swap(buyer, cart, claimed, now_ms):
            claimed = await self._carts.change(buyer, close)
        assert claimed is not None
        if claimed.booking_key != key:
            raise Problem(409, "checked_out", "another request checks this cart out", more={"booking": claimed.booking})
        return claimed, now_ms

    async def _finish(self, placing: order_store.Placing, *, is_new: bool = False) -> Booking:
        """Steps 3 and 4 for a booking that stands; nothing to do for one that is past them."""
        if not is_new:
            booking = await self._booking(placing.id)
            if booking.state is not State.PROCESSING or not placing.request.held:
                return booking
        code = await self._conversion.convert(placing)
        if code == "ok":
            crash_point("after_convert")
            booking = await self._reserving.submit(placing)
            crash_point("after_checkout_reserved")
            return booking
        if code == UNDECIDED:
            # The store is being verified or was rebuilt: the booking stays PROCESSING and is asked for again.
            raise Problem(503, "store_unverified", "the store is being verified; repeat the request", retry_after_s=2)
        await self._fail(placing, code)
        return await self._booking(placing.id)

    async def _closed(self, placing: order_store.Placing, booking: Booking) -> Booking:
        """Step 5, whatever the cart is by now."""
        await self._carts.change(placing.buyer, lambda c, _: rules.close(c, str(placing.id)))
        return _unless_failed(booking)

    async def _place(self, placings: Sequence[order_store.Placing]) -> list[order_store.Placed]:
        write = partial(order_store.place, placings=placings, now=self._clock())
        return await in_one_go(self._database, write, lost=order_store.NOT_PLACED)

    async def _reserve(self, placings: Sequence[order_store.Placing]) -> list[Booking]:
        async def reserve(connection: asyncpg.Connection) -> list[Booking]:
            async with connection.transaction():
                await self._reserve_batch(connection, placings)
                found = await store.bookings_of(connection, [p.id for p in placings])
            return [booking for p in placings for booking in found if booking.id == p.id]

        return await in_one_go(self._database, reserve)

    async def _reserve_batch(self, connection: asyncpg.Connection, placings: Sequence[order_store.Placing]) -> None:
        """Tickets and booking together. A booking whose tickets are not all free, or that has ended, gets none.

        One whose seats were converted before the store was rebuilt stays PROCESSING: the store is asked for it again.
        """
        now = self._clock()
        reserved = await self._conversion.reserve_tickets(connection, placings)
        placings = [p for p in placings if p.id in reserved]
        parts = {p.id: reserved[p.id][0] for p in placings}
        complete = [p for p in placings if reserved[p.id][1] == p.request.quantity]
        incomplete = [p for p in placings if reserved[p.id][1] != p.request.quantity]
        moved = await store.to_pending_payment(
            connection, [(p.id, parts[p.id]) for p in complete], deadline=now + self._payment
        )
        unmoved = [p.id for p in complete if p.id not in moved]
        ended = await store.ended_bookings(connection, unmoved) if unmoved else {}
        back = [(p, parts[p.id]) for p in placings if p.id in ended or p in incomplete]
        if back:
            await self._conversion.release_tickets(connection, back)
            await store.end(connection, [(p.id, "taken") for p in incomplete], State.FAILED, now=now)
            # Their claims stand in the store; the message that an expiry sends has them given back.
            await store.write_outbox(connection, [_give_back(p, given) for p, given in back], now=now)
            self._relay.wake()

    async def _fail(self, placing: order_store.Placing, code: str) -> None:
        """The store did not convert: the booking ends, and nothing of it is left there."""
        async with self._database.acquire() as connection, connection.transaction():
            await store.end(connection, [(placing.id, code)], State.FAILED, now=self._clock())

    async def _exists(self, booking: str) -> bool:
        async with self._database.acquire() as connection:
            return bool(await store.bookings_of(connection, [UUID(booking)]))

    async def _booking(self, id: UUID) -> Booking:
        async with self._database.acquire() as connection:
            [booking] = await store.bookings_of(connection, [id])
        return booking


def _unless_failed(booking: Booking) -> Booking:
    if booking.state is State.FAILED:
        raise Problem(409, booking.reason, REFUSED_FINALLY)
    return booking


def _placing(cart: Cart, sale: Sale, buyer: UUID, key: str, request_hash: bytes) -> order_store.Placing:
    held = rules.held_by_place(cart)
    return order_store.Placing(
        id=UUID(cart.booking),
        event_id=cart.event,
        lane=sale.lane,
        buyer=buyer,
        request=Request(quantity=cart.quantity, pool=cart.pool, held=held),
        idempotency_key=key,
        request_hash=request_hash,
        seats_max=sale.limit_of(cart.pool),
        partition=sale.partitions[held[0].section] if cart.pool is None else sale.pools[cart.pool].partition,
        epoch=sale.epoch,
    )


def _give_back(placing: order_store.Placing, parts: Parts) -> BookingExpired:
    return BookingExpired(
        id=f"{placing.id}.expired",
        lane=placing.lane,
        event=placing.event_id,
        section=parts[0].section,
        partition=placing.partition,
        epoch=placing.epoch,
        booking=str(placing.id),
        buyer=str(placing.buyer),
        parts=parts,
        why="not-in-postgresql",
    )
