"""Stripe, through its official library: payment intents that are authorised first and captured later.

The intent is made under our payment's id as idempotency key, so a repeated request finds the first one. It carries that
id as transfer group: a charge whose answer was lost is found by it, without the delay that Stripe's search has.
"""

from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import stripe

from aisle.limits import WEBHOOK_SECONDS_MAX
from aisle.payment.provider import Answer, Charge, Notice, NoticeRefused, ProviderSilent, Taken, Verdict

SIGNATURE = "stripe-signature"

VERDICTS = {
    "requires_payment_method": Verdict.DECLINED,
    "requires_confirmation": Verdict.PENDING,
    "requires_action": Verdict.ACTION,
    "processing": Verdict.PENDING,
    "requires_capture": Verdict.AUTHORISED,
    "succeeded": Verdict.CAPTURED,
    "canceled": Verdict.VOIDED,
}

Value = TypeVar("Value")


class Stripe:
    name = "stripe"

    def __init__(self, *, key: str, webhook_secret: str, account: str = "", api_base: str = "") -> None:
        addresses: Any = {"api": api_base} if api_base else {}
        # Repeating is ours to decide; the library would do it behind our time-out.
        self._client = stripe.StripeClient(
            key, base_addresses=addresses, max_network_retries=0, http_client=stripe.HTTPXClient()
        )
        self._intents = self._client.v1.payment_intents
        self._webhook_secret = webhook_secret
        self._account = account

    async def authorise(self, charge: Charge) -> Answer:
        payment = str(charge.payment)
        return await _asked(
            self._intents.create_async(
                {
                    "amount": charge.amount,
                    "currency": charge.currency.lower(),
                    "payment_method": charge.method,
                    "capture_method": "manual",
                    "confirm": True,
                    "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
                    "transfer_group": payment,
                    "metadata": {"payment": payment, "booking": str(charge.booking)},
                },
                {"idempotency_key": f"authorise-{payment}"},
            )
        )

    async def confirm(self, payment: UUID, reference: str, proof: str) -> Answer:
        """The buyer confirmed on Stripe's own page; what came of it is there to be read."""
        return await _asked(self._intents.retrieve_async(reference))

    async def look(self, payment: UUID, reference: str, since: datetime) -> Answer:
        if not reference:
            charges = await _spoken(
                self._client.v1.charges.list_async({"transfer_group": str(payment), "limit": 1}), refused=None
            )
            if charges is None or not charges.data:
                return Answer(verdict=Verdict.UNKNOWN, reason="Stripe knows of no such payment")
            reference = str(charges.data[0].payment_intent)
        return await _asked(self._intents.retrieve_async(reference))

    async def capture(self, payment: UUID, reference: str) -> Answer:
        captured = await _asked(self._intents.capture_async(reference, {}, {"idempotency_key": f"capture-{payment}"}))
        # A refusal to capture may only mean that it was captured before.
        return await _asked(self._intents.retrieve_async(reference)) if _is_refusal(captured) else captured

    async def void(self, payment: UUID, reference: str) -> Answer:
        voided = await _asked(self._intents.cancel_async(reference, {}, {"idempotency_key": f"void-{payment}"}))
        return await _asked(self._intents.retrieve_async(reference)) if _is_refusal(voided) else voided

    async def refund(self, refund: UUID, payment: UUID, reference: str, amount: int) -> bool:
        given = await _spoken(
            self._client.v1.refunds.create_async(
                {"payment_intent": reference, "amount": amount, "metadata": {"refund": str(refund)}},
                {"idempotency_key": f"refund-{refund}"},
            ),
            refused=None,
        )
        return given is not None and given.status in ("succeeded", "pending")

    async def taken_since(self, since: datetime) -> list[Taken]:
        async def all_pages() -> list[Taken | None]:
            asked: Any = {"created": {"gte": int(since.timestamp())}, "limit": 100, "expand": ["data.latest_charge"]}
            listed = await self._intents.list_async(asked)
            return [_taken(intent) async for intent in listed.auto_paging_iter()]

        found = await _spoken(all_pages(), refused=None)
        if found is None:
            raise ProviderSilent("Stripe does not list payments")
        return [one for one in found if one is not None]

    def read_notice(self, body: bytes, headers: Mapping[str, str], now: datetime) -> Notice:
        header = headers.get(SIGNATURE, "")
        if not header:
            raise NoticeRefused(400, "webhook_unsigned", "the signature header is missing or malformed")
        try:
            event = stripe.Webhook.construct_event(body, header, self._webhook_secret, tolerance=WEBHOOK_SECONDS_MAX)
        except stripe.SignatureVerificationError as error:
            old = "Timestamp outside" in str(error)
            code, detail = (
                ("webhook_too_old", f"a webhook counts for {WEBHOOK_SECONDS_MAX} s")
                if old
                else ("webhook_bad_signature", "the signature does not fit the body")
            )
            raise NoticeRefused(400, code, detail) from None
        except ValueError:
            raise NoticeRefused(400, "webhook_unreadable", "the body is not a notice of this provider") from None
        if (getattr(event, "account", None) or "") != self._account:
            raise NoticeRefused(403, "webhook_other_account", "the notice is for another account")
        return Notice(str(event.id), _payment_in(event), str(event.type))


def _payment_in(event: Any) -> UUID:
    try:
        return UUID(event.data.object.metadata["payment"])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NoticeRefused(404, "unknown_payment", "the notice names no payment of ours") from None


def _taken(intent: Any) -> Taken | None:
    """None for what is not ours, or has no money left."""
    captured = intent.status == "succeeded"
    back = getattr(getattr(intent, "latest_charge", None), "amount_refunded", 0) or 0
    left = (intent.amount_received if captured else intent.amount) - back
    try:
        payment = UUID(intent.metadata["payment"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    if left <= 0 or not (captured or intent.status == "requires_capture"):
        return None
    currency = intent.currency.upper()
    return Taken(payment=payment, amount=left, currency=currency, reference=intent.id, captured=captured)


def _is_refusal(answer: Answer) -> bool:
    return answer.verdict is Verdict.DECLINED and not answer.amount


async def _asked(call: Awaitable[Any]) -> Answer:
    """What Stripe says of an intent; a refusal is a decline, anything unreadable is silence."""
    answer = await _spoken(call, refused=Answer(verdict=Verdict.DECLINED))
    if isinstance(answer, Answer):
        return answer
    verdict = VERDICTS.get(answer.status, Verdict.PENDING)
    error = getattr(answer, "last_payment_error", None)
    return Answer(
        verdict=verdict,
        amount=answer.amount_received if verdict is Verdict.CAPTURED else answer.amount,
        currency=answer.currency.upper(),
        reference=answer.id,
        reason=str(getattr(error, "message", "") or "") if error else "",
        action=str(answer.client_secret or "") if verdict is Verdict.ACTION else "",
    )


async def _spoken(call: Awaitable[Any], *, refused: Answer | None) -> Any:
    try:
        return await call
    except stripe.CardError as error:
        return Answer(verdict=Verdict.DECLINED, reason=str(error.user_message or "the card was declined"))
    except (stripe.InvalidRequestError, stripe.IdempotencyError) as error:
        if refused is None:
            return None
        return Answer(verdict=refused.verdict, reason=str(error.user_message or error))
    except stripe.StripeError as error:
        raise ProviderSilent(str(error)) from None
