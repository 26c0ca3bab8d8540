"""The stories of sellers over HTTP: halls, prices, the sale."""

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from tests.people import Person, a_hall, expect
from tests.stories.conftest import asks, has

pytestmark = pytest.mark.xdist_group("stage-seller")  # one stage for the module, in one worker

scenarios("features/seller/create_events.feature", "features/seller/price_sections.feature")


@pytest.fixture(scope="module")
def other_seller(stage):
    with stage.person("seller") as seller:
        yield seller


def hall_of(name, datatable):
    sections = []
    for row in datatable[1:]:
        plan = dict(zip(datatable[0], row, strict=True))
        subsections = {"rows": int(plan["rows"]), "seats_per_row": int(plan["seats"])}
        marked = {mark: plan[mark].split() for mark in ("blocked", "accessible")}
        subsections |= {"count": int(plan["subsections"]), **marked}
        sections.append({"name": plan["section"], "price": int(plan["price"]), "subsections": [subsections]})
    return a_hall(name=name, sections=sections)


@given("a seller")
def a_seller(seller):
    assert expect(200, seller.get("/me"))["role"] == "seller"


@when(parsers.parse('the seller creates "{name}" with this hall'))
def creates(story, seller, name, datatable):
    story.event = seller.creates(hall_of(name, datatable))


@given(parsers.parse('"{name}" is on sale in this hall'))
def on_sale_in(story, seller, name, datatable):
    story.event = seller.opens(hall_of(name, datatable))


@then(parsers.parse("the event has {seats:d} seats"))
def has_seats(story, seller, seats):
    assert expect(200, seller.get(f"/seller/events/{story.event}"))["seats"] == seats


@then(parsers.parse("there are {tickets:d} tickets, of which {blocked:d} cannot be sold"))
def tickets_are_there(story, stage, tickets, blocked):
    states = [r["state"] for r in stage.fetch("select state from ticketing.tickets where event_id = $1", story.event)]
    assert (len(states), states.count(3), states.count(0)) == (tickets, blocked, tickets - blocked)


@then(parsers.parse("the store offers {seats:d} seats"))
def store_offers(story, seller, seats):
    expect(200, seller.post(f"/events/{story.event}/open"))
    assert seller.free(story.event) == seats


@then("tickets and store agree")
def agree(story, stage):
    stage.settle(story.event)


@then("a buyer does not find the event")
def does_not_find(story, buyers):
    assert buyers[0].get(f"/events/{story.event}").status_code == 404
    assert story.event not in [event["id"] for event in expect(200, buyers[0].get("/events", limit=100))["items"]]


@then("a buyer finds the event")
def finds(story, buyers):
    assert expect(200, buyers[0].get(f"/events/{story.event}"))["state"] == "on_sale"
    assert story.event in [event["id"] for event in expect(200, buyers[0].get("/events", limit=100))["items"]]


@when("the seller closes the sale")
def closes(story, seller):
    assert expect(200, seller.post(f"/events/{story.event}/close"))["state"] == "closed"


@when("another seller closes the sale")
def another_closes(story, other_seller):
    story.answer = other_seller.post(f"/events/{story.event}/close")


FAULTS = {
    "two sections of the same name": a_hall(("A", 1, 1, 1), ("A", 2, 1, 1)),
    "a blocked seat that is not there": a_hall(
        sections=[{"name": "A", "price": 1, "subsections": [{"rows": 1, "seats_per_row": 2, "blocked": ["1-3"]}]}]
    ),
    "a subsection of 10,001 seats": a_hall(("A", 1, 73, 137)),
    "no section and no pool": a_hall(),
    "a price of -1": a_hall(("A", -1, 1, 1)),
    "a date without an offset": a_hall(("A", 1, 1, 1), starts_at="2027-12-31T20:00:00"),
}
ROWS = "select (select count(*) from ticketing.events) as events, (select count(*) from ticketing.tickets) as tickets"


@when(parsers.parse("the seller describes an event with {fault}"), target_fixture="rows_before")
def describes(story, seller: Person, stage, fault):
    before = stage.fetch(ROWS)
    story.answer = seller.post("/events", FAULTS[fault])
    return before


@then("there is no new event and no new ticket")
def nothing_new(stage, rows_before):
    assert stage.fetch(ROWS) == rows_before


@then("the sections are")
def the_sections_are(story, buyers, datatable):
    shown = expect(200, buyers[0].get(f"/events/{story.event}/sections"))
    assert [[s["section"], str(s["price"]), str(s["available"])] for s in shown] == datatable[1:]


@when(parsers.parse("a buyer books {seats:d} seats in section {section}"))
def books_in(story, buyers, seats, section):
    asks(story, buyers[0], quantity=seats, section=section)


@given(parsers.parse("a buyer has booked {seats:d} seats in section {section}"))
def has_booked_in(story, buyers, seats, section):
    has(story, buyers[1], quantity=seats, section=section)


@when(parsers.parse("a buyer books {seats:d} seats anywhere"))
def books_anywhere(story, buyers, seats):
    asks(story, buyers[0], quantity=seats)


@then(parsers.parse("the booking is PENDING_PAYMENT and costs {total:d} TWD"))
def costs(story, total):
    booking = story.buyer.waits_for(story.booking, "PENDING_PAYMENT")
    assert (booking["total"], booking["currency"]) == (total, "TWD")
