"""Money that came after its seats were let go: the same seats if they are free, else as good ones, else the money back.

Exactly one of them, whoever crashes and however many resolvers try. The seats of a try are written down before they are
taken, under an id made from payment and try, so that a try which was cut off is carried on and never leaves seats
behind. A booking that has ended stays ended: the buyer gets a new one, PAID, and sees both.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Protocol
from uuid import UUID, uuid5

import asyncpg
import msgspec
import structlog

from aisle.booking import order_store, store
from aisle.booking.booking import Request, State
from aisle.booking.pay import Payer, Till
from aisle.booking.payment_moves import book_as_taken, owe_back
from aisle.booking.place import FindSale, Sale
from aisle.crash_points import crash_point
from aisle.errors import Problem
from aisle.limits import LATE_MONEY_SECONDS_MAX, LATE_MONEY_TRIES_MAX
from aisle.messages import Part
from aisle.payment import ledger
from aisle.payment import store as payments
from aisle.payment.payment import Decision, Payment, PaymentState
from aisle.payment.provider import Answer, Verdict

log = structlog.get_logger()


class SeatsAgain(Protocol):
    """Seats in the hot store, as this verb needs them; put together by the composition root."""

    async def as_good(self, event: int, parts: Sequence[Part]) -> tuple[Part, ...] | None:
        """Free seats side by side, equal or better, of the same price as these; None if there are none now."""

    async def take(self, event: int, booking: UUID, buyer: UUID, parts: Sequence[Part]) -> bool:
        """All of them for this booking, or none. Repeating is safe. Raises if the store cannot be asked."""

    async def give_back(self, event: int, booking: UUID, buyer: UUID, parts: Sequence[Part]) -> None: ...


# Why a booking ended whose buyer still wants the seats. Who cancelled, or paid with another card, wants the money back.
STILL_WANTED = ("expired", "payment_timeout", "taken")

# AVAILABLE -> SOLD for a booking (a row as `store.lock` gives it); false, and nothing changed, if one is not free.
SellFree = Callable[[asyncpg.Connection, asyncpg.Record], Awaitable[bool]]
# (event, booking, parts) -> the parts with tickets of their own where they are places of a pool; None if there are too
# few. Inside the caller's transaction; the tickets are chosen, not taken.
Number = Callable[[asyncpg.Connection, int, UUID, Sequence[Part]], Awaitable[tuple[Part, ...] | None]]


class _NotSeated(Exception):
    """Rolls the transaction back."""


class LateMoney:
    def __init__(
        self,
        till: Till,
        payer: Payer,
        seats: SeatsAgain,
        find_sale: FindSale,
        *,
        number: Number,
        sell_free: SellFree,
    ) -> None:
        self._till = till
        self._payer = payer
        self._seats = seats
        self._number = number
        self._sell_free = sell_free
        self._find_sale = find_sale

    async def settle(self, payment: Payment) -> None:
        """Bring a LATE payment to its end. Safe to repeat, from wherever an earlier run got to."""
        answer = await self._look(payment)
        if answer.verdict not in (Verdict.AUTHORISED, Verdict.CAPTURED) or payment.decision == Decision.REFUND:
            return await self._return_money(payment, answer)
        if await self._revive(payment):
            self._till.count_late_money("same_booking")
            await self._payer.capture(payment, answer)
            return None
        while not self._is_too_late(payment):
            parts = await self._next_try(payment)
            if parts is None:
                break
            payment = await self._payer.reread(payment)
            crash_point("after_late_plan")
            if payment.state is not PaymentState.LATE:
                return None
            seated = await self._seat(payment, parts)
            if seated is not None:
                crash_point("after_late_seats")
                await self._payer.capture(seated, answer)
                return None
        return await self._return_money(await self._payer.reread(payment), answer)

    async def _look(self, payment: Payment) -> Answer:
        if payment.taken:
            return Answer(verdict=Verdict.CAPTURED, reference=payment.reference)
        provider = self._till.providers[payment.provider]
        looked = provider.look(payment.id, payment.reference, payment.started_at)
        return await self._till.ask(payment.provider, "look", looked)

    async def _revive(self, payment: Payment) -> bool:
        """The booking may still wait for money: a provider that said no has changed its mind."""
        try:
            async with self._till.database.acquire() as connection, connection.transaction():
                return await self._sell_waiting(connection, payment)
        except (_NotSeated, asyncpg.UniqueViolationError):
            return False

    async def _sell_waiting(self, connection: asyncpg.Connection, payment: Payment) -> bool:
        now = self._till.clock()
        row = (await store.lock(connection, [payment.booking])).get(payment.booking)
        if row is None or row["state"] != State.PENDING_PAYMENT or row["deadline"] <= now:
            return False
        await store.move(connection, [payment.booking], State.PAYING)
        sold = await self._till.sell(connection, [row])
        if not sold or not await payments.move(connection, [(payment.id, "")], PaymentState.AUTHORISED, now=now):
            raise _NotSeated
        return True

    def _is_too_late(self, payment: Payment) -> bool:
        late_for = self._till.clock() - (payment.late_at or self._till.clock())
        return payment.tries > LATE_MONEY_TRIES_MAX or late_for > timedelta(seconds=LATE_MONEY_SECONDS_MAX)

    async def _next_try(self, payment: Payment) -> Sequence[Part] | None:
        """The seats of the try under way, or of a new one, written down before anybody takes them."""
        current = await self._payer.reread(payment)
        if current.seats_again is not None:
            return current.seats_again
        async with self._till.database.acquire() as connection:
            [booking] = await store.bookings_of(connection, [payment.booking])
        if booking.state is not State.CANCELLED or booking.reason not in STILL_WANTED:
            return None
        again = booking.parts if current.tries == 0 else await self._seats.as_good(payment.event_id, booking.parts)
        if again is None:
            return None
        async with self._till.database.acquire() as connection:
            planned = await payments.plan_seats_again(connection, payment.id, current.tries + 1, again)
        return again if planned else (await self._payer.reread(payment)).seats_again

    async def _seat(self, payment: Payment, parts: Sequence[Part]) -> Payment | None:
        """Take the seats of a try in the store, then in PostgreSQL; None, with nothing taken, if they are gone."""
        id = uuid5(payment.id, str(payment.tries))
        sale = await self._find_sale(payment.event_id)
        taken = await self._seats.take(payment.event_id, id, payment.buyer, parts)
        if taken:
            crash_point("after_late_claim")
            seated = await self._seat_in_database(payment, id, parts, sale)
            if seated is not None:
                return seated
            await self._seats.give_back(payment.event_id, id, payment.buyer, parts)
        async with self._till.database.acquire() as connection:
            await payments.end_try(connection, payment.id, payment.tries)
        return None

    async def _seat_in_database(self, payment: Payment, id: UUID, parts: Sequence[Part], sale: Sale) -> Payment | None:
        try:
            async with self._till.database.acquire() as connection, connection.transaction():
                seated = await self._sell_again(connection, payment, id, parts, sale)
        except _NotSeated:
            return None
        self._till.count_late_money("same_seats" if payment.tries == 1 else "as_good_seats")
        log.info("late_money_seated", payment=str(payment.id), booking=str(id), tries=payment.tries)
        return seated

    async def _sell_again(
        self, connection: asyncpg.Connection, payment: Payment, id: UUID, parts: Sequence[Part], sale: Sale
    ) -> Payment:
        """A new booking for the buyer with these seats, within the same limits as any other, and sold."""
        now = self._till.clock()
        old = (await store.lock(connection, [payment.booking]))[payment.booking]
        current = (await payments.lock(connection, [payment.id]))[payment.id]
        if current.booking == id:
            return current  # another resolver was faster with the same try
        if current.state is not PaymentState.LATE or current.tries != payment.tries:
            raise _NotSeated
        if old["reason"] not in STILL_WANTED:
            raise _NotSeated  # other money for the same booking was faster
        [placed] = await order_store.place(connection, [_placing(payment, id, parts, sale)], now=now)
        given = await self._number(connection, payment.event_id, id, parts) if placed.new else None
        if given is None:
            raise _NotSeated
        await store.to_pending_payment(connection, [(id, given)], deadline=now)
        await store.move(connection, [id], State.PAYING)
        if not await self._sell_free(connection, (await store.lock(connection, [id]))[id]):
            raise _NotSeated
        await payments.seat_again(connection, payment.id, id)
        await payments.move(connection, [(payment.id, "")], PaymentState.AUTHORISED, now=now)
        await store.say_why(connection, [(payment.booking, "paid_late_moved"), (id, "paid_late")])
        return msgspec.structs.replace(current, booking=id, state=PaymentState.AUTHORISED)

    async def _return_money(self, payment: Payment, answer: Answer) -> None:
        """No seats for it: the promise is given back, or the money is."""
        if answer.verdict is Verdict.AUTHORISED:
            provider = self._till.providers[payment.provider]
            voided = provider.void(payment.id, answer.reference or payment.reference)
            answer = await self._till.ask(payment.provider, "void", voided)
        now = self._till.clock()
        async with self._till.database.acquire() as connection, connection.transaction():
            row = (await store.lock(connection, [payment.booking]))[payment.booking]
            current = (await payments.lock(connection, [payment.id]))[payment.id]
            if current.state is not PaymentState.LATE:
                return
            if answer.verdict is Verdict.CAPTURED:
                await book_as_taken(connection, current, current.money[0], now=now)
                await owe_back(
                    connection, current, current.money[0], key=f"late:{current.id}", why="paid_late", parts=(),
                    from_account=ledger.SUSPENSE, now=now,
                )  # fmt: skip
                await payments.move(connection, [(payment.id, "")], PaymentState.RETURNED, now=now)
            elif answer.verdict in (Verdict.AUTHORISED, Verdict.PENDING, Verdict.ACTION):
                raise Problem(503, "provider_undecided", "the provider keeps the promise", retry_after_s=5)
            else:
                await payments.move(connection, [(payment.id, "")], PaymentState.VOIDED, now=now)
            if row["state"] == State.CANCELLED:  # one that lives on with another card has nothing to explain
                await store.say_why(connection, [(payment.booking, "paid_late_returned")])
        taken = answer.verdict is Verdict.CAPTURED
        self._till.count_late_money("returned" if taken else "voided")
        log.info("late_money_returned", payment=str(payment.id), taken=taken)


def _placing(payment: Payment, id: UUID, parts: Sequence[Part], sale: Sale) -> order_store.Placing:
    pool = parts[0].section if parts[0].in_pool else None
    return order_store.Placing(
        id=id,
        event_id=payment.event_id,
        lane=sale.lane,
        buyer=payment.buyer,
        request=Request(quantity=sum(len(part.seats) for part in parts), pool=pool),
        idempotency_key=f"late-{id}",
        request_hash=b"late",
        seats_max=sale.limit_of(pool),
        partition=sale.partitions[parts[0].section] if pool is None else sale.pools[pool].partition,
        epoch=sale.epoch,
    )
