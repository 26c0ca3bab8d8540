"""Steps that tests of money share: a booking that waits for payment, paying it, and what the provider's books say."""

from typing import Any
from uuid import UUID

import httpx

from tests.people import Person, expect, new_key
from tests.stage import Stage


def pending(buyer: Person, event: int, quantity: int | None = 2, **order: Any) -> str:
    """A booking that waits for its payment."""
    booking = buyer.books(event, quantity, **order)
    buyer.waits_for(booking, "PENDING_PAYMENT")
    return booking


def pay(buyer: Person, booking: str, card: str = "card_ok", *, key: str = "") -> httpx.Response:
    return buyer.post(f"/bookings/{booking}/payments", {"method": card}, key=key or new_key())


def paid(buyer: Person, event: int, quantity: int | None = 2, **order: Any) -> str:
    booking = pending(buyer, event, quantity, **order)
    assert expect(201, pay(buyer, booking))["state"] == "CAPTURED"
    return booking


def payments_of(stage: Stage, booking: str) -> list[Any]:
    return stage.fetch("select * from payment.payments where booking = $1 order by id", UUID(booking))


def look_now(stage: Stage) -> None:
    """Everything that stands still is due at once, as it would be a while after a crash."""
    stage.fetch("update payment.payments set look_at = now(), started_at = started_at - interval '1 minute'")
    stage.fetch("update payment.refunds set look_at = now()")
