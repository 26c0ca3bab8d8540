"""The stories of holds and the cart over HTTP."""

import base64
from datetime import datetime, timedelta

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from tests.people import expect, new_key, refused
from tests.running import wait_until
from tests.shop import time_passes

pytestmark = pytest.mark.xdist_group("stage-buyer-holds")  # one stage for the module, in one worker

pytest_plugins = ["tests.stories.buying"]

scenarios("features/buyer/hold_seats.feature")


@pytest.fixture(autouse=True)
def empty_carts(buyers):
    """The buyers of the module meet every story with an empty cart, and leave none."""
    yield
    for buyer in buyers:
        assert buyer.send("DELETE", "/cart").status_code == 204


def hold(story, buyer, order):
    story.buyer = buyer
    story.answer = buyer.post(f"/events/{story.event}/holds", order, key=new_key())


def named(one, other):
    return {"mode": "manual", "section": "A", "subsection": 1, "seats": [one, other]}


def cart_of(story):
    return expect(200, story.buyer.get("/cart"))


def seats_in(held):
    return sorted(seat for one in held["holds"] for part in one["seats"] for seat in part["seats"])


PAIR = r"(?P<one>\d+-\d+) and (?P<other>\d+-\d+)"


@given(parsers.re(rf"a buyer holds the seats {PAIR}"))
@when(parsers.re(rf"a buyer holds the seats {PAIR}"))
def holds_named(story, buyers, one, other):
    hold(story, buyers[0], named(one, other))
    story.hold = expect(201, story.answer)
    story.cart = cart_of(story)


@when(parsers.re(rf"another buyer holds the seats {PAIR}"))
def another_holds(story, buyers, one, other):
    hold(story, buyers[1], named(one, other))


@then(parsers.re(rf"another buyer can hold the seats {PAIR}"))
def another_can_hold(story, buyers, one, other):
    hold(story, buyers[1], named(one, other))
    expect(201, story.answer)


@given("the buyer holds the best 2 seats as well")
def holds_best(story):
    hold(story, story.buyer, {"quantity": 2})
    expect(201, story.answer)
    story.cart = cart_of(story)


@when("the buyer checks out")
def checks_out(story):
    story.booking = expect(201, story.buyer.post("/cart/checkout", key=new_key()))["id"]


@when(parsers.re(rf"a buyer takes the seats {PAIR} at once"))
def takes_at_once(story, buyers, one, other):
    story.buyer = buyers[0]
    order = {"order": {"event_id": story.event, **named(one, other)}}
    story.booking = expect(201, story.buyer.post("/cart/checkout", order, key=new_key()))["id"]


@when("the buyer lets the hold go")
def lets_go(story):
    assert story.buyer.send("DELETE", f"/events/{story.event}/holds/{story.hold['id']}").status_code == 204


@when("the buyer asks for more time")
def asks_for_time(story):
    path = f"/events/{story.event}/holds/{story.hold['id']}/extend"
    expect(200, story.buyer.post(path, key=new_key()))


@when(parsers.parse("the price becomes {price:d} TWD"))
def price_becomes(story, seller, price):
    change = {"prices": {"A": price}}
    expect(200, seller.send("PATCH", f"/events/{story.event}", json=change))
    sections = f"/events/{story.event}/sections"
    wait_until(lambda: seller.get(sections).json()[0]["price"] == price, "the new price is shown")


@when("10 minutes pass without a checkout")
def time_is_over(story, stage):
    stage.look(lambda _, store: time_passes(store, story.event, story.buyer.id))


@then(parsers.re(rf"the cart has the seats {PAIR} for (?P<total>\d+) TWD"))
def cart_has(story, one, other, total):
    cart = cart_of(story)
    assert (seats_in(cart), cart["total"], cart["currency"]) == ([one, other], int(total), "TWD")


@then(parsers.parse("the cart lasts {minutes:d} minutes"))
def cart_lasts(story, minutes):
    left = datetime.fromisoformat(cart_of(story)["expires_at"]) - datetime.now().astimezone()
    assert timedelta(minutes=minutes - 1) < left <= timedelta(minutes=minutes)


@then("the cart lasts longer than before")
def lasts_longer(story):
    assert cart_of(story)["expires_at"] > story.cart["expires_at"]


@then(parsers.parse("no extension goes beyond {minutes:d} minutes"))
def no_extension_beyond(story, minutes):
    cart = cart_of(story)
    longest = datetime.fromisoformat(cart["extendable_until"]) - datetime.now().astimezone()
    assert timedelta(minutes=minutes - 1) < longest <= timedelta(minutes=minutes)
    assert cart["extendable_until"] == story.cart["extendable_until"], "it counts from the first hold"


@then("the cart is empty")
def cart_is_empty(story):
    assert cart_of(story)["holds"] == []


@then(parsers.re(rf"the live map shows the seats {PAIR} as taken"))
def live_map_shows(story, one, other):
    def states():
        packed = base64.b64decode(expect(200, story.buyer.get(f"/events/{story.event}/seatmap"))["map"])
        return [packed[0] >> 6 & 3, packed[0] >> 4 & 3]

    assert (one, other) == ("1-1", "1-2")
    wait_until(lambda: states() == [1, 1], "the map shows both seats as reserved")


@then(parsers.parse("the refusal names the seat {seat}"))
def refusal_names(story, seat):
    assert story.answer.json()["seats"] == [seat]


@then(parsers.parse("the booking has the seats of the cart and costs {total:d} TWD"))
def booking_has(story, total):
    booking = story.buyer.booking(story.booking)
    booked = sorted(seat for part in booking["seats"] for seat in part["seats"])
    assert (booked, booking["total"]) == (seats_in(story.cart), total)


@then(parsers.parse('checking out is refused with "{code}"'))
def checkout_is_refused(story, code):
    refused(409, code, story.buyer.post("/cart/checkout", key=new_key()))
