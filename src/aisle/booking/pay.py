"""Pay for a booking: fence it, ask the provider, sell the tickets, capture the money, in this order.

A request and the resolver take the same steps, so a payment that a crash or a silent provider has interrupted is gone
on with from wherever it stands. Bookings that are paid at the same moment share their commits.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

import asyncpg
import msgspec
import structlog

from aisle.booking import payment_moves as moves
from aisle.booking.payment_moves import Delivery, Sell, TakeBack
from aisle.booking.payment_start import CurrencyOf, Start, Started, start
from aisle.crash_points import crash_point
from aisle.db import in_one_go
from aisle.errors import Problem
from aisle.group_commit import GroupCommit
from aisle.ids import new_id
from aisle.limits import PAY_BATCH_MAX, PAY_QUEUE_MAX, TICKETS_WAIT_SECONDS
from aisle.metrics import MoneyMetrics
from aisle.payment import store as payments
from aisle.payment.payment import Payment, PaymentState
from aisle.payment.provider import HAS_MONEY, Answer, Charge, Provider, ProviderSilent, Verdict
from aisle.relay import Relay

Value = TypeVar("Value")
Answered = TypeVar("Answered")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Till:
    """What the steps of a payment work with, put together by the composition root."""

    database: asyncpg.Pool
    providers: Mapping[str, Provider]
    # the one that new payments go to
    provider: str
    provider_seconds: float
    sell: Sell
    take_back: TakeBack
    currency_of: CurrencyOf
    relay: Relay
    clock: Callable[[], datetime]
    metrics: MoneyMetrics

    async def ask(self, provider: str, call: str, answer: Awaitable[Value]) -> Value:
        """The provider's word, or ProviderSilent when it takes too long."""
        outcome, started = "silent", time.perf_counter()
        try:
            async with asyncio.timeout(self.provider_seconds):
                said = await answer
            outcome = "answered"
            return said
        except TimeoutError:
            raise ProviderSilent("the provider did not answer in time") from None
        finally:
            took = time.perf_counter() - started
            self.metrics.provider_seconds.labels(provider, call, outcome).observe(took)

    def count(self, payment: Payment, state: PaymentState) -> None:
        """A payment has come to a state; called once its transaction has committed."""
        self.metrics.payments_total.labels(payment.provider, state.value.lower()).inc()

    def count_late_money(self, ending: str) -> None:
        self.metrics.late_money_total.labels(ending).inc()


class Payer:
    def __init__(self, till: Till) -> None:
        self._till = till
        self._starts: GroupCommit[Start, Started] = _shared(self._start, lambda start: start.booking)
        self._deliveries: GroupCommit[tuple[Payment, Answer], Delivery] = _shared(
            self._deliver, lambda promised: promised[0].booking
        )
        self._finishes: GroupCommit[Payment, bool] = _shared(self._finish, lambda payment: payment.booking)

    async def pay(self, booking: UUID, buyer: UUID, *, method: str, key: str) -> Payment:
        """A payment as far as it got, new or of an earlier request with the same key. Raises if it cannot begin."""
        started = await self._starts.submit(
            Start(
                payment=new_id(self._till.clock()), booking=booking, buyer=buyer, provider=self._till.provider,
                method=method, key=key, request_hash=_hash(booking, method),
            )
        )  # fmt: skip
        if started.refusal is not None:
            raise started.refusal
        payment = started.payment
        assert payment is not None
        if not started.new:
            return payment
        crash_point("after_fence")
        try:
            answer = await self._authorise(payment)
        except ProviderSilent as silence:
            log.warning("provider_silent", payment=str(payment.id), reason=str(silence))
            return payment
        crash_point("after_authorise")
        return await self.advance(payment, answer)

    async def confirm(self, payment: Payment, proof: str) -> Payment:
        """The buyer has taken the step that the provider asked for."""
        if payment.state is not PaymentState.ACTION:
            raise Problem(409, "no_action_needed", f"this payment is {payment.state}")
        provider = self._till.providers[payment.provider]
        try:
            confirmed = provider.confirm(payment.id, payment.reference, proof)
            answer = await self._till.ask(payment.provider, "confirm", confirmed)
        except ProviderSilent:
            return payment
        return await self.advance(payment, answer)

    async def advance(self, payment: Payment, answer: Answer) -> Payment:
        """Take the payment as far as the provider's word allows. Anybody may, any number of times."""
        now = self._till.clock()
        if answer.verdict in HAS_MONEY:
            if (answer.amount, answer.currency.upper()) != (payment.amount, payment.currency):
                async with self._till.database.acquire() as connection:
                    if await moves.review(connection, payment, answer, now=now):
                        self._till.count(payment, PaymentState.REVIEW)
                log.error("payment_held_for_review", payment=str(payment.id), amount=answer.amount)
            elif (done := await self._complete(payment, answer)) is not None:
                return done
        elif answer.verdict is not Verdict.PENDING:
            async with self._till.database.acquire() as connection:
                if answer.verdict is Verdict.ACTION:
                    await moves.wait_for_buyer(connection, payment, answer, now=now)
                else:
                    reason = answer.reason or "the provider declined"
                    await self._decline(connection, payment, reason)
        return await self.reread(payment)

    async def _decline(self, connection: asyncpg.Connection, payment: Payment, reason: str) -> None:
        if await moves.decline(connection, payment, reason, self._till.take_back, now=self._till.clock()):
            self._till.count(payment, PaymentState.DECLINED)

    async def reread(self, payment: Payment) -> Payment:
        async with self._till.database.acquire() as connection:
            found = await payments.find(connection, payment.id)
        assert found is not None
        return found

    async def capture(self, payment: Payment, answer: Answer) -> Payment | None:
        """Tickets are SOLD: take the money, then say that it is paid. Returns the payment once it is."""
        try:
            if answer.verdict is not Verdict.CAPTURED and payment.amount > 0:
                provider = self._till.providers[payment.provider]
                reference = answer.reference or payment.reference
                answer = await self._till.ask(payment.provider, "capture", provider.capture(payment.id, reference))
        except ProviderSilent as silence:
            log.warning("provider_silent", payment=str(payment.id), reason=str(silence))
            return None
        if answer.verdict is Verdict.CAPTURED or payment.amount == 0:
            crash_point("after_capture")
            finished = await self._finishes.submit(payment)
            crash_point("after_paid")
            self._till.relay.wake()
            if not finished:
                return None
            self._till.count(payment, PaymentState.CAPTURED)
            return msgspec.structs.replace(payment, state=PaymentState.CAPTURED)
        if answer.verdict is not Verdict.PENDING:
            async with self._till.database.acquire() as connection:
                await self._decline(connection, payment, answer.reason)
            await self._call_off(payment)
        return None

    async def _call_off(self, payment: Payment) -> None:
        """What could not be captured is given back, so that nobody captures it tomorrow."""
        try:
            voided = self._till.providers[payment.provider].void(payment.id, payment.reference)
            await self._till.ask(payment.provider, "void", voided)
        except ProviderSilent as silence:
            log.warning("promise_not_given_back", payment=str(payment.id), reason=str(silence))

    async def aclose(self) -> None:
        for commits in (self._starts, self._deliveries, self._finishes):
            await commits.drain()

    async def _authorise(self, payment: Payment) -> Answer:
        if payment.amount == 0:
            return Answer(verdict=Verdict.AUTHORISED, currency=payment.currency)
        charge = Charge(payment.id, payment.booking, payment.amount, payment.currency, payment.method)
        authorised = self._till.providers[payment.provider].authorise(charge)
        return await self._till.ask(payment.provider, "authorise", authorised)

    async def _complete(self, payment: Payment, answer: Answer) -> Payment | None:
        waited = 0.0
        delivery = await self._deliveries.submit((payment, answer))
        while delivery is Delivery.NOT_YET and waited < TICKETS_WAIT_SECONDS:
            # The buyer was faster than the message that reserves the tickets.
            await asyncio.sleep(0.05)
            waited += 0.05
            delivery = await self._deliveries.submit((payment, answer))
        if delivery is Delivery.SOLD:
            crash_point("after_sold")
            return await self.capture(payment, answer)
        return None

    async def _start(self, asked: Sequence[Start]) -> list[Started]:
        return await in_one_go(
            self._till.database,
            lambda connection: start(connection, asked, currency_of=self._till.currency_of, now=self._till.clock()),
        )

    async def _deliver(self, promised: Sequence[tuple[Payment, Answer]]) -> list[Delivery]:
        return await in_one_go(
            self._till.database,
            lambda connection: moves.deliver(connection, promised, self._till.sell, now=self._till.clock()),
        )

    async def _finish(self, paid: Sequence[Payment]) -> list[bool]:
        ids, bookings = [payment.id for payment in paid], [payment.booking for payment in paid]
        finished = await in_one_go(
            self._till.database, lambda connection: moves.finish(connection, ids, bookings, now=self._till.clock())
        )
        return [id in finished for id in ids]


def _shared(
    write: Callable[[Sequence[Value]], Awaitable[Sequence[Answered]]], booking: Callable[[Value], UUID]
) -> "GroupCommit[Value, Answered]":
    return GroupCommit(write, apart=booking, batch_max=PAY_BATCH_MAX, queue_max=PAY_QUEUE_MAX, lanes=2)


def _hash(booking: UUID, method: str) -> bytes:
    return hashlib.blake2b(booking.bytes + method.encode(), digest_size=16).digest()
