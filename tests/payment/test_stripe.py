"""The Stripe adapter, through Stripe's official library, against a stand-in for its API that the test starts."""

import hashlib
import hmac
import json
import time
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from aisle.booking.booking import State
from aisle.booking.pay import Payer
from aisle.booking.refund import give_back_money, refund
from aisle.booking.resolve import Resolver
from aisle.payment import store as payments
from aisle.payment.payment import PaymentState
from aisle.payment.provider import Charge, NoticeRefused, ProviderSilent, Verdict
from aisle.payment.stripe_provider import Stripe
from tests.payment.counter import counter
from tests.payment.stripe_stand_in import stripe_stand_in
from tests.payment.till import till_on

# Stripe's library hands text to httpx in a way that httpx would like to see changed.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload:DeprecationWarning")

WEBHOOK_SECRET = "whsec_of_the_test"


@pytest.fixture
def stripe():
    """(the adapter, the stand-in's books)."""
    with stripe_stand_in() as (address, books):
        yield Stripe(key="sk_test_none", webhook_secret=WEBHOOK_SECRET, api_base=address), books


def a_charge(method="pm_ok") -> Charge:
    return Charge(uuid4(), uuid4(), 6000, "TWD", method)


async def test_money_is_promised_then_captured_and_a_repeat_finds_the_first(stripe):
    provider, books = stripe
    charge = a_charge()
    promised = await provider.authorise(charge)
    assert (promised.verdict, promised.amount, promised.currency) == (Verdict.AUTHORISED, 6000, "TWD")
    assert (await provider.authorise(charge)).reference == promised.reference
    assert len(books.intents) == 1
    captured = await provider.capture(charge.payment, promised.reference)
    assert captured.verdict is Verdict.CAPTURED
    books.answers.clear()  # Stripe forgets keys after a day; what was captured stays captured
    assert (await provider.capture(charge.payment, promised.reference)).verdict is Verdict.CAPTURED
    assert (await provider.void(charge.payment, promised.reference)).verdict is Verdict.CAPTURED, "too late"
    refund_id = uuid4()
    assert await provider.refund(refund_id, charge.payment, promised.reference, 3000)
    assert await provider.refund(refund_id, charge.payment, promised.reference, 3000)
    assert [refund["amount"] for refund in books.refunds] == ["3000"]


async def test_a_declined_card_and_one_that_wants_a_confirmation(stripe):
    provider, books = stripe
    declined = await provider.authorise(a_charge("pm_declined"))
    assert (declined.verdict, declined.reason) == (Verdict.DECLINED, "Your card was declined.")
    asked = await provider.authorise(charge := a_charge("pm_3ds"))
    assert (asked.verdict, asked.action) == (Verdict.ACTION, "secret_of_the_intent")
    books.intents[asked.reference]["status"] = "requires_capture"  # the buyer confirmed on Stripe's page
    assert (await provider.confirm(charge.payment, asked.reference, "")).verdict is Verdict.AUTHORISED
    assert (await provider.void(charge.payment, asked.reference)).verdict is Verdict.VOIDED


async def test_a_charge_without_an_answer_is_found_again_by_our_id(stripe):
    provider, books = stripe
    charge = a_charge("pm_charge_timeout")
    with pytest.raises(ProviderSilent):
        await provider.authorise(charge)
    found = await provider.look(charge.payment, "", datetime.now(UTC))
    assert (found.verdict, found.amount) == (Verdict.AUTHORISED, 6000)
    assert (await provider.look(uuid4(), "", datetime.now(UTC))).verdict is Verdict.UNKNOWN
    books.down = True
    with pytest.raises(ProviderSilent):
        await provider.look(charge.payment, found.reference, datetime.now(UTC))


async def test_a_booking_is_paid_and_refunded_through_stripe(config, stripe):
    provider, books = stripe
    async with counter(config) as at:
        till = till_on(at.database, provider, clock=at.clock)
        booking = await at.pending()
        buyer = await at.buyer_of(booking)
        payer = Payer(till)
        cut_off = await payer.pay(booking, buyer, method="pm_charge_timeout", key=uuid4().hex)
        assert cut_off.state is PaymentState.STARTED
        resolver = Resolver(till, payer, at.late_money, verdict_seconds=300)
        body = json.dumps(an_event(cut_off.id)).encode()
        await resolver.hear("stripe", body, {"stripe-signature": signed(body)})
        assert await at.state_of(booking) is State.PAID
        assert [intent["status"] for intent in books.intents.values()] == ["succeeded"]
        await refund(till, booking, seats=None, why="refunded", key=uuid4().hex)
        async with at.database.acquire() as connection:
            [owed] = await payments.refunds_of(connection, [cut_off.id])
        books.down = True
        with pytest.raises(ProviderSilent):
            await give_back_money(till, owed)
        books.down = False
        await give_back_money(till, owed)
        await give_back_money(till, owed)
        assert [refund["amount"] for refund in books.refunds] == ["6000"]
        balances = await at.database.fetch(
            "select to_account, sum(amount) as amount from payment.ledger where payment = $1 group by 1", cut_off.id
        )
        assert {row["to_account"]: row["amount"] for row in balances} == {
            "sales": 6000, "refunds": 6000, "provider:stripe": 6000,
        }  # fmt: skip


def an_event(payment: UUID | str, **changes):
    intent = {"id": "pi_0", "object": "payment_intent", "metadata": {"payment": str(payment)}}
    kind = "payment_intent.amount_capturable_updated"
    return {"id": "evt_1", "object": "event", "type": kind, "data": {"object": intent}, **changes}


def signed(body: bytes, *, at: float | None = None, secret: str = WEBHOOK_SECRET) -> str:
    moment = int(at or time.time())
    digest = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


@pytest.mark.parametrize(
    ("event", "header", "code"),
    [
        (an_event(uuid4()), lambda body: "", "webhook_unsigned"),
        (an_event(uuid4()), lambda body: signed(body, secret="another"), "webhook_bad_signature"),
        (an_event(uuid4()), lambda body: signed(body + b" "), "webhook_bad_signature"),
        (an_event(uuid4()), lambda body: signed(body, at=time.time() - 400), "webhook_too_old"),
        (an_event(uuid4(), account="acct_of_somebody"), signed, "webhook_other_account"),
        (an_event("no id of ours"), signed, "unknown_payment"),
        ({"id": "evt_1", "object": "event", "type": "x", "data": {"object": {}}}, signed, "unknown_payment"),
    ],
)
def test_a_webhook_that_we_do_not_act_on(stripe, event, header, code):
    provider, _ = stripe
    body = json.dumps(event).encode()
    with pytest.raises(NoticeRefused) as refusal:
        provider.read_notice(body, {"stripe-signature": header(body)}, datetime.now(UTC))
    assert refusal.value.code == code


def test_a_webhook_names_the_payment_it_is_about(stripe):
    provider, _ = stripe
    payment = uuid4()
    body = json.dumps(an_event(payment)).encode()
    notice = provider.read_notice(body, {"stripe-signature": signed(body)}, datetime.now(UTC))
    assert (notice.id, notice.payment) == ("evt_1", payment)
