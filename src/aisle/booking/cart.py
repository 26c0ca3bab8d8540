"""A cart: what one buyer holds of one event, at the prices of the moment it was held, until one common deadline.

Pure: each rule takes a cart and returns the next one, or raises the Problem a buyer can act on. `carts` writes the next
one only where the one before still stands. The cart says what a buyer may check out; who has a seat is said by the
claims in the store alone, so a cart that was lost costs nobody a seat.

    a hold in a cart    TAKING  written down before its seats are taken: a crash leaves a trace, never a hold too many
                        HELD    seats and prices are known
                        LEAVING its seats are being given back
"""

import hashlib
from enum import StrEnum
from uuid import UUID

import msgspec

from aisle.errors import Problem
from aisle.messages import Held, Part


class HoldState(StrEnum):
    TAKING = "taking"
    HELD = "held"
    LEAVING = "leaving"


class Taking(msgspec.Struct, frozen=True):
    """Seats of one subsection, by index, with the price that was frozen when they were taken; or places of a pool."""

    section: str
    subsection: int
    seats: tuple[int, ...]
    price: int
    taken_ms: int
    places: int = 0

    @property
    def count(self) -> int:
        return len(self.seats) + self.places

    @property
    def part(self) -> Part:
        return Part(self.section, self.subsection, self.seats, self.price)


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """`asked` is the hash of the request, so that a key used for another one is noticed; `place` is where, if said."""

    id: str
    asked: str
    state: HoldState
    quantity: int
    place: tuple[str, int] | None = None
    takings: tuple[Taking, ...] = ()


class Cart(msgspec.Struct, frozen=True, kw_only=True):
    """Times are the store's, in ms. `booking` is set while the cart is being checked out: then it does not change.

    A booking counts against one limit, so a cart holds seats of the hall, or places of one `pool`.
    """

    event: int
    pool: str | None = None
    deadline_ms: int
    extendable_until_ms: int
    holds: tuple[Hold, ...] = ()
    extended_by: str = ""
    booking: str = ""
    booking_key: str = ""

    @property
    def held(self) -> tuple[Hold, ...]:
        return tuple(hold for hold in self.holds if hold.state is HoldState.HELD)

    @property
    def quantity(self) -> int:
        return sum(hold.quantity for hold in self.holds)

    def find(self, id: str) -> Hold | None:
        return next((hold for hold in self.holds if hold.id == id), None)

    def is_over(self, now_ms: int) -> bool:
        return now_ms >= self.deadline_ms


def hold_id(buyer: UUID, key: str) -> str:
    """The hold of a buyer's Idempotency-Key: a request that is repeated anywhere finds its own hold again."""
    return hashlib.blake2b(f"{buyer}:{key}".encode(), digest_size=16).hexdigest()


def begin(
    cart: Cart | None,
    hold: Hold,
    *,
    event: int,
    pool: str | None = None,
    hold_ms: int,
    hold_ms_max: int,
    seats_max: int,
    now_ms: int,
) -> Cart:
    """The cart with a hold that is about to be taken. A cart that is over is replaced by a new one."""
    if cart is None or cart.is_over(now_ms):
        cart = Cart(event=event, pool=pool, deadline_ms=now_ms + hold_ms, extendable_until_ms=now_ms + hold_ms_max)
    _check_open(cart)
    if cart.event != event:
        raise Problem(409, "other_event", "the cart holds seats of another event: check it out or empty it first")
    if cart.pool != pool:
        raise Problem(409, "other_pool", "a cart holds seats, or places of one pool: check it out or empty it first")
    known = cart.find(hold.id)
    if known is not None:
        if known.asked != hold.asked:
            raise Problem(422, "key_reused", "this Idempotency-Key was used for another request")
        if known.state is HoldState.LEAVING:
            raise Problem(409, "expired", "the hold of this Idempotency-Key has ended")
        return cart
    if cart.quantity + hold.quantity > seats_max:
        raise Problem(409, "limit", f"a cart becomes one booking, and a booking has at most {seats_max} seats")
    return msgspec.structs.replace(cart, holds=(*cart.holds, hold))


def finish(cart: Cart | None, hold: Hold, *, now_ms: int) -> Cart:
    """The cart with a hold whose seats are taken now. Refused if the cart was emptied or checked out meanwhile."""
    known = cart.find(hold.id) if cart is not None else None
    if cart is None or cart.is_over(now_ms) or known is None or known.state is HoldState.LEAVING:
        raise Problem(409, "expired", "the cart was emptied, or its time ran out, while the seats were being held")
    _check_open(cart)
    prices = {taking.price for one in (*cart.held, hold) for taking in one.takings}
    if cart.pool is not None and len(prices) > 1:
        raise Problem(409, "price_changed", "the price has changed since the first of these places was held")
    return _with(cart, hold)


def drop(cart: Cart | None, ids: frozenset[str], state: HoldState) -> Cart | None:
    """The cart without these holds, where they are in this state; nothing is left of a cart without holds."""
    if cart is None:
        return None
    left = tuple(hold for hold in cart.holds if hold.id not in ids or hold.state is not state)
    return msgspec.structs.replace(cart, holds=left) if left else None


def leave(cart: Cart | None, ids: frozenset[str] | None) -> Cart | None:
    """The cart whose holds (None: all) are on their way out: they cannot be checked out any more."""
    if cart is None:
        return None
    _check_open(cart)
    for hold in cart.holds:
        if ids is None or hold.id in ids:
            cart = _with(cart, msgspec.structs.replace(hold, state=HoldState.LEAVING))
    return cart


def extend(cart: Cart, *, deadline_ms: int, key: str) -> Cart:
    _check_open(cart)
    return msgspec.structs.replace(cart, deadline_ms=deadline_ms, extended_by=key)


def check_out(cart: Cart | None, *, booking: UUID, key: str, instead_of: str, now_ms: int) -> Cart:
    """The cart as it is booked: only what is held, and closed to changes. `instead_of` is a checkout that died."""
    if cart is None:
        raise Problem(409, "cart_empty", "there is nothing in the cart")
    if cart.booking and (cart.booking_key == key or cart.booking != instead_of):
        return cart
    if cart.is_over(now_ms):
        raise Problem(409, "expired", "the time of this cart has run out; its seats are on sale again")
    if not cart.held:
        raise Problem(409, "cart_empty", "nothing in the cart is held yet")
    return msgspec.structs.replace(cart, holds=cart.held, booking=str(booking), booking_key=key)


def reopen(cart: Cart | None, booking: str) -> Cart | None:
    """The cart after a checkout that was refused before anything had happened."""
    if cart is None or cart.booking != booking:
        return cart
    return msgspec.structs.replace(cart, booking="", booking_key="")


def close(cart: Cart | None, booking: str) -> Cart | None:
    """What is left of a cart that became a booking: nothing."""
    return None if cart is not None and cart.booking == booking else cart


def held_by_place(cart: Cart) -> tuple[Held, ...]:
    """The cart's holds by subsection, each with its seats by price: what one booking is made of, in a fixed order."""
    by_place: dict[tuple[str, int], list[tuple[str, Taking]]] = {}
    for hold in cart.held:
        for taking in hold.takings:
            by_place.setdefault((taking.section, taking.subsection), []).append((hold.id, taking))
    held = []
    for (section, subsection), found in sorted(by_place.items()):
        by_price: dict[int, list[int]] = {}
        for _, taking in found:
            by_price.setdefault(taking.price, []).extend(taking.seats)
        parts = [Part(section, subsection, tuple(sorted(seats)), price) for price, seats in sorted(by_price.items())]
        places = sum(taking.places for _, taking in found)
        ids = tuple(dict.fromkeys(id for id, _ in found))
        held.append(Held(section, subsection, ids, tuple(parts), places))
    return tuple(held)


def _check_open(cart: Cart) -> None:
    if cart.booking:
        raise Problem(409, "checkout_under_way", "this cart is being checked out", retry_after_s=1)


def _with(cart: Cart, hold: Hold) -> Cart:
    return msgspec.structs.replace(cart, holds=tuple(hold if old.id == hold.id else old for old in cart.holds))
