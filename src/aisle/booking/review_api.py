"""HTTP routes for payments that a person decides about: operators see all of them, sellers those of their events."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
from litestar import Router, get, post
from litestar.params import FromPath, JSONBody

from aisle.accounts.access import CurrentActor
from aisle.accounts.account import Actor, Role
from aisle.booking.api import Key
from aisle.booking.pay import Till
from aisle.booking.payment_api import PaymentView, payment_view
from aisle.booking.resolve import AWAY, Resolver
from aisle.booking.review import decide
from aisle.errors import Problem
from aisle.limits import PAGE_ROWS_MAX
from aisle.once import asked
from aisle.payment import store as payments
from aisle.payment.payment import Decision, Payment, PaymentState


class ReviewOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`accept`: seats for this money, what is missing is waived and what is too much goes back. `refund`: all back."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class ReviewDesk:
    till: Till
    resolver: Resolver
    events_of: Callable[[UUID], Awaitable[list[int]]]


def review_routes(desk: ReviewDesk) -> Router:
    @get("/payments/review", summary="Payments that wait for a person's decision; a seller sees those of own events")
    async def list_reviews(actor: CurrentActor) -> list[PaymentView]:
        events = await _events(desk, actor)
        async with desk.till.database.acquire() as connection:
            return [payment_view(p) for p in await payments.in_review(connection, events, PAGE_ROWS_MAX)]

    @post(
        "/payments/{payment_id:uuid}/decision",
        status_code=200,
        summary="Decide about a payment of another amount or currency: accept it for the seats, or refund it",
    )
    async def decide_payment(
        payment_id: FromPath[UUID], data: JSONBody[ReviewOrder], actor: CurrentActor, idempotency_key: Key
    ) -> PaymentView:
        payment = await _found(desk, payment_id, actor)
        route = f"POST /payments/{payment_id}/decision"
        await decide(desk.till, payment, data.decision, asked(actor.account_id, idempotency_key, route, data))
        return payment_view(await _as_far_as_it_goes(desk, payment_id, actor))

    routes: list[Any] = [list_reviews, decide_payment]
    return Router("/api/v1", route_handlers=routes, tags=["payments"])


async def _events(desk: ReviewDesk, actor: Actor) -> list[int] | None:
    """Those whose payments this actor may see; None for all."""
    return None if actor.role is Role.OPERATOR else await desk.events_of(actor.account_id)


async def _found(desk: ReviewDesk, id: UUID, actor: Actor) -> Payment:
    events = await _events(desk, actor)
    async with desk.till.database.acquire() as connection:
        payment = await payments.find(connection, id)
    if payment is None or (events is not None and payment.event_id not in events):
        raise Problem(404, "not_found", "no such payment")
    return payment


async def _as_far_as_it_goes(desk: ReviewDesk, id: UUID, actor: Actor) -> Payment:
    """The decision stands; what cannot be done now the resolver does soon."""
    payment = await _found(desk, id, actor)
    if payment.state is PaymentState.LATE:
        with suppress(*AWAY):
            payment = await desk.resolver.resolve(payment)
    return payment
