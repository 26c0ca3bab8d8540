"""Payments, refunds and webhooks that must be refused: a precise code each, no state changed, no money moved."""

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from aisle.accounts.account import Role
from aisle.payment.signature import sign
from tests.payment.steps import look_now, pay, payments_of, pending
from tests.people import a_hall, expect, new_key, refused

SECRET = "the secret of the webhooks"


@pytest.fixture(scope="module")
def settings():
    return {"sandbox_webhook_secret": SECRET}


@pytest.fixture(scope="module")
def other(stage):
    with stage.person("buyer") as other:
        yield other


@pytest.fixture(scope="module")
def event(stage, seller):
    event = seller.opens(a_hall(("A", 3000, 10, 10), seats_per_buyer=100))
    yield event
    stage.settle(event)


@pytest.fixture
def unchanged(stage, event):
    """Nothing that the test does moves a booking, a ticket or money."""
    stage.settle(event)  # what is still on its way is not the test's doing

    def everything():
        return [
            stage.fetch("select id, state, reason from booking.bookings order by id"),
            stage.fetch("select place, seat, state, booking from ticketing.tickets order by event_id, place, seat"),
            stage.fetch("select id, state from payment.payments order by id"),
            stage.fetch("select * from payment.ledger order by id"),
            stage.fetch("select * from payment.sandbox_charges order by payment"),
        ]

    before = everything()
    yield
    assert everything() == before


def ended(stage, buyer, event, how):
    booking = pending(buyer, event, 1)
    if how == "paid":
        buyer.pays(booking)
    elif how == "refunded":
        buyer.pays(booking)
        expect(200, buyer.post(f"/bookings/{booking}/refund", key=new_key()))
    elif how == "cancelled":
        expect(200, buyer.post(f"/bookings/{booking}/cancel"))
    elif how == "expired":
        stage.overdue(booking)
        buyer.waits_for(booking, "CANCELLED")
    stage.settle(event)
    return booking


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("paid", "already_paid"),
        ("refunded", "booking_refunded"),
        ("cancelled", "booking_cancelled"),
        ("expired", "booking_expired"),
    ],
)
def test_a_booking_that_does_not_wait_for_money(request, stage, buyer, event, how, code):
    booking = ended(stage, buyer, event, how)
    request.getfixturevalue("unchanged")
    refused(409, code, pay(buyer, booking))


def test_a_booking_whose_time_is_over_this_moment(stage, buyer, event):
    booking = pending(buyer, event, 1)
    stage.overdue(booking)
    refused(409, "booking_expired", pay(buyer, booking))
    assert payments_of(stage, booking) == []
    buyer.waits_for(booking, "CANCELLED")  # or it would be cancelled while the next test says that nothing moves


def test_somebody_elses_booking_and_one_that_does_not_exist(request, buyer, other, event):
    booking = pending(buyer, event, 1)
    request.getfixturevalue("unchanged")
    refused(404, "not_found", pay(other, booking))
    refused(404, "not_found", pay(other, str(uuid4())))
    refused(404, "not_found", other.get(f"/bookings/{booking}/payments"))
    refused(404, "not_found", other.post(f"/bookings/{booking}/refund", key=new_key()))
    refused(404, "not_found", other.post(f"/bookings/{booking}/payments/{uuid4()}/confirm", {"code": "000000"}))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"method": "card_ok", "amount": 1},
        {"method": "card_ok", "amount": -6000},
        {"method": "card_ok", "amount": 59.99},
        {"method": "card_ok", "currency": "EUR"},
        {"method": "card_ok", "state": "CAPTURED"},
        {"method": "4242 4242 4242 4242"},
        {"method": 7},
        {"method": "x" * 500},
        [],
    ],
    ids=str,
)
def test_amounts_currencies_and_states_are_not_read_from_the_buyer(request, buyer, event, body):
    booking = pending(buyer, event, 1)
    request.getfixturevalue("unchanged")
    refused(400, "invalid_request", buyer.post(f"/bookings/{booking}/payments", body, key=new_key()))


def test_a_payment_needs_a_key_and_a_key_means_one_payment(buyer, event):
    booking, another = pending(buyer, event, 1), pending(buyer, event, 1)
    refused(400, "invalid_request", buyer.post(f"/bookings/{booking}/payments", {"method": "card_ok"}))
    key = new_key()
    first = expect(201, pay(buyer, booking, key=key))
    assert expect(201, pay(buyer, booking, key=key)) == first
    refused(422, "key_reused", pay(buyer, another, key=key))
    refused(422, "key_reused", pay(buyer, booking, "card_declined", key=key))


def test_a_card_that_does_not_exist_is_declined(buyer, event):
    booking = pending(buyer, event, 1)
    refused(402, "payment_declined", pay(buyer, booking, "card_of_nobody"))
    assert buyer.booking(booking)["state"] == "PENDING_PAYMENT"


def test_other_money_than_was_asked_for_is_held_for_a_person(stage, buyer, event):
    booking = pending(buyer, event, 1)
    payment = expect(201, pay(buyer, booking, "card_wrong_amount"))
    assert (payment["state"], "3001" in payment["reason"]) == ("REVIEW", True)
    assert buyer.booking(booking)["state"] == "PENDING_PAYMENT", "no seats are sold for it, another card may pay"
    operator = stage.staff(Role.OPERATOR)
    assert payment["id"] in [held["id"] for held in expect(200, operator.get("/payments/review"))]
    refused(403, "forbidden", buyer.get("/payments/review"))
    buyer.pays(booking)


def test_a_seller_decides_about_own_events_only_and_once(stage, seller, buyer, event):
    booking = pending(buyer, event, 1)
    payment = expect(201, pay(buyer, booking, "card_wrong_amount"))
    path = f"/payments/{payment['id']}/decision"
    with stage.person("seller") as stranger:
        refused(404, "not_found", stranger.post(path, {"decision": "accept"}, key=new_key()))
        assert payment["id"] not in [held["id"] for held in expect(200, stranger.get("/payments/review"))]
    refused(403, "forbidden", buyer.post(path, {"decision": "accept"}, key=new_key()))
    refused(404, "not_found", seller.post(f"/payments/{uuid4()}/decision", {"decision": "accept"}, key=new_key()))
    refused(400, "invalid_request", seller.post(path, {"decision": "accept"}))
    for body in ({}, {"decision": "keep"}, {"decision": "accept", "amount": 1}, {"decision": None}, []):
        refused(400, "invalid_request", seller.post(path, body, key=new_key()))
    [held] = [held for held in expect(200, seller.get("/payments/review")) if held["id"] == payment["id"]]
    assert (held["amount"], held["held"], held["held_currency"], held["decision"]) == (3000, 3001, "TWD", "")
    key = new_key()
    done = expect(200, seller.post(path, {"decision": "accept"}, key=key))
    assert (done["state"], done["decision"]) == ("CAPTURED", "accept")
    assert expect(200, seller.post(path, {"decision": "accept"}, key=key))["state"] == "CAPTURED"
    assert expect(200, seller.post(path, {"decision": "accept"}, key=new_key()))["state"] == "CAPTURED"
    refused(422, "key_reused", seller.post(path, {"decision": "refund"}, key=key))
    refused(409, "not_in_review", seller.post(path, {"decision": "refund"}, key=new_key()))
    assert buyer.booking(booking)["state"] == "PAID"
    look_now(stage)
    stage.settle(event)


def test_a_payment_that_wants_no_confirmation(buyer, event):
    booking = pending(buyer, event, 1)
    payment = buyer.pays(booking)
    path = f"/bookings/{booking}/payments/{payment['id']}/confirm"
    refused(409, "no_action_needed", buyer.post(path, {"code": "000000"}))


def test_a_refund_of_seats_that_are_not_in_the_booking(request, stage, seller, buyer, event):
    booking = ended(stage, buyer, event, "paid")
    request.getfixturevalue("unchanged")
    path = f"/seller/bookings/{booking}/refund"
    for seats in (["10-10"], ["99-1"], ["1-99"]):
        body = {"seats": [{"section": "A", "subsection": 1, "seats": seats}]}
        refused(409, "not_in_booking", seller.post(path, body, key=new_key()))
    body = {"seats": [{"section": "Z", "subsection": 1, "seats": ["1-1"]}]}
    refused(409, "not_in_booking", seller.post(path, body, key=new_key()))
    with stage.person("seller") as stranger:
        refused(404, "not_found", stranger.post(path, {}, key=new_key()))


# Webhooks.


def a_notice(payment, **changes):
    return {"id": f"note_{uuid4().hex}", "account": "sandbox", "payment": payment, "kind": "authorised", **changes}


def send(buyer, notice, *, signature=None, provider="sandbox", signed_at=None, secret=SECRET):
    body = json.dumps(notice).encode() if not isinstance(notice, bytes) else notice
    header = signature if signature is not None else sign(secret, body, signed_at or datetime.now(UTC))
    headers = {"aisle-signature": header, "content-type": "application/json"}
    return buyer.send("POST", f"/payments/webhooks/{provider}", headers=headers, content=body)


@pytest.fixture
def waiting(stage, buyer, event):
    """A payment that the provider has charged and did not answer."""
    booking = pending(buyer, event, 1)
    payment = expect(201, pay(buyer, booking, "card_charge_timeout"))
    yield payment["id"]
    look_now(stage)
    buyer.waits_for(booking, "PAID")


def test_a_webhook_that_is_unsigned_old_forged_or_for_somebody_else_does_nothing(waiting, unchanged, buyer):
    good = a_notice(waiting)
    refused(400, "webhook_unsigned", send(buyer, good, signature=""))
    refused(400, "webhook_unsigned", send(buyer, good, signature="t=soon,v1=00"))
    refused(400, "webhook_bad_signature", send(buyer, good, signature=f"t={int(datetime.now(UTC).timestamp())},v1=00"))
    refused(400, "webhook_bad_signature", send(buyer, good, secret="another secret"))
    old = datetime.now(UTC) - timedelta(seconds=301)
    refused(400, "webhook_too_old", send(buyer, good, signed_at=old))
    refused(400, "webhook_too_old", send(buyer, good, signed_at=datetime.now(UTC) + timedelta(seconds=310)))
    refused(403, "webhook_other_account", send(buyer, a_notice(waiting, account="somebody")))
    refused(404, "unknown_payment", send(buyer, a_notice(str(uuid4()))))
    refused(400, "webhook_unreadable", send(buyer, a_notice("not an id")))
    refused(400, "webhook_unreadable", send(buyer, b"\xff\xfe not JSON"))
    refused(404, "unknown_provider", send(buyer, good, provider="nobody"))
    body = json.dumps(good).encode()
    signature = sign(SECRET, body, datetime.now(UTC))
    refused(400, "webhook_bad_signature", send(buyer, body + b" ", signature=signature))


def test_a_webhook_that_is_signed_tells_us_to_look(stage, buyer, waiting):
    notice = a_notice(waiting)
    assert expect(200, send(buyer, notice)) == {"heard": True}
    assert expect(200, send(buyer, notice)) == {"heard": True}
    [row] = stage.fetch("select state from payment.payments where id::text = $1", waiting)
    assert row["state"] == "CAPTURED"
    assert len(stage.fetch("select 1 from payment.ledger where payment::text = $1", waiting)) == 1


def test_the_books_cannot_be_rewritten(stage, buyer, event):
    buyer.pays(pending(buyer, event, 1))
    for statement in ("update payment.ledger set amount = 1", "delete from payment.ledger", "truncate payment.ledger"):
        with pytest.raises(Exception, match="only ever added to"):
            stage.fetch(statement)
