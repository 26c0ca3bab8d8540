"""The stories of tickets, doors and sales figures over HTTP."""

import asyncio
import csv
import io
import threading
from datetime import datetime

import pypdfium2
import pytest
import zxingcpp
from pytest_bdd import given, parsers, scenarios, then, when

from tests.door import email_of, scan_id, tickets_of
from tests.integration.live_stage import browsing
from tests.people import a_hall, expect, new_key
from tests.stories.conftest import has

pytestmark = pytest.mark.xdist_group("stage-tickets-stories")  # one stage for the module, in one worker

scenarios("features/buyer/tickets.feature", "features/door", "features/seller/sales.feature")


@pytest.fixture(scope="module")
def other_seller(stage):
    with stage.person("seller") as seller:
        yield seller


def stand_at(door, seller, event):
    expect(200, seller.send("PUT", f"/events/{event}/door-staff", json={"email": email_of(door)}))


@given("somebody stands at the door", target_fixture="door")
def somebody_at_the_door(stage, story, seller):
    door = stage.staff()
    stand_at(door, seller, story.event)
    return door


@given(parsers.parse("a buyer has paid for {quantity:d} seats"))
@when(parsers.parse("a buyer pays for {quantity:d} seats"))
def has_paid(story, stage, buyers, quantity):
    has(story, buyers[0], quantity=quantity)
    buyers[0].pays(story.booking)
    stage.settle(story.event)
    story.tickets = tickets_of(buyers[0], story.booking)


@given(parsers.parse("another buyer has booked {quantity:d} seats"))
def another_has_booked(stage, story, buyers, quantity):
    buyers[1].waits_for(buyers[1].books(story.event, quantity), "PENDING_PAYMENT")
    stage.settle(story.event)


@given(parsers.parse("the buyer has booked {quantity:d} seats more and lets them go"))
def books_and_lets_go(stage, story, buyers, quantity):
    booking = buyers[0].books(story.event, quantity)
    buyers[0].waits_for(booking, "PENDING_PAYMENT")
    expect(200, buyers[0].post(f"/bookings/{booking}/cancel"))
    stage.settle(story.event)


@given("the buyer keeps a copy of the tickets")
def keeps_a_copy(story):
    story.code = story.tickets[0]["code"]


@when("the buyer asks for the tickets")
def asks_for_tickets(story):
    story.answer = story.buyer.get(f"/bookings/{story.booking}/tickets")


@when("another buyer asks for the tickets")
def another_asks_for_tickets(story, buyers):
    story.answer = buyers[1].get(f"/bookings/{story.booking}/tickets")


@when("the buyer has the first ticket issued again")
def issued_again(story):
    old = story.tickets[0]
    path = f"/bookings/{story.booking}/tickets/{old['id']}/reissue"
    story.code, story.new = old["code"], expect(200, story.buyer.post(path, {"version": old["version"]}))


@when("the buyer asks for a refund")
def asks_for_refund(story):
    story.answer = story.buyer.post(f"/bookings/{story.booking}/refund", key=new_key())


@when("the first ticket is scanned")
def scanned(story, door):
    body = {"event_id": story.event, "code": story.tickets[0]["code"], "gate": "north"}
    story.answer = door.post("/check-ins", body, key=new_key())


@when("the first ticket is scanned at another event's door")
def scanned_elsewhere(story, door, seller):
    other = seller.opens(a_hall(("A", 1000, 1, 2), name="Day Train"))
    stand_at(door, seller, other)
    body = {"event_id": other, "code": story.tickets[0]["code"]}
    story.answer = door.post("/check-ins", body, key=new_key())


@when("the seller withdraws the staff")
def withdraws(story, seller, door):
    assert seller.send("DELETE", f"/events/{story.event}/door-staff/{door.id}").status_code == 204


@when(parsers.parse("the {gate} door has scanned the first ticket at {time} without a network"))
def scanned_offline(story, door, gate, time):
    scan = {"id": scan_id(), "code": story.tickets[0]["code"], "scanned_at": f"2026-01-31T{time}:00Z"}
    expect(200, door.post("/check-ins/merge", {"event_id": story.event, "gate": gate, "scans": [scan]}))


@then(parsers.parse("the log shows the {first} door at {time} as the entry and the {second} door as the second"))
def log_names_both(story, seller, first, time, second):
    items = expect(200, seller.get(f"/events/{story.event}/scans"))["items"]
    entries = {scan["outcome"]: (scan["gate"], datetime.fromisoformat(scan["scanned_at"])) for scan in items}
    assert entries["accepted"][0] == first
    assert f"{entries['accepted'][1]:%H:%M}" == time
    assert entries["already_in"][0] == second


@then(parsers.re(r'the guest is told "(?P<outcome>\w+)"(?P<more>, and when .*)?'))
def guest_is_told(story, outcome, more):
    told = expect(200, story.answer)
    assert told["outcome"] == outcome
    assert bool(more) == (told["first_entry"] is not None)
    if more:
        assert told["first_entry"]["gate"] == "north"


@then(parsers.parse('the old code is told "{outcome}" at the door'))
def old_code(story, door, outcome):
    answer = door.post("/check-ins", {"event_id": story.event, "code": story.code}, key=new_key())
    assert expect(200, answer)["outcome"] == outcome


@then(parsers.parse('the new code is told "{outcome}" at the door'))
def new_code(story, door, outcome):
    answer = door.post("/check-ins", {"event_id": story.event, "code": story.new["code"]}, key=new_key())
    assert expect(200, answer)["outcome"] == outcome


@then(parsers.parse("the seller's log shows {outcomes}"))
def log_shows(story, seller, outcomes):
    items = expect(200, seller.get(f"/events/{story.event}/scans"))["items"]
    assert [scan["outcome"] for scan in reversed(items)] == outcomes.split(", ")


@then(parsers.parse("the buyer's history of this event is {states}"))
def history_is(story, states):
    items = expect(200, story.buyer.get("/bookings"))["items"]
    assert [b["state"] for b in items if b["event_id"] == story.event] == states.split(", ")


@then(parsers.parse("the buyer has {count:d} tickets at {price:d} TWD"))
def has_tickets(story, count, price):
    assert [ticket["price"] for ticket in story.tickets] == [price] * count


@then(parsers.parse("the paper has {pages:d} pages with the same codes"))
def paper_has(story, pages):
    document = pypdfium2.PdfDocument(story.buyer.get(f"/bookings/{story.booking}/tickets.pdf").content)
    codes = [zxingcpp.read_barcodes(page.render(scale=2).to_pil())[0].text for page in document]
    assert codes == [ticket["code"] for ticket in story.tickets]
    assert len(codes) == pages


def sales(story, seller, **wanted):
    """The figures, once they are as wanted: they are up to a second old."""
    path = f"/events/{story.event}/sales"
    seen = {}

    def as_wanted():
        seen.update(expect(200, seller.get(path)))
        return all(seen[name] == value for name, value in wanted.items())

    seller._wait(as_wanted, f"the sales are {wanted}")
    return seen


@then(parsers.parse("the seller sees {sold:d} sold, {held:d} held and {free:d} free seats, and {revenue:d} TWD"))
def seller_sees(story, seller, sold, held, free, revenue):
    story.figures = sales(story, seller, sold=sold, held=held, available=free, revenue=revenue)


@then(parsers.parse("the seller sees {count:d} tickets in the last minutes"))
def in_the_last_minutes(story, count):
    assert sum(minute["tickets"] for minute in story.figures["minutes"]) == count


@then("the table for the accountant says the same")
def table_says_the_same(story, seller):
    [row] = csv.DictReader(io.StringIO(seller.get(f"/events/{story.event}/sales.csv").text))
    assert {name: str(value) for name, value in story.figures["sections"][0].items()}.items() <= row.items()


@then("the seller sees that half of the bookings were paid")
def half_were_paid(story, seller):
    figures = sales(story, seller, sold=2, held=0)
    seller._wait(lambda: sales(story, seller)["bookings"]["cancelled"] == 1, "the cancelled booking is counted")
    figures = sales(story, seller)
    assert figures["bookings"]["conversion"] == 0.5


@then(parsers.parse("the seller sees a refund of {tickets:d} tickets over {amount:d} TWD"))
def seller_sees_refund(story, tickets, amount):
    assert story.figures["refunds"] == {"tickets": tickets, "amount": amount}


@given("the seller watches the sales", target_fixture="watched")
def watches(story, seller, stage):
    """In a thread of its own, until it was told of a sale."""
    told, started = [], threading.Event()

    async def watch():
        path, headers = f"/events/{story.event}/sales/updates", {"authorization": f"Bearer {seller.token}"}
        async with browsing(stage.address, path, **headers) as browser:
            while not told or told[-1]["sold"] == 0:
                told.append((await browser.until("sales")).data)
                started.set()

    thread = threading.Thread(target=lambda: asyncio.run(watch()))
    thread.start()
    assert started.wait(60)
    yield told, thread
    thread.join(60)


@then(parsers.parse("the seller is shown {sold:d} sold seats and {revenue:d} TWD without asking"))
def is_shown(watched, sold, revenue):
    told, thread = watched
    thread.join(60)
    assert (told[0]["sold"], told[-1]["sold"], told[-1]["revenue"]) == (0, sold, revenue)


@when("another seller asks for the sales")
def another_seller_asks(story, other_seller):
    story.answer = other_seller.get(f"/events/{story.event}/sales")
