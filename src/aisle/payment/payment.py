"""A payment, the states it goes through and the moves it may make.

Pure. A payment is ours, a charge is the provider's: what the provider says moves the payment, along MOVES only. The
diagram in the documentation is drawn from this table. Money is a whole number of minor units with its currency.
"""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from aisle.messages import Part


class PaymentState(StrEnum):
    STARTED = "STARTED"
    ACTION = "ACTION"
    AUTHORISED = "AUTHORISED"
    CAPTURED = "CAPTURED"
    DECLINED = "DECLINED"
    ABANDONED = "ABANDONED"
    LATE = "LATE"
    VOIDED = "VOIDED"
    RETURNED = "RETURNED"
    REVIEW = "REVIEW"


MEANINGS: dict[PaymentState, str] = {
    PaymentState.STARTED: "the booking is PAYING; what the provider says is not known yet",
    PaymentState.ACTION: "the provider wants a step by the buyer; the booking is PAYING",
    PaymentState.AUTHORISED: "the money is promised and the tickets are SOLD; to be captured",
    PaymentState.CAPTURED: "the money is ours, the seats are the buyer's; the booking is PAID",
    PaymentState.DECLINED: "no money; the buyer may try again while there is time",
    PaymentState.ABANDONED: "the provider did not decide in time and the seats were let go; it is still asked",
    PaymentState.LATE: "money without seats: it came late or was decided about; seats again, or the money back",
    PaymentState.VOIDED: "the promise was given back, no money moved",
    PaymentState.RETURNED: "all of the money went back",
    PaymentState.REVIEW: "another amount or currency than was asked for: a person decides",
}

MOVES: dict[PaymentState, frozenset[PaymentState]] = {
    PaymentState.STARTED: frozenset(
        {
            PaymentState.ACTION,
            PaymentState.AUTHORISED,
            PaymentState.DECLINED,
            PaymentState.ABANDONED,
            PaymentState.LATE,
            PaymentState.REVIEW,
        }
    ),
    PaymentState.ACTION: frozenset(
        {
            PaymentState.AUTHORISED,
            PaymentState.DECLINED,
            PaymentState.ABANDONED,
            PaymentState.LATE,
            PaymentState.REVIEW,
        }
    ),
    # Declined at capture: the seats go back on sale.
    PaymentState.AUTHORISED: frozenset({PaymentState.CAPTURED, PaymentState.DECLINED}),
    PaymentState.CAPTURED: frozenset({PaymentState.RETURNED}),
    # A provider that said no, or had never heard of it, may still turn up with the money.
    PaymentState.DECLINED: frozenset({PaymentState.LATE, PaymentState.REVIEW}),
    PaymentState.ABANDONED: frozenset(
        {PaymentState.DECLINED, PaymentState.LATE, PaymentState.VOIDED, PaymentState.REVIEW}
    ),
    PaymentState.LATE: frozenset({PaymentState.AUTHORISED, PaymentState.VOIDED, PaymentState.RETURNED}),
    # Decided: seats for it or the money back, as for money that came late.
    PaymentState.REVIEW: frozenset({PaymentState.LATE}),
    PaymentState.VOIDED: frozenset(),
    PaymentState.RETURNED: frozenset(),
}

UNDECIDED = frozenset({PaymentState.STARTED, PaymentState.ACTION})
# What the resolver goes on with until it has ended.
OPEN = frozenset({*UNDECIDED, PaymentState.AUTHORISED, PaymentState.ABANDONED, PaymentState.LATE})


def may_move(current: PaymentState, target: PaymentState) -> bool:
    return target in MOVES[current]


class Payment(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    booking: UUID
    buyer: UUID
    event_id: int
    provider: str
    method: str
    amount: int
    currency: str
    state: PaymentState
    reference: str
    action: str
    reason: str
    taken: bool
    refunded: int
    tries: int
    seats_again: tuple[Part, ...] | None
    started_at: datetime
    late_at: datetime | None
    looks: int
    # what the provider has, where it is not what was asked for; and what a person decided about it
    held: int | None = None
    held_currency: str | None = None
    decision: str = ""

    @property
    def money(self) -> tuple[int, str]:
        """What the provider has, or will have: what goes back if all of it does."""
        if self.held is None or self.held_currency is None:
            return self.amount, self.currency
        return self.held, self.held_currency


class Decision(StrEnum):
    ACCEPT = "accept"
    REFUND = "refund"


class Refund(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    payment: UUID
    booking: UUID
    amount: int
    currency: str
    state: str
    why: str
    looks: int
