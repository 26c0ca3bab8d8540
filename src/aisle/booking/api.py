"""HTTP routes of bookings: place, look, cancel. A booking of somebody else does not exist."""

import re
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Router, get, post
from litestar.params import FromPath, FromQuery, HeaderParameter, JSONBody, QueryParameter
from litestar.types import Scope
from msgspec import Meta

from aisle.accounts.access import CurrentActor, actor_in
from aisle.accounts.account import Actor
from aisle.booking import store
from aisle.booking.booking import Booking, Request
from aisle.booking.desk import BookingDesk
from aisle.booking.expire import cancel
from aisle.booking.place import Order, Sale
from aisle.errors import Problem
from aisle.hot_route import hot, parse_json, read_header
from aisle.limits import PAGE_ROWS_MAX
from aisle.messages import Part
from aisle.once import Key as OptionalKey
from aisle.once import asked

SeatName = Annotated[str, Meta(pattern="^[1-9][0-9]{0,4}-[1-9][0-9]{0,2}$", description="`row-seat`, such as `5-10`.")]


class SeatOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`best_available` in the hall, a section, a subsection or a pool; `manual`: the seats named, in one subsection."""

    mode: Annotated[str, Meta(pattern="^(best_available|manual)$")] = "best_available"
    quantity: Annotated[int, Meta(ge=1, le=1000)] | None = None
    section: Annotated[str, Meta(pattern="^[A-Za-z0-9_]{1,32}$")] | None = None
    subsection: Annotated[int, Meta(gt=0, lt=10**6)] | None = None
    seats: Annotated[tuple[SeatName, ...], Meta(min_length=1, max_length=100)] | None = None
    accessible: Annotated[int, Meta(ge=0, le=100)] = 0
    allow_partial: bool = False
    pool: Annotated[str, Meta(pattern="^[A-Za-z0-9_]{1,32}$")] | None = None


class BookingOrder(SeatOrder, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seats or places of an event."""

    event_id: Annotated[int, Meta(ge=1, le=2**63 - 1)]


class BookedSeats(msgspec.Struct, frozen=True):
    """Seats of one subsection. Subsection 0 is a pool: its places are counted and have no names."""

    section: str
    subsection: int
    seats: list[str]
    price: int
    places: int


class BookingView(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    event_id: int
    state: str
    quantity: int
    seats: list[BookedSeats]
    total: int
    currency: str
    reason: str
    placed_at: datetime
    pay_before: datetime | None
    ended_at: datetime | None


class BookingPage(msgspec.Struct, frozen=True):
    items: list[BookingView]
    next: UUID | None


KEY = re.compile("[A-Za-z0-9_-]{8,64}")
Key = Annotated[str, HeaderParameter(name="Idempotency-Key", min_length=8, max_length=64, pattern="^[A-Za-z0-9_-]+$")]

_order_decoder = msgspec.json.Decoder(BookingOrder)
_encode = msgspec.json.Encoder().encode


def booking_routes(desk: BookingDesk) -> Router:
    async def place(scope: Scope, body: bytes) -> tuple[int, bytes]:
        actor = actor_in(scope)
        key = read_header(scope, b"idempotency-key", KEY.fullmatch, f"Idempotency-Key must match {KEY.pattern}")
        asked = parse_json(body, _order_decoder)
        sale = await desk.find_sale(asked.event_id)
        order = Order(sale=sale, request=request_of(asked, sale), buyer=actor.account_id, idempotency_key=key)
        return 202, _encode(view_of(await desk.placer.place(order), sale))

    def is_full() -> bool:
        return desk.placer.is_full()

    @post(
        "/bookings",
        status_code=202,
        summary="Book seats: the best available, or named ones",
        opt=hot(place, is_full),
    )
    async def place_booking(data: JSONBody[BookingOrder], actor: CurrentActor, idempotency_key: Key) -> BookingView:
        raise AssertionError("answered by `place`")

    @get("/bookings", summary="My bookings, newest first")
    async def list_bookings(
        actor: CurrentActor,
        before: FromQuery[UUID | None] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=PAGE_ROWS_MAX)] = 20,
    ) -> BookingPage:
        async with desk.database.acquire() as connection:
            found = await store.history(connection, actor.account_id, before=before, limit=limit)
        views = [view_of(booking, await desk.find_sale(booking.event_id)) for booking in found]
        return BookingPage(views, found[-1].id if len(found) == limit else None)

    @get("/bookings/{booking_id:uuid}", summary="One of my bookings")
    async def show_booking(booking_id: FromPath[UUID], actor: CurrentActor) -> BookingView:
        return await _shown(desk, booking_id, actor)

    @post("/bookings/{booking_id:uuid}/cancel", status_code=200, summary="Let a booking go before it is paid")
    async def cancel_booking(
        booking_id: FromPath[UUID], actor: CurrentActor, idempotency_key: OptionalKey = None
    ) -> BookingView:
        request = asked(actor.account_id, idempotency_key, f"POST /bookings/{booking_id}/cancel")
        await cancel(desk.database, booking_id, request, now=desk.clock())
        desk.relay.wake()
        return await _shown(desk, booking_id, actor)

    routes: list[Any] = [place_booking, list_bookings, show_booking, cancel_booking]
    return Router("/api/v1", route_handlers=routes, tags=["bookings"])


async def _shown(desk: BookingDesk, booking_id: UUID, actor: Actor) -> BookingView:
    async with desk.database.acquire() as connection:
        booking = await store.booking_of(connection, booking_id, actor.account_id)
    if booking is None:
        raise Problem(404, "not_found", "no such booking")
    return view_of(booking, await desk.find_sale(booking.event_id))


def request_of(order: SeatOrder, sale: Sale) -> Request:
    """The order with its seats as indexes; what contradicts itself is refused."""
    if order.subsection is not None and order.section is None:
        raise Problem(422, "bad_order", "a subsection needs its section")
    if order.pool is not None:
        return _places(order)
    if order.mode == "best_available":
        if order.quantity is None or order.seats is not None:
            raise Problem(422, "bad_order", "best_available takes a quantity and no seats")
        return Request(
            quantity=order.quantity,
            section=order.section,
            subsection=order.subsection,
            accessible=order.accessible,
            allow_partial=order.allow_partial,
        )
    if order.seats is None or order.subsection is None:
        raise Problem(422, "bad_order", "manual takes section, subsection and the seats")
    if len(set(order.seats)) != len(order.seats) or order.quantity not in (None, len(order.seats)):
        raise Problem(422, "bad_order", "a seat is named twice, or the quantity is not that of the seats")
    shape = sale.subsections.get((order.section or "", order.subsection))
    if shape is None:
        raise Problem(404, "unknown_section", f"there is no subsection {order.section}-{order.subsection}")
    return Request(
        quantity=len(order.seats),
        section=order.section,
        subsection=order.subsection,
        seats=tuple(sorted(_index(name, *shape) for name in order.seats)),
        accessible=order.accessible,
        allow_partial=order.allow_partial,
    )


def _places(order: SeatOrder) -> Request:
    if order.mode != "best_available" or order.quantity is None or order.accessible:
        raise Problem(422, "bad_order", "a pool takes best_available and a quantity")
    if order.section is not None or order.seats is not None:
        raise Problem(422, "bad_order", "a pool has no sections and no seats")
    return Request(quantity=order.quantity, pool=order.pool, allow_partial=order.allow_partial)


def _index(name: str, rows: int, seats_per_row: int) -> int:
    row, seat = map(int, name.split("-"))
    if row > rows or seat > seats_per_row:
        raise Problem(404, "unknown_seat", f"there is no seat {name} in {rows} rows of {seats_per_row}")
    return (row - 1) * seats_per_row + seat - 1


def seat_names(part: Part, sale: Sale) -> list[str]:
    _, width = sale.subsections[part.section, part.subsection]
    return [f"{seat // width + 1}-{seat % width + 1}" for seat in part.seats]


def view_of(booking: Booking, sale: Sale) -> BookingView:
    return BookingView(
        id=booking.id,
        event_id=booking.event_id,
        state=booking.state.value,
        quantity=booking.quantity,
        seats=[
            BookedSeats(p.section, p.subsection, [] if p.in_pool else seat_names(p, sale), p.price, len(p.seats))
            for p in booking.parts
        ],
        total=booking.total,
        currency=sale.currency,
        reason=booking.reason,
        placed_at=booking.placed_at,
        pay_before=booking.deadline,
        ended_at=booking.ended_at,
    )
