"""Hold seats for a buyer who is still choosing, extend the time, give them back. The interactive path: answers at once.

The cart is written before seats are taken and after they are given back, so that a crash in between leaves something in
the cart that a repeat finishes, or nothing at all: seats that no cart knows run out with their deadline, by the store's
own sweep. Nothing here touches PostgreSQL but one look at what the buyer has bought already.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import asyncpg
import msgspec

from aisle.booking import cart as rules
from aisle.booking import order_store, store
from aisle.booking.booking import Request, State
from aisle.booking.cart import Cart, Hold, HoldState, Taking, hold_id
from aisle.booking.carts import TRIES_MAX, CartBusy, Carts
from aisle.booking.place import FindSale, Sale, check_order
from aisle.crash_points import crash_point
from aisle.errors import Problem
from aisle.messages import POOL


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Seats that are to be held under an id, by an owner, until a moment of the store's clock."""

    id: str
    owner: str
    event: int
    epoch: int
    request: Request
    until_ms: int


class Seated(msgspec.Struct, frozen=True):
    """What became of it: seats, all or none; or the reason, with the seats in the way where seats were named."""

    code: str
    takings: tuple[Taking, ...] = ()
    deadline_ms: int = 0
    in_the_way: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SeatHolds:
    """What this slice asks of the store's holds. Each is safe to repeat."""

    take: Callable[[Wanted], Awaitable[Seated]]
    # (wanted, its seats) -> code: the hold lasts until exactly `until_ms`
    extend: Callable[[Wanted, Sequence[Taking]], Awaitable[str]]
    # (wanted, where: (section, subsection), empty if it is not known) -> code
    release: Callable[[Wanted, Sequence[tuple[str, int]]], Awaitable[str]]


class Holder:
    def __init__(
        self,
        database: asyncpg.Pool,
        carts: Carts,
        seats: SeatHolds,
        find_sale: FindSale,
        *,
        hold: timedelta,
        hold_max: timedelta,
    ) -> None:
        self._database = database
        self._carts = carts
        self._seats = seats
        self._find_sale = find_sale
        self._hold_ms = hold // timedelta(milliseconds=1)
        self._hold_ms_max = hold_max // timedelta(milliseconds=1)

    async def cart(self, buyer: UUID) -> Cart | None:
        """What the buyer has in the cart now; None if it is empty, over, or has become a booking."""
        cart, now_ms = await self._carts.read(buyer)
        booking = cart.booking if cart is not None else ""
        if booking and await self._is_booked(booking):
            cart = await self._carts.change(buyer, lambda c, _: rules.close(c, booking))
        return None if cart is None or cart.is_over(now_ms) else cart

    async def hold(self, event: int, request: Request, buyer: UUID, key: str) -> tuple[Cart, Hold]:
        """The seats, held now or by an earlier request with the same key. Raises a Problem if they cannot be."""
        sale = await self._find_sale(event)
        check_order(request, sale)
        asked = Hold(
            id=hold_id(buyer, key),
            asked=hashlib.blake2b(msgspec.json.encode((event, request)), digest_size=16).hexdigest(),
            state=HoldState.TAKING,
            quantity=request.quantity,
            place=_where(request),
        )
        before = await self.cart(buyer)
        if before is None or before.find(asked.id) is None:
            same = before is not None and (before.event, before.pool) == (event, request.pool)
            in_cart = before.quantity if before is not None and same else 0
            await self._check_limit(sale, request, buyer, request.quantity + in_cart)
        cart = await self._carts.change(buyer, lambda c, now: self._begin(c, asked, sale, request.pool, now))
        assert cart is not None
        known = cart.find(asked.id)
        if known is not None and known.state is HoldState.HELD:
            return cart, known
        crash_point("after_hold_noted")
        return await self._take(cart, asked, sale, request, buyer)

    async def extend(self, event: int, hold: str, buyer: UUID, key: str) -> Cart:
        """More time for the whole cart, which has one deadline, up to the cap counted from its first hold."""
        sale = await self._find_sale(event)
        if not sale.on_sale:
            raise Problem(409, "sale_not_open", "this event is not on sale")
        for _ in range(TRIES_MAX):
            cart, now_ms = await self._carts.read(buyer)
            cart = _own(cart, event, hold)
            if cart.is_over(now_ms):
                raise Problem(409, "expired", "the time of this cart has run out; its seats are on sale again")
            if cart.extended_by == key:
                return cart
            if cart.deadline_ms >= cart.extendable_until_ms:
                raise Problem(409, "limit", "a cart cannot be extended beyond its longest time")
            until_ms = min(now_ms + self._hold_ms, cart.extendable_until_ms)
            if until_ms <= cart.deadline_ms:
                return cart  # extended in this very millisecond
            await self._extend_holds(cart, sale, buyer, until_ms)
            crash_point("after_holds_extended")
            extended = rules.extend(cart, deadline_ms=until_ms, key=key)
            # A hold that came into the cart meanwhile has the old deadline: then all of it once more.
            if await self._carts.swap(buyer, cart, extended, now_ms):
                return extended
        raise CartBusy

    async def release(self, event: int, hold: str, buyer: UUID) -> None:
        cart, _ = await self._carts.read(buyer)
        _own(cart, event, hold)
        await self._release(buyer, frozenset({hold}))

    async def release_all(self, buyer: UUID) -> None:
        await self.cart(buyer)
        await self._release(buyer, None)

    def _begin(self, cart: Cart | None, asked: Hold, sale: Sale, pool: str | None, now_ms: int) -> Cart:
        return rules.begin(
            cart,
            asked,
            event=sale.event,
            pool=pool,
            hold_ms=self._hold_ms,
            hold_ms_max=self._hold_ms_max,
            seats_max=sale.seats_per_booking if pool is None else sale.limit_of(pool),
            now_ms=now_ms,
        )

    async def _take(self, cart: Cart, asked: Hold, sale: Sale, request: Request, buyer: UUID) -> tuple[Cart, Hold]:
        wanted = _wanted(asked.id, buyer, sale, cart.deadline_ms, request)
        seated = await self._seats.take(wanted)
        if seated.code != "ok":
            await self._carts.change(buyer, lambda c, _: rules.drop(c, frozenset({asked.id}), HoldState.TAKING))
            raise _refusal(seated, sale, request)
        crash_point("after_hold_taken")
        held = msgspec.structs.replace(
            asked,
            state=HoldState.HELD,
            takings=seated.takings,
            quantity=sum(taking.count for taking in seated.takings),
        )
        try:
            return await self._put_into_cart(held, seated.deadline_ms, wanted, buyer), held
        except Problem as refused:
            if refused.status == 409:
                await self._seats.release(wanted, _places(held))
            raise

    async def _put_into_cart(self, held: Hold, deadline_ms: int, wanted: Wanted, buyer: UUID) -> Cart:
        """The cart may have been extended while the seats were being taken: they share its deadline, whatever it is."""
        for _ in range(TRIES_MAX):
            cart, now_ms = await self._carts.read(buyer)
            known = cart.find(held.id) if cart is not None else None
            if cart is not None and known is not None and known.state is HoldState.HELD:
                return cart  # a twin of this request was faster; these seats may be on their way into a booking
            finished = rules.finish(cart, held, now_ms=now_ms)
            if finished.deadline_ms > deadline_ms:
                until = msgspec.structs.replace(wanted, until_ms=finished.deadline_ms)
                if await self._seats.extend(until, held.takings) != "ok":
                    raise Problem(409, "expired", "the seats ran out while they were being held")
                deadline_ms = finished.deadline_ms
            if await self._carts.swap(buyer, cart, finished, now_ms):
                return finished
        raise CartBusy

    async def _extend_holds(self, cart: Cart, sale: Sale, buyer: UUID, until_ms: int) -> None:
        codes = await asyncio.gather(
            *(self._seats.extend(_wanted(hold.id, buyer, sale, until_ms), hold.takings) for hold in cart.held)
        )
        for code in codes:
            if code != "ok":
                raise Problem(409, code, "the cart could not be extended")

    async def _release(self, buyer: UUID, ids: frozenset[str] | None) -> None:
        cart = await self._carts.change(buyer, lambda c, _: rules.leave(c, ids))
        leaving = [h for h in cart.holds if ids is None or h.id in ids] if cart is not None else []
        if cart is None or not leaving:
            return
        crash_point("after_hold_leaving")
        sale = await self._find_sale(cart.event)
        await asyncio.gather(*(self._seats.release(_wanted(h.id, buyer, sale, 0), _places(h)) for h in leaving))
        gone = frozenset(h.id for h in leaving)
        await self._carts.change(buyer, lambda c, _: rules.drop(c, gone, HoldState.LEAVING))

    async def _check_limit(self, sale: Sale, request: Request, buyer: UUID, seats: int) -> None:
        """A kindness, not the guard: the constraint on purchases decides at checkout."""
        async with self._database.acquire() as connection:
            bought = await order_store.count_bought(connection, sale.event, buyer, request.pool or "")
        limit = sale.limit_of(request.pool)
        if bought + seats > limit:
            raise Problem(409, "limit", f"one buyer may have {limit} {_of_what(request.pool)} at a time")

    async def _is_booked(self, booking: str) -> bool:
        async with self._database.acquire() as connection:
            found = await store.bookings_of(connection, [UUID(booking)])
        return any(booking.state is not State.PROCESSING for booking in found)


def _own(cart: Cart | None, event: int, hold: str) -> Cart:
    """A hold of somebody else is in no cart of the one who asks: it is not found."""
    if cart is None or cart.event != event or cart.find(hold) is None:
        raise Problem(404, "not_found", "no such hold")
    return cart


def _wanted(id: str, buyer: UUID, sale: Sale, until_ms: int, request: Request | None = None) -> Wanted:
    return Wanted(
        id=id,
        owner=str(buyer),
        event=sale.event,
        epoch=sale.epoch,
        request=request or Request(quantity=1),
        until_ms=until_ms,
    )


def _where(request: Request) -> tuple[str, int] | None:
    if request.pool is not None:
        return request.pool, POOL
    return (request.section, request.subsection) if request.section and request.subsection else None


def _of_what(pool: str | None) -> str:
    return f"places of {pool}" if pool is not None else "seats of this event"


def _places(hold: Hold) -> list[tuple[str, int]]:
    return [(t.section, t.subsection) for t in hold.takings] or ([hold.place] if hold.place is not None else [])


def _refusal(seated: Seated, sale: Sale, request: Request) -> Problem:
    why = {
        "taken": "a seat is taken",
        "kept": "a named seat is for people who need an accessible one",
        "sold_out": "there is no seat left",
        "full": "there is no place left",
        "no_block": "what is left does not fit this party",
        "already_holding": "a buyer may have one hold of this pool at a time",
        "limit": f"a booking may not have so many {_of_what(request.pool)}",
        "expired": "the hold of this Idempotency-Key has ended",
    }.get(seated.code, "no seats can be held here at the moment")
    if seated.code == "fenced":
        return Problem(503, "store_unverified", "the store was rebuilt a moment ago; ask again", retry_after_s=2)
    if seated.code != "taken" or request.section is None or request.subsection is None:
        return Problem(409, seated.code, why)
    width = sale.subsections[request.section, request.subsection][1]
    names = [f"{seat // width + 1}-{seat % width + 1}" for seat in seated.in_the_way]
    return Problem(409, "taken", f"{', '.join(names)}: taken", more={"seats": names})
