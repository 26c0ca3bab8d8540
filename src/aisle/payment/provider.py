"""What a payment provider can do for us. Two adapters: `sandbox` built in, `stripe_provider` for real money.

Every call is idempotent by an id of ours, the payment's or the refund's, so that whoever does not know what became of a
call repeats it. A provider that does not answer raises ProviderSilent: the outcome is unknown, never a no.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

import msgspec

from aisle.errors import AisleError, Problem


class Verdict(StrEnum):
    UNKNOWN = "unknown"  # the provider has never heard of this payment
    PENDING = "pending"  # it has not decided
    ACTION = "action"  # the buyer has to do something first
    AUTHORISED = "authorised"
    CAPTURED = "captured"
    DECLINED = "declined"
    VOIDED = "voided"


HAS_MONEY = frozenset({Verdict.AUTHORISED, Verdict.CAPTURED})


class Charge(msgspec.Struct, frozen=True):
    """What is asked for. `payment` is our id, and the provider's idempotency key."""

    payment: UUID
    booking: UUID
    amount: int
    currency: str
    method: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider says of a payment. Amount and currency are its own, to be compared with ours."""

    verdict: Verdict
    amount: int = 0
    currency: str = ""
    reference: str = ""
    reason: str = ""
    # for ACTION: what the buyer's browser needs, such as a client secret
    action: str = ""


class Notice(msgspec.Struct, frozen=True):
    """A webhook whose signature was right: a hint that something happened to this payment, no more."""

    id: str
    payment: UUID
    kind: str


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Money the provider has taken for us, or was promised: `amount` is what has not gone back yet."""

    payment: UUID
    amount: int
    currency: str
    reference: str
    captured: bool


class ProviderSilent(AisleError):
    """No answer, or none that can be read. What was asked may or may not have happened."""


class NoticeRefused(Problem):
    """A webhook that we do not act on."""


class Provider(Protocol):
    name: str

    async def authorise(self, charge: Charge) -> Answer:
        """Ask for the money without taking it."""

    async def confirm(self, payment: UUID, reference: str, proof: str) -> Answer:
        """The buyer has taken the step that was asked for."""

    async def look(self, payment: UUID, reference: str, since: datetime) -> Answer:
        """What became of it; changes nothing. `since` is when the payment began."""

    async def capture(self, payment: UUID, reference: str) -> Answer:
        """Take the money that was promised."""

    async def void(self, payment: UUID, reference: str) -> Answer:
        """Give the promise back. Answers what holds then: VOIDED, or that it came too late."""

    async def refund(self, refund: UUID, payment: UUID, reference: str, amount: int) -> bool:
        """Give money back; true once the provider has accepted it."""

    async def taken_since(self, since: datetime) -> list[Taken]:
        """All payments of ours since then whose money it has; changes nothing."""

    def read_notice(self, body: bytes, headers: Mapping[str, str], now: datetime) -> Notice:
        """The webhook, if it is from this provider, for this account, and new. Raises NoticeRefused."""
