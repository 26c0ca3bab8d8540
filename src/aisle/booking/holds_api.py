"""HTTP routes of holds and the cart. A hold of somebody else does not exist; a cart is always one's own."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from litestar import Router, delete, get, post
from litestar.params import FromPath, JSONBody

from aisle.accounts.access import CurrentActor
from aisle.booking.api import BookedSeats, BookingOrder, BookingView, Key, SeatOrder, request_of, seat_names, view_of
from aisle.booking.cart import Cart, Hold
from aisle.booking.desk import BookingDesk
from aisle.booking.place import Sale
from aisle.errors import Problem


class CheckoutOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`order`: seats to be taken without a hold before; they join whatever the cart holds of the same event."""

    order: BookingOrder | None = None


class HoldView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    event_id: int
    state: str
    seats: list[BookedSeats]
    total: int
    currency: str
    expires_at: datetime
    extendable_until: datetime


class CartView(msgspec.Struct, frozen=True, kw_only=True):
    """`booking_id` is there while the cart is being checked out. Nothing in the cart: no event, no deadline."""

    event_id: int | None = None
    holds: list[HoldView] = []
    total: int = 0
    currency: str = ""
    expires_at: datetime | None = None
    extendable_until: datetime | None = None
    booking_id: UUID | None = None


def hold_routes(desk: BookingDesk) -> Router:
    return Router("/api/v1", route_handlers=[*_holds(desk), *_cart(desk)], tags=["holds"])


def _holds(desk: BookingDesk) -> list[Any]:
    @post("/events/{event_id:int}/holds", summary="Hold seats for a while: at once, or the reason why not")
    async def hold_seats(
        event_id: FromPath[int], data: JSONBody[SeatOrder], actor: CurrentActor, idempotency_key: Key
    ) -> HoldView:
        sale = await desk.find_sale(event_id)
        await desk.allow_hold(actor.account_id)
        cart, hold = await desk.holder.hold(event_id, request_of(data, sale), actor.account_id, idempotency_key)
        return hold_view(cart, hold, sale)

    @post("/events/{event_id:int}/holds/{hold_id:str}/extend", status_code=200, summary="More time for the cart")
    async def extend_hold(
        event_id: FromPath[int], hold_id: FromPath[str], actor: CurrentActor, idempotency_key: Key
    ) -> CartView:
        cart = await desk.holder.extend(event_id, hold_id, actor.account_id, idempotency_key)
        return cart_view(cart, await desk.find_sale(event_id))

    @delete("/events/{event_id:int}/holds/{hold_id:str}", summary="Give held seats back")
    async def release_hold(event_id: FromPath[int], hold_id: FromPath[str], actor: CurrentActor) -> None:
        await desk.holder.release(event_id, hold_id, actor.account_id)

    return [hold_seats, extend_hold, release_hold]


def _cart(desk: BookingDesk) -> list[Any]:
    @get("/cart", summary="What I hold, at the prices of the moment I held it")
    async def show_cart(actor: CurrentActor) -> CartView:
        cart = await desk.holder.cart(actor.account_id)
        return cart_view(cart, await desk.find_sale(cart.event)) if cart is not None else CartView()

    @delete("/cart", summary="Give back all I hold")
    async def empty_cart(actor: CurrentActor) -> None:
        await desk.holder.release_all(actor.account_id)

    @post("/cart/checkout", summary="Turn the cart into a booking to be paid, or take seats without a hold before")
    async def check_out(
        actor: CurrentActor, idempotency_key: Key, data: JSONBody[CheckoutOrder | None] = None
    ) -> BookingView:
        asked = b""
        if data is not None and data.order is not None:
            asked = msgspec.json.encode(data.order)
            if not await desk.checkout.is_known(actor.account_id, idempotency_key):
                sale = await desk.find_sale(data.order.event_id)
                request = request_of(data.order, sale)
                try:
                    await desk.holder.hold(data.order.event_id, request, actor.account_id, idempotency_key)
                except Problem:
                    # Unless a twin of this request has held and booked the seats meanwhile.
                    if not await desk.checkout.is_known(actor.account_id, idempotency_key):
                        raise
        booking = await desk.checkout.check_out(actor.account_id, idempotency_key, asked)
        return view_of(booking, await desk.find_sale(booking.event_id))

    return [show_cart, empty_cart, check_out]


def hold_view(cart: Cart, hold: Hold, sale: Sale) -> HoldView:
    return HoldView(
        id=hold.id,
        event_id=cart.event,
        state=hold.state.value,
        seats=[
            BookedSeats(t.section, t.subsection, seat_names(t.part, sale) if t.seats else [], t.price, t.count)
            for t in hold.takings
        ],
        total=sum(taking.price * taking.count for taking in hold.takings),
        currency=sale.currency,
        expires_at=_moment(cart.deadline_ms),
        extendable_until=_moment(cart.extendable_until_ms),
    )


def cart_view(cart: Cart, sale: Sale) -> CartView:
    holds = [hold_view(cart, hold, sale) for hold in cart.held]
    return CartView(
        event_id=cart.event,
        holds=holds,
        total=sum(hold.total for hold in holds),
        currency=sale.currency,
        expires_at=_moment(cart.deadline_ms),
        extendable_until=_moment(cart.extendable_until_ms),
        booking_id=UUID(cart.booking) if cart.booking else None,
    )


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
