"""Holds, the cart and its checkout over HTTP; what came of it is looked at in the store and in PostgreSQL."""

import pytest

from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place
from aisle.reservation.reads import who_has
from tests.people import a_hall, expect, new_key, refused


@pytest.fixture
def buyer(stage):
    with stage.person("buyer") as buyer:
        yield buyer


@pytest.fixture
def other(stage):
    with stage.person("buyer") as other:
        yield other


@pytest.fixture
def hall(seller):
    """Sections A (2 rows of 10) at 3000 and B (1 row of 4) at 1000."""
    return seller.opens(a_hall(("A", 3000, 2, 10), ("B", 1000, 1, 4)))


@pytest.fixture
def cellar(seller):
    """Pools GA (10 places, 4 a buyer) and DECK (5 places, one hold a buyer)."""
    deck = {"name": "DECK", "price": 700, "capacity": 5, "places_per_buyer": 4, "one_hold_per_buyer": True}
    return seller.opens(a_hall(pools=[{"name": "GA", "price": 1500, "capacity": 10, "places_per_buyer": 4}, deck]))


def named(*seats, section="A"):
    return {"mode": "manual", "section": section, "subsection": 1, "seats": list(seats)}


def holds(person, event, order, status=201):
    return expect(status, person.post(f"/events/{event}/holds", order, key=new_key()))


def records(stage, event, *seats, section="A"):
    """The claims in the store that have these seats."""
    return stage.look(lambda _, store: who_has(store, Place(event, section, 1), seats))


def test_a_hold_takes_the_seats_at_once_at_todays_price(stage, hall, buyer):
    held = holds(buyer, hall, named("1-3", "1-4"))
    [one, two] = records(stage, hall, "1-3", "1-4")
    assert one.claim == two.claim == held["id"]
    assert (one.record.owner, one.record.kind, one.record.price) == (buyer.id, "h", 3000)
    assert (held["total"], held["seats"][0]["seats"]) == (6000, ["1-3", "1-4"])
    assert buyer.free(hall) == 22


def test_all_holds_of_a_cart_share_one_deadline_also_after_an_extension(stage, hall, buyer):
    first = holds(buyer, hall, named("1-1"))
    holds(buyer, hall, {"quantity": 2, "section": "B"})
    third = holds(buyer, hall, {"quantity": 3})
    cart = expect(200, buyer.get("/cart"))
    assert {hold["expires_at"] for hold in cart["holds"]} == {first["expires_at"]}
    key = new_key()
    extended = expect(200, buyer.post(f"/events/{hall}/holds/{third['id']}/extend", key=key))
    assert extended["expires_at"] > first["expires_at"]
    deadlines = [holder.record.deadline_ms for holder in records(stage, hall, "1-1", "1-2")]
    deadlines += [holder.record.deadline_ms for holder in records(stage, hall, "1-1", section="B")]
    assert len(set(deadlines)) == 1
    again = expect(200, buyer.post(f"/events/{hall}/holds/{first['id']}/extend", key=key))
    assert again == extended, "the same key, the same answer"


def test_a_cart_becomes_one_booking_with_the_same_seats(stage, hall, buyer):
    holds(buyer, hall, named("1-1", "1-2"))
    holds(buyer, hall, {"quantity": 2, "section": "B"})
    key = new_key()
    booking = expect(201, buyer.post("/cart/checkout", key=key))
    assert (booking["state"], booking["quantity"], booking["total"]) == ("PENDING_PAYMENT", 4, 8000)
    assert {(part["section"], *part["seats"]) for part in booking["seats"]} == {
        ("A", "1-1", "1-2"),
        ("B", "1-1", "1-2"),
    }
    assert expect(201, buyer.post("/cart/checkout", key=key)) == booking
    assert expect(200, buyer.get("/cart"))["holds"] == []
    rows = stage.fetch("select state, booking::text from ticketing.tickets where event_id = $1 and state > 0", hall)
    assert [(row["state"], row["booking"]) for row in rows] == [(1, booking["id"])] * 4
    [one] = records(stage, hall, "1-1")
    assert (one.claim, one.record.kind, one.record.deadline_ms) == (booking["id"], "b", 0)
    stage.settle(hall)


def test_seats_are_taken_without_a_hold_before(stage, hall, buyer):
    key, order = new_key(), {"order": {"event_id": hall, "quantity": 3}}
    booking = expect(201, buyer.post("/cart/checkout", order, key=key))
    assert (booking["state"], booking["quantity"]) == ("PENDING_PAYMENT", 3)
    assert expect(201, buyer.post("/cart/checkout", order, key=key)) == booking
    refused(422, "key_reused", buyer.post("/cart/checkout", key=key))
    stage.settle(hall)


def test_prices_are_those_of_the_moment_a_seat_was_held(stage, hall, buyer):
    """The seller raises the price; what is held stays, what is held later costs more, in one and the same booking."""
    holds(buyer, hall, named("1-5"))

    async def raise_price(_, store):
        await Inventory(store).switch([Place(hall, "A", 1)], epoch=1, on_sale=True, price=3500)

    stage.look(raise_price)
    stage.fetch("update ticketing.sections set price = 3500 where event_id = $1 and section = 'A'", hall)
    holds(buyer, hall, named("1-2", "1-3"))
    assert expect(200, buyer.get("/cart"))["total"] == 3000 + 2 * 3500
    booking = expect(201, buyer.post("/cart/checkout", key=new_key()))
    assert booking["total"] == 3000 + 2 * 3500
    paid = stage.fetch("select seat, price from ticketing.tickets where booking::text = $1", booking["id"])
    assert {(row["seat"], row["price"]) for row in paid} == {(4, 3000), (1, 3500), (2, 3500)}
    stage.settle(hall)


def test_a_refusal_names_the_seats_in_the_way_and_leaves_no_cart(stage, hall, buyer, other):
    holds(buyer, hall, named("1-1", "1-2"))
    answer = other.post(f"/events/{hall}/holds", named("1-2", "1-3"), key=new_key())
    refused(409, "taken", answer)
    assert answer.json()["seats"] == ["1-2"]
    assert records(stage, hall, "1-3") == [None]
    assert expect(200, other.get("/cart"))["event_id"] is None


def test_released_seats_are_free_at_once(stage, hall, buyer):
    one, two = holds(buyer, hall, named("1-1")), holds(buyer, hall, {"quantity": 2, "section": "B"})
    assert buyer.send("DELETE", f"/events/{hall}/holds/{one['id']}").status_code == 204
    assert records(stage, hall, "1-1") == [None]
    assert [hold["id"] for hold in expect(200, buyer.get("/cart"))["holds"]] == [two["id"]]
    assert buyer.send("DELETE", "/cart").status_code == 204
    assert buyer.free(hall) == 24
    stage.settle(hall)


def test_places_of_a_pool_are_held_counted_and_booked(stage, cellar, buyer):
    held = holds(buyer, cellar, {"pool": "GA", "quantity": 3})
    assert (held["seats"], held["total"]) == (
        [{"section": "GA", "subsection": 0, "seats": [], "price": 1500, "places": 3}],
        4500,
    )
    holds(buyer, cellar, {"pool": "GA", "quantity": 1})
    refused(409, "limit", buyer.post(f"/events/{cellar}/holds", {"pool": "GA", "quantity": 1}, key=new_key()))
    booking = expect(201, buyer.post("/cart/checkout", key=new_key()))
    assert (booking["state"], booking["quantity"], booking["total"]) == ("PENDING_PAYMENT", 4, 6000)
    rows = stage.fetch("select price from ticketing.tickets where booking::text = $1 and state = 1", booking["id"])
    assert [row["price"] for row in rows] == [1500] * 4
    stage.settle(cellar)
    expect(200, buyer.post(f"/bookings/{booking['id']}/cancel"))
    stage.settle(cellar)
    assert stage.fetch("select sum(seats) from booking.purchases where event_id = $1", cellar)[0][0] == 0


def test_a_buyer_has_one_hold_of_a_pool_where_the_seller_asks_for_it(stage, cellar, buyer):
    held = holds(buyer, cellar, {"pool": "DECK", "quantity": 1})
    order = {"pool": "DECK", "quantity": 1}
    refused(409, "already_holding", buyer.post(f"/events/{cellar}/holds", order, key=new_key()))
    assert buyer.send("DELETE", f"/events/{cellar}/holds/{held['id']}").status_code == 204
    holds(buyer, cellar, order)
    assert expect(201, buyer.post("/cart/checkout", key=new_key()))["quantity"] == 1
    stage.settle(cellar)


def test_a_full_pool_says_so(stage, cellar, buyer, other):
    holds(buyer, cellar, {"pool": "DECK", "quantity": 4})
    refused(409, "no_block", other.post(f"/events/{cellar}/holds", {"pool": "DECK", "quantity": 2}, key=new_key()))
    holds(other, cellar, {"pool": "DECK", "quantity": 2, "allow_partial": True})
    assert expect(200, other.get("/cart"))["holds"][0]["seats"][0]["places"] == 1
    with stage.person("buyer") as third:
        refused(409, "full", third.post(f"/events/{cellar}/holds", {"pool": "DECK", "quantity": 1}, key=new_key()))
    stage.settle(cellar)


def test_a_cart_holds_seats_or_places_of_one_pool(stage, seller, buyer):
    event = seller.opens(a_hall(("A", 3000, 1, 4), pools=[{"name": "GA", "price": 1500, "capacity": 10}]))
    holds(buyer, event, named("1-1"))
    refused(409, "other_pool", buyer.post(f"/events/{event}/holds", {"pool": "GA", "quantity": 1}, key=new_key()))
    stage.settle(event)
