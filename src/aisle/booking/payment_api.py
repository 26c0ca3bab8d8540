"""HTTP routes of money: pay, confirm, look, refund, and the webhooks of providers.

The amount is never read from a request: it is what the booking costs. A booking of somebody else does not exist.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Request, Router, get, post
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from aisle.accounts.access import CurrentActor, actor_in
from aisle.booking import store
from aisle.booking.api import KEY, BookingView, Key, SeatName, view_of
from aisle.booking.booking import Booking, State
from aisle.booking.expire import UNPAID, cancel_rows
from aisle.booking.pay import Payer, Till
from aisle.booking.place import FindSale
from aisle.booking.refund import refund
from aisle.booking.resolve import Resolver
from aisle.errors import Problem
from aisle.hot_route import hot, parse_json, read_header
from aisle.messages import Part
from aisle.payment import store as payments
from aisle.payment.payment import Payment, PaymentState, Refund

Method = Annotated[
    str, Meta(pattern="^[A-Za-z0-9_]{3,128}$", description="The provider's token for a card, such as `card_ok`.")
]


class PaymentOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    method: Method


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    code: Annotated[str, Meta(max_length=200)] = ""


class SeatsOf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    section: Annotated[str, Meta(pattern="^[A-Za-z0-9_]{1,32}$")]
    subsection: Annotated[int, Meta(gt=0, lt=10**6)]
    seats: Annotated[tuple[SeatName, ...], Meta(min_length=1, max_length=100)]


class RefundOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The seats to be refunded; without them the whole booking."""

    seats: Annotated[tuple[SeatsOf, ...], Meta(min_length=1, max_length=100)] | None = None


class RefundView(msgspec.Struct, frozen=True):
    amount: int
    currency: str
    state: str
    why: str


class PaymentView(msgspec.Struct, frozen=True, kw_only=True):
    """`action` is what the buyer has to do next, empty if nothing: `confirm`, or what the provider's page needs.

    `held` is what the provider has, where that is not the amount; `decision` what a person decided about it.
    """

    id: UUID
    booking_id: UUID
    state: str
    amount: int
    currency: str
    provider: str
    action: str
    reason: str
    held: int | None = None
    held_currency: str | None = None
    decision: str = ""
    refunds: list[RefundView] = []


_order_decoder = msgspec.json.Decoder(PaymentOrder)
_encode = msgspec.json.Encoder().encode


class Owner(msgspec.Struct, frozen=True):
    """Whose event it is, and when it starts."""

    seller: UUID
    starts_at: datetime


@dataclass(frozen=True, slots=True)
class MoneyDesk:
    till: Till
    payer: Payer
    resolver: Resolver
    find_sale: FindSale
    find_owner: Callable[[int], Awaitable[Owner]]
    refund_hours_before: int


def money_routes(desk: MoneyDesk) -> Router:
    routes = [*_buyer_routes(desk), *_seller_routes(desk), *_webhook_routes(desk)]
    return Router("/api/v1", route_handlers=routes, tags=["payments"])


def _buyer_routes(desk: MoneyDesk) -> list[Any]:
    async def pay(scope: Any, body: bytes) -> tuple[int, bytes]:
        buyer = actor_in(scope).account_id
        key = read_header(scope, b"idempotency-key", KEY.fullmatch, f"Idempotency-Key must match {KEY.pattern}")
        asked = parse_json(body, _order_decoder)
        payment = await desk.payer.pay(scope["path_params"]["booking_id"], buyer, method=asked.method, key=key)
        return 201, _encode(_answer(payment))

    @post("/bookings/{booking_id:uuid}/payments", summary="Pay for a booking", opt=hot(pay))
    async def pay_booking(
        booking_id: FromPath[UUID], data: JSONBody[PaymentOrder], actor: CurrentActor, idempotency_key: Key
    ) -> PaymentView:
        raise AssertionError("answered by `pay`")

    @get("/bookings/{booking_id:uuid}/payments", summary="Payments and refunds of one of my bookings")
    async def list_payments(booking_id: FromPath[UUID], actor: CurrentActor) -> list[PaymentView]:
        await _own(desk, booking_id, actor.account_id)
        async with desk.till.database.acquire() as connection:
            found = await payments.of_booking(connection, booking_id, actor.account_id)
            refunds = await payments.refunds_of(connection, [payment.id for payment in found])
        return [payment_view(payment, [r for r in refunds if r.payment == payment.id]) for payment in found]

    @post(
        "/bookings/{booking_id:uuid}/payments/{payment_id:uuid}/confirm",
        status_code=200,
        summary="Go on with a payment after the step that the provider asked for",
    )
    async def confirm_payment(
        booking_id: FromPath[UUID], payment_id: FromPath[UUID], data: JSONBody[Proof], actor: CurrentActor
    ) -> PaymentView:
        async with desk.till.database.acquire() as connection:
            found = await payments.of_booking(connection, booking_id, actor.account_id)
        payment = next((payment for payment in found if payment.id == payment_id), None)
        if payment is None:
            raise Problem(404, "not_found", "no such payment")
        return _answer(await desk.payer.confirm(payment, data.code))

    @post("/bookings/{booking_id:uuid}/refund", status_code=200, summary="Give a paid booking back")
    async def refund_booking(booking_id: FromPath[UUID], actor: CurrentActor, idempotency_key: Key) -> BookingView:
        booking = await _own(desk, booking_id, actor.account_id)
        if booking.state is not State.REFUNDED:
            await _require_refundable(desk, booking)
        await refund(desk.till, booking_id, seats=None, why="refunded", key=idempotency_key, buyer=actor.account_id)
        return await _shown(desk, await _own(desk, booking_id, actor.account_id))

    return [pay_booking, list_payments, confirm_payment, refund_booking]


def _seller_routes(desk: MoneyDesk) -> list[Any]:
    @post(
        "/seller/bookings/{booking_id:uuid}/refund",
        status_code=200,
        summary="Refund a booking of my event, or some of its seats; one that is not paid is cancelled",
    )
    async def refund_for_buyer(
        booking_id: FromPath[UUID], data: JSONBody[RefundOrder], actor: CurrentActor, idempotency_key: Key
    ) -> BookingView:
        booking = await _sold_by(desk, booking_id, actor.account_id)
        if booking.state is State.PENDING_PAYMENT and data.seats is None:
            await _cancel(desk, booking)
        else:
            seats = None if data.seats is None else await _indexed(desk, booking, data.seats)
            await refund(
                desk.till, booking_id, seats=seats, why="refunded_by_seller", key=idempotency_key, by=actor.account_id
            )
        return await _shown(desk, await _sold_by(desk, booking_id, actor.account_id))

    return [refund_for_buyer]


def _webhook_routes(desk: MoneyDesk) -> list[Any]:
    @post("/payments/webhooks/{provider:str}", status_code=200, summary="Where payment providers tell what happened")
    async def webhook(provider: FromPath[str], request: Request[Any, Any, Any]) -> dict[str, bool]:
        # The signature is over the bytes as they came, so nothing may decode them before.
        headers = {name.lower(): value for name, value in request.headers.items()}
        await desk.resolver.hear(provider, await request.body(), headers)
        return {"heard": True}

    return [webhook]


def _answer(payment: Payment) -> PaymentView:
    """The payment; a decline is a refusal, so that no client takes it for a success."""
    if payment.state is PaymentState.DECLINED:
        raise Problem(402, "payment_declined", payment.reason or "the provider declined")
    return payment_view(payment)


def payment_view(payment: Payment, refunds: Sequence[Refund] = ()) -> PaymentView:
    return PaymentView(
        id=payment.id,
        booking_id=payment.booking,
        state=payment.state.value,
        amount=payment.amount,
        currency=payment.currency,
        provider=payment.provider,
        action=payment.action,
        reason=payment.reason,
        held=payment.held,
        held_currency=payment.held_currency,
        decision=payment.decision,
        refunds=[RefundView(refund.amount, refund.currency, refund.state, refund.why) for refund in refunds],
    )


async def _shown(desk: MoneyDesk, booking: Booking) -> BookingView:
    return view_of(booking, await desk.find_sale(booking.event_id))


async def _own(desk: MoneyDesk, booking_id: UUID, buyer: UUID) -> Booking:
    async with desk.till.database.acquire() as connection:
        booking = await store.booking_of(connection, booking_id, buyer)
    if booking is None:
        raise Problem(404, "not_found", "no such booking")
    return booking


async def _sold_by(desk: MoneyDesk, booking_id: UUID, seller: UUID) -> Booking:
    async with desk.till.database.acquire() as connection:
        found = await store.bookings_of(connection, [booking_id])
    if not found or (await desk.find_owner(found[0].event_id)).seller != seller:
        raise Problem(404, "not_found", "no such booking")
    return found[0]


async def _require_refundable(desk: MoneyDesk, booking: Booking) -> None:
    starts_at = (await desk.find_owner(booking.event_id)).starts_at
    last = starts_at - timedelta(hours=desk.refund_hours_before)
    if desk.refund_hours_before < 0 or desk.till.clock() >= last:
        raise Problem(409, "refund_too_late", "this booking cannot be given back any more")


async def _cancel(desk: MoneyDesk, booking: Booking) -> None:
    async with desk.till.database.acquire() as connection, connection.transaction():
        why = "cancelled_by_seller"
        if not await cancel_rows(connection, [booking.id], why, UNPAID, now=desk.till.clock()):
            raise Problem(409, "not_cancellable", "this booking has just been paid or has ended")
    desk.till.relay.wake()


async def _indexed(desk: MoneyDesk, booking: Booking, named: Sequence[SeatsOf]) -> tuple[Part, ...]:
    """Names of seats as indexes; seats that do not exist are not in the booking either."""
    sale = await desk.find_sale(booking.event_id)
    parts = []
    for one in named:
        shape = sale.subsections.get((one.section, one.subsection))
        if shape is None:
            raise Problem(409, "not_in_booking", "a named seat is not one of this booking's")
        places = [tuple(map(int, name.split("-"))) for name in one.seats]
        if any(row > shape[0] or seat > shape[1] for row, seat in places):
            raise Problem(409, "not_in_booking", "a named seat is not one of this booking's")
        seats = tuple((row - 1) * shape[1] + seat - 1 for row, seat in places)
        parts.append(Part(one.section, one.subsection, seats, 0))
    return tuple(parts)
