"""The stories of paying and of giving back, over HTTP, with the sandbox provider."""

from uuid import UUID

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from tests.payment.steps import look_now
from tests.people import a_hall, expect, new_key
from tests.running import wait_until
from tests.stories.conftest import has

pytestmark = pytest.mark.xdist_group("stage-pay")  # one stage for the module, in one worker

pytest_plugins = ["tests.stories.buying"]

scenarios("features/buyer/pay.feature", "features/buyer/refund.feature")


@pytest.fixture(scope="module")
def settings():
    return {"sandbox_late_seconds": 1}


@given(parsers.parse('"{name}" is on sale with {seats:d} seats for nothing'))
def on_sale_for_nothing(story, seller, name, seats):
    story.event = seller.opens(a_hall(("A", 0, 1, seats), name=name))


@given(parsers.parse("a buyer has paid for {quantity:d} seats"))
def has_paid(story, stage, buyers, quantity):
    has(story, buyers[0], quantity=quantity)
    buyers[0].pays(story.booking)
    stage.settle(story.event)


@when(parsers.parse('the buyer pays with "{card}"'))
def pays(story, card):
    path = f"/bookings/{story.booking}/payments"
    story.answer = story.buyer.post(path, {"method": card}, key=new_key())


@when(parsers.parse('the buyer confirms with "{code}"'))
def confirms(story, code):
    path = f"/bookings/{story.booking}/payments/{story.answer.json()['id']}/confirm"
    story.answer = story.buyer.post(path, {"code": code})


@when("14 minutes pass")
def nearly_over(story, stage):
    stage.fetch("update booking.bookings set deadline = now() + interval '1 minute' where id = $1", UUID(story.booking))


@when("10 seconds pass")
def a_while(stage):
    look_now(stage)


@when("the buyer asks for a refund")
def asks_for_refund(story):
    story.answer = story.buyer.post(f"/bookings/{story.booking}/refund", key=new_key())


@when("another buyer asks for a refund of it")
def another_asks_for_refund(story, buyers):
    story.answer = buyers[1].post(f"/bookings/{story.booking}/refund", key=new_key())


@when("the event begins")
def event_begins(story, stage):
    async def begin(database, store):
        await database.execute("update ticketing.events set starts_at = now() where id = $1", story.event)
        await store.call("DEL", f"{store.prefix}event:cache:{story.event}")

    stage.look(begin)
    path = f"/events/{story.event}"
    before = story.buyer.get(path).json()["starts_at"]
    wait_until(lambda: story.buyer.get(path).json()["starts_at"] != before, "the event begins")


@when("the seller refunds the first seat")
def seller_refunds_seat(story, seller):
    [part, *_] = story.buyer.booking(story.booking)["seats"]
    seats = [{"section": part["section"], "subsection": part["subsection"], "seats": part["seats"][:1]}]
    path, key = f"/seller/bookings/{story.booking}/refund", new_key()
    first = expect(200, seller.post(path, {"seats": seats}, key=key))
    assert expect(200, seller.post(path, {"seats": seats}, key=key)) == first, "the same key, the same effect, once"


@when("the seller refunds the whole booking")
def seller_refunds_all(story, seller):
    expect(200, seller.post(f"/seller/bookings/{story.booking}/refund", {}, key=new_key()))


@then(parsers.parse("the payment is {state} over {amount:d} {currency}"))
def payment_is(story, state, amount, currency):
    payment = expect(201, story.answer)
    assert (payment["state"], payment["amount"], payment["currency"]) == (state, amount, currency)


@then(parsers.parse("the buyer has {count:d} sold tickets"))
def has_tickets(story, stage, count):
    rows = stage.fetch("select state from ticketing.tickets where booking = $1", UUID(story.booking))
    assert [row["state"] for row in rows] == [2] * count


@then(parsers.parse("the buyer has got {amount:d} TWD back"))
def got_back(story, stage, amount):
    def returned():
        [payment] = expect(200, story.buyer.get(f"/bookings/{story.booking}/payments"))
        return sum(refund["amount"] for refund in payment["refunds"] if refund["state"] == "DONE")

    wait_until(lambda: returned() == amount, f"{amount} TWD are back")
    rows = stage.fetch(
        """select c.refunded from payment.sandbox_charges c join payment.payments p on p.id = c.payment
           where p.booking = $1""",
        UUID(story.booking),
    )
    assert [row["refunded"] for row in rows] == [amount], "the provider's books say the same"


@then("asking for a refund again changes nothing")
def refund_again(story, stage):
    before = story.buyer.booking(story.booking)
    assert expect(200, story.buyer.post(f"/bookings/{story.booking}/refund", key=new_key())) == before
    assert len(stage.fetch("select 1 from payment.refunds where booking = $1", UUID(story.booking))) == 1
