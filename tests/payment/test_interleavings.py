"""Expire, pay, webhooks, refunds, other buyers and crashes in any order: money kept is seats delivered, in the end.

A crash ends what is under way at one of the named points; the next step runs in a new process, as far as memory goes.
Messages arrive late, twice and in any order. What the runs have reached is counted, so that a machine that never comes
to the interesting places fails.
"""

import asyncio
import random
from collections import Counter as Tally
from datetime import timedelta
from uuid import uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from aisle.booking import late_money, pay, refund, review
from aisle.booking.booking import State
from aisle.booking.expire import UNPAID, cancel_rows
from aisle.crash_points import PAYMENT_POINTS
from aisle.errors import Problem
from aisle.once import asked
from aisle.payment.payment import Decision
from aisle.payment.sandbox import CARDS
from aisle.payment.store import payment_of
from tests.payment.counter import WINDOW, Counter, counter

EXAMPLES = 30

steps = st.one_of(
    st.tuples(st.just("pay"), st.sampled_from(sorted(CARDS))),
    st.tuples(st.just("pass"), st.sampled_from([1, 12, 70, 400, 1000])),
    st.tuples(st.just("webhook"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["expire", "resolve", "carry", "refund", "cancel"]), st.none()),
    st.tuples(st.sampled_from(["provider_captures", "provider_stalls", "provider_decides"]), st.none()),
    st.tuples(st.just("decide"), st.sampled_from(list(Decision))),
    st.tuples(st.just("provider_has"), st.sampled_from([5999, 1, 6500])),
    st.tuples(st.just("stranger"), st.integers(0, 9)),
    st.tuples(st.just("crash"), st.sampled_from(PAYMENT_POINTS)),
)
reached = Tally()


class Crash(BaseException):
    """The process is gone."""


class Run:
    def __init__(self, at: Counter, seed: int) -> None:
        self.at = at
        self.chance = random.Random(seed)
        self.crash_at = ""

    def crash_point(self, name: str) -> None:
        if name == self.crash_at:
            self.crash_at = ""
            reached[f"crash {name}"] += 1
            raise Crash

    async def step(self, booking, what, detail) -> None:
        try:
            await self._step(booking, what, detail)
        except Crash:
            # Memory is gone; what was committed stays.
            self.at = Counter(self.at.database, self.at.store, self.at.clock, self.at.event)

    async def _step(self, booking, what, detail) -> None:
        at = self.at
        try:
            if what == "pay":
                reached[f"pay {(await at.pay(booking, detail)).state}"] += 1
            elif what == "pass":
                at.clock.pass_by(timedelta(seconds=detail))
            elif what == "webhook":
                await self._webhooks(booking, detail)
            elif what == "expire":
                await at.expire()
            elif what == "resolve":
                await at.resolver.resolve_due()
            elif what == "carry":
                await at.carry(self.chance)
            elif what == "refund":
                await refund.refund(at.till, booking, seats=None, why="refunded", key=uuid4().hex)
            elif what == "cancel":
                async with at.database.acquire() as connection, connection.transaction():
                    await cancel_rows(connection, [booking], "cancelled", UNPAID, now=at.clock())
            elif what == "provider_captures":
                await self._provider_captures(booking)
            elif what in ("provider_stalls", "provider_decides"):
                later = timedelta(days=2) if what == "provider_stalls" else timedelta()
                await at.database.execute("update payment.sandbox_charges set settles_at = $1", at.clock() + later)
            elif what == "stranger":
                if await at.is_free(detail):
                    await at.pending((detail,))
            elif what == "provider_has":
                await self._provider_has(booking, detail)
            elif what == "decide":
                await self._decide(booking, detail)
            elif what == "crash":
                self.crash_at = detail
        except Problem as refusal:
            reached[refusal.code] += 1

    async def _webhooks(self, booking, count) -> None:
        for row in await self.at.payments_of(await self.at.buyer_of(booking)):
            body = msgspec.json.encode(
                {"id": uuid4().hex, "account": "sandbox", "payment": str(row["id"]), "kind": "something"}
            )
            hear = (self.at.resolver.hear("sandbox", body, self.at.bank.signed(body)) for _ in range(count))
            for outcome in await asyncio.gather(*hear, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _provider_captures(self, booking) -> None:
        """A provider may take what it promised without being asked."""
        await self.at.database.execute(
            """update payment.sandbox_charges c set state = 'captured' from payment.payments p
               where p.id = c.payment and p.buyer = $1 and c.state in ('pending', 'authorised')""",
            await self.at.buyer_of(booking),
        )

    async def _provider_has(self, booking, amount) -> None:
        """Another amount than was asked for, and than a person was shown."""
        await self.at.database.execute(
            """update payment.sandbox_charges c set amount = $2 from payment.payments p
               where p.id = c.payment and p.buyer = $1 and c.card = 'card_wrong_amount' and p.state = 'REVIEW'""",
            await self.at.buyer_of(booking),
            amount,
        )

    async def _decide(self, booking, decision) -> None:
        for row in await self.at.payments_of(await self.at.buyer_of(booking)):
            if row["state"] == "REVIEW":
                await review.decide(self.at.till, payment_of(row), decision, asked(uuid4(), None, ""))
                reached[f"decided {decision}"] += 1


async def play(config, steps, seed, patch) -> None:
    async with counter(config) as at:
        run = Run(at, seed)
        for module in (pay, late_money, refund, review):
            patch.setattr(module, "crash_point", run.crash_point)
        booking = await at.pending((0, 1))
        buyer = await at.buyer_of(booking)
        for what, detail in steps:
            await run.step(booking, what, detail)
        run.crash_at = ""
        await until_quiet(run.at)
        for row in await run.at.payments_of(buyer):
            reached[f"payment {row['state']}{' late' if row['late_at'] else ''}"] += 1
        for row in await run.at.database.fetch("select state, reason from booking.bookings where buyer = $1", buyer):
            reached[f"booking {row['state']} {row['reason']}"] += 1


async def until_quiet(at: Counter) -> None:
    """Days pass, in which every verdict comes and every message arrives."""
    at.clock.pass_by(WINDOW)
    for _ in range(6):
        at.clock.pass_by(timedelta(hours=12))
        await at.expire()
        await at.resolver.resolve_due()
        await at.carry()
    await at.settle()
    open_payments = await at.database.fetch(
        """select state from payment.payments where event_id = $1
           and state in ('STARTED', 'ACTION', 'AUTHORISED', 'ABANDONED', 'LATE')""",
        at.event.id,
    )
    assert open_payments == [], "every payment comes to an end"
    bookings = await at.database.fetch("select state from booking.bookings where event_id = $1", at.event.id)
    assert {row["state"] for row in bookings} <= {State.PAID, State.CANCELLED, State.REFUNDED}


LATE = [
    ("pay", "card_late"), ("provider_stalls", None), ("pass", 1000), ("resolve", None), ("carry", None),
    ("provider_decides", None), ("pass", 400),
]  # fmt: skip
WRONG = [("pay", "card_wrong_amount")]
FULL_ROW = [("stranger", seat) for seat in range(0, 10, 2)]


@given(plan=st.lists(steps, min_size=2, max_size=12), seed=st.integers(0, 2**32))
@example(plan=[*LATE, ("pass", 400), ("resolve", None), ("resolve", None)], seed=1)
@example(plan=[*LATE, ("stranger", 0), ("pass", 400), ("resolve", None), ("resolve", None)], seed=2)
@example(plan=[*LATE, ("stranger", 0), ("provider_captures", None), ("webhook", 4), ("carry", None)], seed=3)
@example(plan=[*LATE, *FULL_ROW, ("webhook", 2)], seed=16)
@example(plan=[*LATE, *FULL_ROW, ("provider_captures", None), ("webhook", 2)], seed=17)
@example(plan=[*LATE, ("crash", "after_late_claim"), ("webhook", 1), ("webhook", 2)], seed=4)
@example(plan=[*LATE, ("crash", "after_late_plan"), ("webhook", 1), ("stranger", 1), ("webhook", 2)], seed=5)
@example(plan=[*LATE, ("crash", "after_late_seats"), ("webhook", 1), ("carry", None), ("webhook", 2)], seed=6)
@example(plan=[("pay", "card_ok"), ("refund", None), ("carry", None), ("stranger", 0)], seed=7)
@example(
    plan=[("crash", "after_sold"), ("pay", "card_ok"), ("pass", 1000), ("expire", None), ("resolve", None)], seed=8
)
@example(plan=[("crash", "after_capture"), ("pay", "card_ok"), ("expire", None), ("webhook", 4)], seed=9)
@example(plan=[("crash", "after_authorise"), ("pay", "card_ok"), ("pass", 12), ("resolve", None)], seed=10)
@example(plan=[("crash", "after_fence"), ("pay", "card_ok"), ("pass", 1000), ("resolve", None)], seed=11)
@example(plan=[("pay", "card_ok"), ("crash", "after_refund"), ("refund", None), ("refund", None)], seed=12)
@example(plan=[("pay", "card_ok"), ("refund", None), ("crash", "after_provider_refund"), ("resolve", None)], seed=13)
@example(plan=[("pay", "card_capture_fails"), ("carry", None), ("stranger", 0)], seed=14)
@example(plan=[("pay", "card_wrong_amount"), ("pay", "card_ok")], seed=15)
@example(plan=[*WRONG, ("decide", Decision.ACCEPT), ("resolve", None), ("refund", None)], seed=18)
@example(plan=[*WRONG, ("provider_has", 5999), ("decide", Decision.ACCEPT), ("webhook", 2), ("refund", None)], seed=19)
@example(plan=[*WRONG, ("provider_captures", None), ("decide", Decision.REFUND), ("webhook", 2)], seed=20)
@example(plan=[*WRONG, ("pass", 1000), ("expire", None), ("carry", None), ("decide", Decision.ACCEPT)], seed=21)
@example(plan=[*WRONG, ("crash", "after_decision"), ("decide", Decision.ACCEPT), ("pass", 12)], seed=22)
@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
def play_any(config, plan, seed):
    note(f"{plan=} {seed=}")
    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(play(config, plan, seed, patch))


def test_money_kept_is_seats_delivered_whatever_happens_in_whatever_order(config):
    play_any(config)
    wanted = {
        "payment CAPTURED", "payment CAPTURED late", "payment DECLINED", "payment REVIEW", "payment RETURNED",
        "payment RETURNED late", "payment VOIDED late", "booking PAID ", "booking PAID paid_late",
        "booking CANCELLED paid_late_moved",
        "booking CANCELLED paid_late_returned", "booking CANCELLED payment_failed", "booking REFUNDED refunded",
        "crash after_fence", "crash after_authorise", "crash after_sold", "crash after_capture", "crash after_refund",
        "crash after_provider_refund", "crash after_late_claim", "crash after_late_plan", "crash after_late_seats",
        "crash after_decision", "decided accept", "decided refund",
    }  # fmt: skip
    assert wanted <= set(reached), f"never reached: {sorted(wanted - set(reached))}"
