"""Steps of `features/buyer/` that run on every log: choosing seats and the payment window."""

import time
from datetime import datetime
from uuid import UUID

from pytest_bdd import given, parsers, then, when

from tests.people import expect, new_key
from tests.stories.conftest import asks, has

A1 = {"section": "A", "subsection": 1}


def seats_of(booking):
    return sorted(seat for part in booking["seats"] for seat in part["seats"])


@when(parsers.re(r"a buyer books the seats (?P<one>\d+-\d+) and (?P<other>\d+-\d+)"))
def books_named(story, buyers, one, other):
    asks(story, buyers[0], seats=[one, other], **A1)


@given(parsers.re(r"a buyer has booked the seats (?P<one>\d+-\d+) and (?P<other>\d+-\d+)"))
def has_booked_named(story, buyers, one, other):
    has(story, buyers[0], seats=[one, other], **A1)


@when(parsers.re(r"another buyer books the seats (?P<one>\d+-\d+) and (?P<other>\d+-\d+)(?P<fewer> and .* fewer)?"))
def another_books_named(story, buyers, one, other, fewer):
    asks(story, buyers[2], seats=[one, other], allow_partial=bool(fewer), **A1)


@given(parsers.parse("buyers have booked all {seats:d} seats"))
def all_booked(story, buyers, seats):
    for buyer in buyers[:2]:
        has(story, buyer, quantity=seats // 2)


@when("the same buyer asks for 1 more seat")
def asks_for_more(story):
    story.answer = story.buyer.post("/bookings", {"event_id": story.event, "quantity": 1}, key=new_key())


@when("another buyer asks for 1 seat")
def another_asks(story, buyers):
    story.buyer = buyers[2]
    story.answer = story.buyer.post("/bookings", {"event_id": story.event, "quantity": 1}, key=new_key())
    story.booking = story.answer.json().get("id", str(UUID(int=0)))


@then(parsers.parse('the buyer hears "{reason}"'))
def hears(story, reason):
    """At once, or, if the order came in the moment before the hall was known to be full, as the booking's end."""
    if story.answer.status_code == 409:
        assert story.answer.json()["code"] == reason
    else:
        failed_because(story, reason)


@when("15 minutes pass without payment")
def window_closes(story, stage):
    stage.overdue(story.booking)
    story.moved_at = time.monotonic()


@when("the buyer cancels")
def cancels(story):
    expect(200, story.buyer.post(f"/bookings/{story.booking}/cancel"))


@when("another buyer cancels the booking")
def another_cancels(story, buyers):
    story.answer = buyers[2].post(f"/bookings/{story.booking}/cancel")


@then(parsers.parse("the buyer has {count:d} adjacent seats and pays {total:d} TWD"))
def has_adjacent(story, count, total):
    booking = story.buyer.booking(story.booking)
    places = sorted(tuple(map(int, seat.split("-"))) for seat in seats_of(booking))
    assert len(places) == count
    assert [(places[0][0], places[0][1] + n) for n in range(count)] == places
    assert (booking["total"], booking["currency"]) == (total, "TWD")


@then(parsers.re(r"the (other )?buyer has the seats? (?P<seats>[\d-]+( and [\d-]+)?)"))
def has_the_seats(story, stage, seats):
    assert seats_of(story.buyer.booking(story.booking)) == seats.split(" and ")


@then(parsers.parse('the booking is FAILED because of "{reason}"'))
def failed_because(story, reason):
    booking = story.buyer.waits_for(story.booking, "FAILED", "PENDING_PAYMENT")
    assert (booking["state"], booking["reason"], booking["seats"]) == ("FAILED", reason, [])


@then("the other buyer has no seat")
def has_no_seat(story, stage):
    assert stage.fetch("select 1 from ticketing.tickets where booking = $1", story.booking) == []
    assert stage.fetch("select 1 from booking.purchases where buyer::text = $1 and seats > 0", story.buyer.id) == []


@then(parsers.parse("the seat {seat} can still be booked"))
def can_still_be_booked(story, buyers, seat):
    has(story, buyers[1], seats=[seat], **A1)


@then("another buyer can book those seats")
def another_can_book(story, buyers):
    freed = seats_of(story.buyer.booking(story.booking))
    assert freed, "a cancelled booking still says which seats it had"
    has(story, buyers[1], seats=freed, **A1)


@then(parsers.parse("the buyer may pay for {minutes:d} minutes"))
def may_pay_for(story, minutes):
    booking = story.buyer.booking(story.booking)
    window = datetime.fromisoformat(booking["pay_before"]) - datetime.fromisoformat(booking["placed_at"])
    assert minutes * 60 <= window.total_seconds() < minutes * 60 + 60


@then("the booking is CANCELLED within 5 seconds")
def cancelled_in_time(story):
    story.buyer.waits_for(story.booking, "CANCELLED")
    assert time.monotonic() - story.moved_at < 5


@then(parsers.parse("the hall shows {seats:d} seats available within 5 seconds"))
def free_in_time(story, seats):
    story.buyer.waits_until_free(story.event, seats)
    assert time.monotonic() - story.moved_at < 5


@then("cancelling again changes nothing")
def cancelling_again(story):
    before = story.buyer.booking(story.booking)
    assert expect(200, story.buyer.post(f"/bookings/{story.booking}/cancel")) == before


@then(parsers.parse("the buyer sees {count:d} bookings, the newest first"))
def sees_bookings(story, count):
    mine = [b for b in expect(200, story.buyer.get("/bookings"))["items"] if b["event_id"] == story.event]
    assert len(mine) == count
    assert mine[0]["id"] == story.booking
    assert mine[0]["placed_at"] > mine[1]["placed_at"]


@then("another buyer sees none of them")
def others_see_none(story, buyers):
    assert all(b["event_id"] != story.event for b in expect(200, buyers[1].get("/bookings"))["items"])
    assert buyers[1].get(f"/bookings/{story.booking}").status_code == 404
