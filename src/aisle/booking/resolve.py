"""Go on with payments that stand still: a crash, a silent provider, a buyer who left, money that came late.

Run by every booking process, any number at once: a payment is taken for a few seconds by one of them, and whoever dies
leaves it to the next. Nothing here charges anybody: it asks the provider what became of a payment, and acts on that.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import asyncpg
import structlog

from aisle.booking import payment_moves as moves
from aisle.booking.late_money import LateMoney
from aisle.booking.pay import Payer, Till
from aisle.booking.refund import give_back_money
from aisle.errors import Problem, StoreScriptFailed
from aisle.limits import (
    LOOK_SECONDS_MAX,
    PAYMENT_LEASE_SECONDS,
    RESOLVE_AT_ONCE,
    RESOLVE_INTERVAL_SECONDS,
    RESOLVE_ROWS_MAX,
    UNHEARD_SECONDS,
)
from aisle.payment import store as payments
from aisle.payment.payment import UNDECIDED, Payment, PaymentState, Refund
from aisle.payment.provider import Answer, NoticeRefused, ProviderSilent, Verdict

LEASE = timedelta(seconds=PAYMENT_LEASE_SECONDS)
# A dependency that is away: the payment is looked at again later.
AWAY = (
    ProviderSilent,
    Problem,
    StoreScriptFailed,
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
)

log = structlog.get_logger()


class Resolver:
    def __init__(self, till: Till, payer: Payer, late_money: LateMoney, *, verdict_seconds: float) -> None:
        self.till = till
        self._payer = payer
        self._late_money = late_money
        self._verdict = timedelta(seconds=verdict_seconds)
        self._slots = asyncio.Semaphore(RESOLVE_AT_ONCE)

    async def run(self) -> None:
        while True:
            try:
                while await self.resolve_due() == RESOLVE_ROWS_MAX:
                    pass
            except AWAY as error:
                log.warning("payments_wait", reason=str(error))
            await asyncio.sleep(RESOLVE_INTERVAL_SECONDS)

    async def resolve_due(self) -> int:
        """Go on with what is due; returns how many payments and refunds that were."""
        now = self.till.clock()
        async with self.till.database.acquire() as connection:
            due = await payments.due(connection, now=now, lease=LEASE, limit=RESOLVE_ROWS_MAX)
            refunds = await payments.due_refunds(connection, now=now, lease=LEASE, limit=RESOLVE_ROWS_MAX)
        work = [*map(self._resolve_or_wait, due), *map(self._refund_or_wait, refunds)]
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, Exception):  # one that is spoilt does not hold the others up; it comes again
                log.error("payment_spoilt", exc_info=outcome)
        return max(len(due), len(refunds))

    async def resolve(self, payment: Payment) -> Payment:
        """Take one payment as far as it goes now."""
        match payment.state:
            case PaymentState.AUTHORISED:
                verdict = Verdict.CAPTURED if payment.taken else Verdict.AUTHORISED
                await self._payer.capture(payment, Answer(verdict=verdict))
            case PaymentState.LATE:
                await self._late_money.settle(payment)
            case PaymentState.CAPTURED | PaymentState.VOIDED | PaymentState.RETURNED | PaymentState.REVIEW:
                return payment
            case _:
                await self._decide(payment, await self._look(payment))
        return await self._payer.reread(payment)

    async def hear(self, provider: str, body: bytes, headers: Mapping[str, str]) -> None:
        """A webhook: proof that something happened to a payment. What happened is asked of the provider itself, so
        that webhooks which come twice, late or in another order do no harm."""
        if provider not in self.till.providers:
            raise NoticeRefused(404, "unknown_provider", "no such payment provider")
        now = self.till.clock()
        notice = self.till.providers[provider].read_notice(body, headers, now)
        async with self.till.database.acquire() as connection:
            payment = await payments.find(connection, notice.payment)
        if payment is None or payment.provider != provider:
            raise NoticeRefused(404, "unknown_payment", "no such payment")
        try:
            payment = await self.resolve(payment)
            if payment.state is PaymentState.LATE:
                await self.resolve(payment)
        except ProviderSilent:
            raise Problem(503, "provider_silent", "the provider cannot be asked now", retry_after_s=5) from None
        async with self.till.database.acquire() as connection:
            await payments.note_heard(connection, provider, notice, now=now)

    async def _look(self, payment: Payment) -> Answer:
        if payment.amount == 0:
            return Answer(verdict=Verdict.AUTHORISED, currency=payment.currency)
        provider = self.till.providers[payment.provider]
        try:
            looked = provider.look(payment.id, payment.reference, payment.started_at)
            return await self.till.ask(payment.provider, "look", looked)
        except ProviderSilent:
            if payment.state in UNDECIDED and self._is_overdue(payment):
                return Answer(verdict=Verdict.PENDING)
            raise

    async def _decide(self, payment: Payment, answer: Answer) -> None:
        now = self.till.clock()
        if answer.verdict is Verdict.UNKNOWN and now - payment.started_at < timedelta(seconds=UNHEARD_SECONDS):
            return  # the request that began it may still be on its way
        nothing_there = answer.verdict in (Verdict.UNKNOWN, Verdict.VOIDED)
        if payment.state is PaymentState.ABANDONED and nothing_there:
            async with self.till.database.acquire() as connection:
                if await payments.move(connection, [(payment.id, "")], PaymentState.VOIDED, now=now):
                    self.till.count(payment, PaymentState.VOIDED)
        elif answer.verdict is Verdict.ACTION and payment.state in UNDECIDED and self._is_overdue(payment):
            await self._give_up_waiting_for_buyer(payment)
        elif answer.verdict is Verdict.ACTION and payment.state is PaymentState.ABANDONED:
            # Given up while the provider was silent; now it waits for a buyer whose seats are gone.
            await self._give_up_waiting_for_buyer(payment)
        elif answer.verdict is Verdict.PENDING and payment.state in UNDECIDED and self._is_overdue(payment):
            async with self.till.database.acquire() as connection:
                if await moves.abandon(connection, payment, now=now):
                    self.till.count(payment, PaymentState.ABANDONED)
            self.till.relay.wake()
        elif not (payment.state is PaymentState.DECLINED and nothing_there):
            await self._payer.advance(payment, answer)

    async def _give_up_waiting_for_buyer(self, payment: Payment) -> None:
        """A step that nobody took is called off at the provider first, so that it cannot be taken tomorrow."""
        provider = self.till.providers[payment.provider]
        answer = await self.till.ask(payment.provider, "void", provider.void(payment.id, payment.reference))
        reason = "the confirmation did not come in time"
        if answer.verdict is Verdict.VOIDED:
            answer = Answer(verdict=Verdict.DECLINED, reason=reason)
        await self._payer.advance(payment, answer)

    def _is_overdue(self, payment: Payment) -> bool:
        return self.till.clock() - payment.started_at >= self._verdict

    async def _resolve_or_wait(self, payment: Payment) -> None:
        async with self._slots:
            try:
                payment = await self.resolve(payment)
            except AWAY as error:
                log.warning("payment_waits", payment=str(payment.id), state=payment.state, reason=str(error))
            pause = timedelta(seconds=min(2 ** min(payment.looks, 10), LOOK_SECONDS_MAX))
            if payment.state is not PaymentState.LATE:
                async with self.till.database.acquire() as connection:
                    await payments.postpone(connection, payment.id, self.till.clock() + pause)

    async def _refund_or_wait(self, refund: Refund) -> None:
        async with self._slots:
            try:
                await give_back_money(self.till, refund)
            except AWAY as error:
                log.error("refund_waits", refund=str(refund.id), looks=refund.looks, reason=str(error))
                pause = timedelta(seconds=min(2 ** min(refund.looks, 10), LOOK_SECONDS_MAX))
                async with self.till.database.acquire() as connection:
                    await payments.postpone_refund(connection, refund.id, self.till.clock() + pause)
