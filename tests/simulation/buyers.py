"""People in a history: they place, hold, check out, pay, cancel and refund, repeat what got no answer, and remember.

What a buyer was told is written down, and held against what is true in the end: an answer is a promise.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from aisle.booking.booking import Request
from aisle.booking.expire import cancel
from aisle.booking.place import Order
from aisle.booking.refund import refund
from aisle.errors import Problem
from aisle.messages import Part
from aisle.once import asked
from aisle.payment.payment import PaymentState
from tests.simulation.statements_booking import BOOKINGS

EVENT = 1
TRIES = 6
# Problems that ask for the same request again.
AGAIN = frozenset({429, 503})
CARDS = ("card_ok",) * 7 + (
    "card_declined", "card_late", "card_late", "card_timeout", "card_charge_timeout", "card_3ds", "card_capture_fails",
)  # fmt: skip


class NoAnswer(Exception):
    """The connection broke, or the process died: what was asked may or may not have happened."""


class Buyer:
    def __init__(self, history: Any, number: int, *, rush: bool = False) -> None:
        self.history, self.world, self.rush = history, history.world, rush
        self.id = UUID(int=(number << 64) | 0x8000_0000_0000_0001)
        self.name = f"buyer {number}"
        self.keys = 0
        # key -> booking that was answered, and what was promised about bookings
        self.answered: dict[str, UUID] = {}
        self.told_captured: set[UUID] = set()
        self.refunds_asked: set[UUID] = set()
        self.cancels_told: set[UUID] = set()
        self.held_until_ms = 0

    async def live(self) -> None:
        chance = self.world.chance
        await asyncio.sleep(chance.random() * (0.1 if self.rush else 10))
        for _ in range(chance.choice((1, 1, 2))):
            booking = await (
                self._place() if chance.random() < (0.3 if self.rush else 0.6) else self._hold_and_check_out()
            )
            if booking is not None:
                await self._go_on(booking)
            await asyncio.sleep(chance.random() * 15)

    async def _place(self) -> UUID | None:
        request = self._request()
        key = self._key()

        async def place(process: Any) -> UUID:
            sale = await process.find_sale(EVENT)
            order = Order(sale=sale, request=request, buyer=self.id, idempotency_key=key)
            return (await process.placer.place(order)).id

        return await self._ask_for_booking(key, f"places {_words(request)}", place)

    async def _hold_and_check_out(self) -> UUID | None:
        chance, request, key = self.world.chance, self._request(), self._key()
        held = await self._ask(f"holds {_words(request)}", lambda p: p.holder.hold(EVENT, request, self.id, key))
        for _ in range(25 if self.rush else 0):
            if held is not None:
                break
            await asyncio.sleep(chance.random() * 0.04)
            again = self._key()
            held = await self._ask("tries again", lambda p, key=again: p.holder.hold(EVENT, request, self.id, key))
        if held is None:
            return None
        hold = held[1].id
        self.held_until_ms = held[0].deadline_ms
        await asyncio.sleep(chance.choice((0, 1, 5, 12, 19, 25)) * (0.01 if self.rush else chance.random()))
        what = chance.random()
        if self.rush and what < 0.5:
            what = 1.0  # whoever got seats in a rush checks out at once
        if what < 0.15:
            self.world.note("a hold was released")
            await self._ask("releases", lambda p: p.holder.release(EVENT, hold, self.id))
            return None
        if what < 0.3:
            self.world.note("a hold was left alone")
            left_ms = self.held_until_ms - self.world.hot.now_ms()
            if chance.random() < 0.5 and left_ms > 0:
                await asyncio.sleep(left_ms / 1000 + chance.random())
                await self._ask("holds again", lambda p: p.holder.hold(EVENT, request, self.id, self._key()))
            return None
        if what < 0.5:
            extension = self._key()
            extended = await self._ask("extends", lambda p: p.holder.extend(EVENT, hold, self.id, extension))
            if extended is not None:
                self.held_until_ms = extended.deadline_ms
            await asyncio.sleep(chance.random() * 15)
        checkout = self._key()

        async def check_out(process: Any) -> UUID:
            return (await process.checkout.check_out(self.id, checkout)).id

        return await self._ask_for_booking(checkout, "checks out", check_out)

    async def _go_on(self, booking: UUID) -> None:
        """With a booking: wait for its seats, then pay, cancel or forget it."""
        chance = self.world.chance
        for _ in range(30):
            if self._state(booking) != "PROCESSING":
                break
            await asyncio.sleep(chance.uniform(0.1, 3))
        if self._state(booking) != "PENDING_PAYMENT":
            return
        what = chance.random()
        if what < 0.12:
            await self._cancel(booking)
        elif what < 0.24:
            self.world.note("a booking was left to expire")
        else:
            await asyncio.sleep(chance.choice((0, 0, 3, 39.9, 40)) * chance.uniform(0.95, 1.01))
            await self._pay(booking)

    async def _pay(self, booking: UUID) -> None:
        chance = self.world.chance
        for _ in range(2):
            card, key = chance.choice(CARDS), self._key()
            payment = await self._ask(
                f"pays {booking} with {card}",
                lambda p, card=card, key=key: p.payer.pay(booking, self.id, method=card, key=key),
            )
            if payment is not None and payment.state is PaymentState.ACTION and chance.random() < 0.6:
                payment = await self._ask("confirms", lambda p, paid=payment: p.payer.confirm(paid, "000000"))
            if payment is not None and payment.state is PaymentState.CAPTURED:
                self.told_captured.add(payment.id)
                if chance.random() < 0.35:
                    await asyncio.sleep(chance.random() * 20)
                    await self._refund(booking)
                return
            if chance.random() < 0.1:
                await self._cancel(booking)
            await asyncio.sleep(chance.random() * 20)
            if self._state(booking) != "PENDING_PAYMENT":
                return

    async def _cancel(self, booking: UUID) -> None:
        request = asked(self.id, self._key(), "cancel", str(booking))

        async def ask(process: Any) -> bool:
            await cancel(process.database, booking, request, now=self.world.now())
            return True

        if await self._ask(f"cancels {booking}", ask):
            self.cancels_told.add(booking)

    async def _refund(self, booking: UUID) -> None:
        chance, key = self.world.chance, self._key()
        row = self.world.tables[BOOKINGS].rows.get((booking,))
        parts = self.history.parts_of(row.now) if row is not None and row.now is not None else ()
        seats = None
        if parts and chance.random() < 0.4:
            part = chance.choice(parts)
            seats = (Part(part.section, part.subsection, part.seats[:1], part.price),)
        self.refunds_asked.add(booking)
        self.world.note("a refund was asked for")
        await self._ask(
            f"wants money back for {booking}",
            lambda p: refund(p.till, booking, seats=seats, why="refunded", key=key, buyer=self.id),
        )

    async def _ask_for_booking(self, key: str, words: str, act: Callable[[Any], Awaitable[UUID]]) -> UUID | None:
        booking = await self._ask(words, act)
        if booking is not None:
            self.answered[key] = booking
            if self.world.chance.random() < 0.1:
                again = await self._ask(f"{words} again", act)
                if again is not None and again != booking:
                    self.world.violations.append(f"I9: key {key} of {self.name} answered {booking}, then {again}")
        return booking

    async def _ask(self, words: str, act: Callable[[Any], Awaitable[Any]]) -> Any:
        """The same request until there is an answer, of whichever process; None if it is a no, or there is none."""
        for _ in range(TRIES):
            self.world.tell(f"{self.name} {words}")
            try:
                return await self.history.serve(act)
            except Problem as problem:
                self.world.tell(f"{self.name} is told: {problem.code}")
                self._check_refusal(words, problem)
                if problem.status not in AGAIN:
                    return None
            except NoAnswer:
                self.world.note("a buyer got no answer")
                self.world.tell(f"{self.name} gets no answer")
            await asyncio.sleep(self.world.chance.uniform(0.1, 5))
        return None

    def _check_refusal(self, words: str, problem: Problem) -> None:
        """Who holds seats has them until the deadline that the cart says, and at the checkout too."""
        if not words.startswith("checks out") or self.world.run_id != "run-1":
            return  # a store that has lost something has lost holds, too
        if problem.code == "taken" or (problem.code == "expired" and self.world.hot.now_ms() < self.held_until_ms):
            self.world.violations.append(f"I7: {self.name} holds seats and is told at the checkout: {problem.code}")

    def _request(self) -> Request:
        chance = self.world.chance
        what = chance.random()
        if what < 0.2:
            return Request(quantity=chance.choice((1, 1, 2)), pool="GA", allow_partial=chance.random() < 0.2)
        if what < 0.45 or (self.rush and what < 0.8):
            # In a rush everybody wants the same two.
            seats = (0, 1) if self.rush else tuple(sorted(chance.sample(range(6), chance.choice((1, 2, 2)))))
            return Request(
                quantity=len(seats), section="A", subsection=1, seats=seats, allow_partial=chance.random() < 0.2
            )
        quantity = chance.choice((1, 2, 2, 3, 4))
        if what < 0.8:
            return Request(quantity=quantity, section="A", subsection=1, allow_partial=chance.random() < 0.2)
        return Request(quantity=quantity)

    def _key(self) -> str:
        self.keys += 1
        return f"key-{self.id.int >> 64}-{self.keys}"

    def _state(self, booking: UUID) -> str:
        row = self.world.tables[BOOKINGS].rows.get((booking,))
        return str(row.now["state"]) if row is not None and row.now is not None else ""


def _words(request: Request) -> str:
    where = request.pool or f"{request.section or 'anywhere'}-{request.subsection or ''}"
    return f"{request.quantity} of {where} {request.seats or ''}{' or fewer' if request.allow_partial else ''}"
