"""What the stories of buyers and sellers share: a stage, the people on it, and the steps that both kinds use."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from pytest_bdd import given, parsers, then, when

from tests.people import Person, a_hall, expect, new_key, refused


@pytest.fixture(scope="module")
def buyers(stage):
    """Three buyers; the first one registered over HTTP as everybody does."""
    with stage.person("buyer") as first, Person(stage.address) as second, Person(stage.address) as third:
        second.token, third.token = asyncio.run(stage.tokens(2))
        yield [first, second, third]


@pytest.fixture
def story(stage):
    """What has happened so far. The event of the story is held against the invariants when the story is over."""
    told = SimpleNamespace(event=None, booking="", buyer=None, answer=None, moved_at=0.0)
    yield told
    if told.event is not None:
        stage.settle(told.event)


@given(parsers.parse('"{name}" with one section of {rows:d} rows of {seats:d} seats at {price:d} TWD'))
def one_section(story, seller, name, rows, seats, price):
    story.event = seller.creates(a_hall(("A", price, rows, seats), name=name))


@given("the sale is open")
@when("the seller opens the sale")
def opens_the_sale(story, seller):
    assert expect(200, seller.post(f"/events/{story.event}/open"))["state"] == "on_sale"


@given(parsers.parse('"{name}" is on sale with {seats:d} seats'))
def on_sale(story, seller, name, seats):
    story.event = seller.opens(a_hall(("A", 3000, 2, seats // 2), name=name))


@when(parsers.parse("a buyer books {quantity:d} seats"))
def books(story, buyers, quantity):
    asks(story, buyers[0], quantity=quantity)


@when(parsers.parse("another buyer books {quantity:d} seats"))
def another_books(story, buyers, quantity):
    asks(story, buyers[2], quantity=quantity)


@given(parsers.parse("a buyer has booked {quantity:d} seats"))
@given(parsers.parse("the buyer has booked {quantity:d} seats more"))
@then(parsers.parse("a buyer can book {quantity:d} seats"))
def has_booked(story, buyers, quantity):
    has(story, buyers[0], quantity=quantity)


@then(parsers.re(r"the booking is (?P<state>[A-Z_]+)"))
def booking_is(story, state):
    assert story.buyer.waits_for(story.booking, state)["state"] == state


@then(parsers.parse("the hall shows {seats:d} seats available"))
def hall_shows(story, buyers, seats):
    buyers[0].waits_until_free(story.event, seats)


@then(parsers.parse('that is refused with "{code}"'))
def that_is_refused(story, code):
    refused(story.answer.status_code, code, story.answer)
    assert story.answer.status_code >= 400


@then(parsers.parse('a booking for it is refused with "{code}"'))
def booking_is_refused(story, buyers, stage, code):
    story.answer = buyers[0].post("/bookings", {"event_id": story.event, "quantity": 1}, key=new_key())
    that_is_refused(story, code)
    assert stage.fetch("select 1 from booking.bookings where event_id = $1 and state = 'PROCESSING'", story.event) == []


def asks(story, buyer, quantity=None, **order):
    story.buyer, story.booking = buyer, buyer.books(story.event, quantity, **order)
    story.moved_at = time.monotonic()


def has(story, buyer, quantity=None, **order):
    asks(story, buyer, quantity, **order)
    buyer.waits_for(story.booking, "PENDING_PAYMENT")
