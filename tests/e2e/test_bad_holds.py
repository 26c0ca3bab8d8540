"""What a buyer can get wrong with holds and the cart: a precise code each, and nothing is changed by any of it."""

import asyncio

import pytest

from tests.people import Person, a_hall, expect, new_key, refused
from tests.shop import swept, time_passes
from tests.stage import running_stage

TABLES = ("booking.bookings", "booking.purchases", "booking.outbox", "ticketing.tickets", "ticketing.outbox")
A1 = {"mode": "manual", "section": "A", "subsection": 1}


@pytest.fixture(scope="module")
def stage(servers, tmp_path_factory):
    """Carts cannot be extended here: they last as long as they may from the beginning."""
    folder = tmp_path_factory.mktemp("stage")
    with running_stage(servers, folder, hold_seconds=600, hold_seconds_max=600) as stage:
        yield stage


@pytest.fixture(scope="module")
def hall(seller):
    """Sections A (2 rows of 10) and B (1 row of 4), and a pool."""
    pool = {"name": "GA", "price": 500, "capacity": 10, "places_per_buyer": 2}
    return seller.opens(a_hall(("A", 3000, 2, 10), ("B", 1000, 1, 4), pools=[pool]))


@pytest.fixture(scope="module")
def unopened_hall(seller):
    return seller.creates(a_hall(("A", 1, 1, 2)))


@pytest.fixture
def buyer(stage):
    with Person(stage.address) as buyer:
        [buyer.token] = asyncio.run(stage.tokens(1))
        yield buyer


@pytest.fixture
def other(stage):
    with Person(stage.address) as other:
        [other.token] = asyncio.run(stage.tokens(1))
        yield other


def picture(stage):
    """Every row of the booking path, every key of a subsection, a pool or a cart with what it holds."""

    async def see(database, store):
        rows = {table: sorted(map(str, await database.fetch(f"table {table}"))) for table in TABLES}
        held = {}
        for read, name in (("GET", "seats_bf"), ("HGETALL", "holds"), ("HGETALL", "pool*"), ("GET", "cart")):
            for key in sorted(await store.call("KEYS", f"{store.prefix}{name}:*")):
                found = await store.call(read, key)
                held[key] = dict(zip(found[::2], found[1::2], strict=True)) if isinstance(found, list) else found
        assert held
        return rows, held

    return stage.look(see)


@pytest.fixture
def nothing_changes(stage, hall, unopened_hall):
    before = picture(stage)
    yield
    assert picture(stage) == before


BAD_HOLDS = {
    "no seats": ({"quantity": 0}, 400, "invalid_request"),
    "more than a booking may have": ({"quantity": 11}, 422, "bad_quantity"),
    "a quantity in words": ({"quantity": "two"}, 400, "invalid_request"),
    "neither quantity nor seats": ({}, 422, "bad_order"),
    "a price": ({"quantity": 1, "price": 1}, 400, "invalid_request"),
    "a deadline": ({"quantity": 1, "expires_at": "2027-01-01T00:00:00Z"}, 400, "invalid_request"),
    "an owner": ({"quantity": 1, "buyer": "x"}, 400, "invalid_request"),
    "an event in the body": ({"quantity": 1, "event_id": 1}, 400, "invalid_request"),
    "an unknown section": ({"quantity": 1, "section": "Z"}, 404, "unknown_section"),
    "an unknown subsection": ({**A1, "subsection": 9, "seats": ["1-1"]}, 404, "unknown_section"),
    "an unknown seat": ({**A1, "seats": ["3-1"]}, 404, "unknown_seat"),
    "a seat named twice": ({**A1, "seats": ["1-1", "1-1"]}, 422, "bad_order"),
    "seats without their subsection": ({"mode": "manual", "section": "A", "seats": ["1-1"]}, 422, "bad_order"),
    "an unknown pool": ({"pool": "VIP", "quantity": 1}, 404, "unknown_pool"),
    "more places than one may have": ({"pool": "GA", "quantity": 3}, 422, "bad_quantity"),
    "a pool with seats": ({"pool": "GA", "mode": "manual", "seats": ["1-1"]}, 422, "bad_order"),
    "more accessible seats than seats": ({"quantity": 1, "accessible": 2}, 422, "bad_quantity"),
}


@pytest.mark.parametrize("what", BAD_HOLDS)
def test_a_bad_hold_is_refused_by_name(nothing_changes, buyer, hall, what):
    order, status, code = BAD_HOLDS[what]
    refused(status, code, buyer.post(f"/events/{hall}/holds", order, key=new_key()))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 5000], ids=repr)
def test_a_body_that_is_no_order(nothing_changes, buyer, hall, body):
    headers = {"idempotency-key": new_key(), "content-type": "application/json"}
    refused(400, "invalid_request", buyer.send("POST", f"/events/{hall}/holds", content=body, headers=headers))
    answer = buyer.send("POST", "/cart/checkout", content=body, headers=headers)
    if body in (b"", b"null"):
        refused(409, "cart_empty", answer)  # nothing more was asked than to check the cart out
    else:
        refused(400, "invalid_request", answer)


@pytest.mark.parametrize("key", ["", "short", "a b c d e f g", "x" * 65])
def test_without_a_proper_key_nothing_is_held_or_checked_out(nothing_changes, buyer, hall, key):
    for path, body in ((f"/events/{hall}/holds", {"quantity": 1}), ("/cart/checkout", {})):
        refused(400, "invalid_request", buyer.post(path, body, key=key))


@pytest.mark.parametrize("event", [0, 999_999, 2**63 - 1, 2**63, 10**30])
def test_an_event_that_is_not_there(nothing_changes, buyer, event):
    refused(404, "not_found", buyer.post(f"/events/{event}/holds", {"quantity": 1}, key=new_key()))


def test_an_event_that_is_not_on_sale(nothing_changes, buyer, unopened_hall):
    order = {"event_id": unopened_hall, "quantity": 1}
    refused(409, "sale_not_open", buyer.post(f"/events/{unopened_hall}/holds", {"quantity": 1}, key=new_key()))
    refused(409, "sale_not_open", buyer.post("/cart/checkout", {"order": order}, key=new_key()))


def test_an_empty_cart_is_not_checked_out(nothing_changes, buyer):
    refused(409, "cart_empty", buyer.post("/cart/checkout", key=new_key()))


def held_by(person, hall, order):
    return expect(201, person.post(f"/events/{hall}/holds", order, key=new_key()))["id"]


@pytest.mark.parametrize("id", ["theirs", "0" * 32, "x", "A|b", "%7B1:A-1%7D", "x" * 500])
def test_the_hold_of_somebody_else_does_not_exist(stage, buyer, other, hall, id):
    theirs = held_by(other, hall, {**A1, "seats": ["1-5"]})
    mine = held_by(buyer, hall, {**A1, "seats": ["1-7"]})
    before = picture(stage)
    path = f"/events/{hall}/holds/{theirs if id == 'theirs' else id}"
    refused(404, "not_found", buyer.post(f"{path}/extend", key=new_key()))
    refused(404, "not_found", buyer.send("DELETE", path))
    refused(404, "not_found", buyer.send("DELETE", f"/events/{hall + 1000}/holds/{mine}"))
    refused(409, "taken", buyer.post(f"/events/{hall}/holds", {**A1, "seats": ["1-5", "1-6"]}, key=new_key()))
    assert picture(stage) == before
    assert other.send("DELETE", "/cart").status_code == buyer.send("DELETE", "/cart").status_code == 204


def test_an_extension_past_the_cap(stage, buyer, hall):
    mine = held_by(buyer, hall, {"quantity": 1})
    before = picture(stage)
    refused(409, "limit", buyer.post(f"/events/{hall}/holds/{mine}/extend", key=new_key()))
    assert picture(stage) == before
    assert buyer.send("DELETE", "/cart").status_code == 204


def test_a_key_that_was_used_for_another_hold(stage, buyer, hall):
    key = new_key()
    expect(201, buyer.post(f"/events/{hall}/holds", {"quantity": 1}, key=key))
    before = picture(stage)
    refused(422, "key_reused", buyer.post(f"/events/{hall}/holds", {"quantity": 2}, key=key))
    assert picture(stage) == before
    assert buyer.send("DELETE", "/cart").status_code == 204


def test_a_cart_is_for_one_event(stage, seller, buyer, hall):
    elsewhere = seller.opens(a_hall(("A", 1, 1, 2)))
    held_by(buyer, hall, {"quantity": 1})
    before = picture(stage)
    refused(409, "other_event", buyer.post(f"/events/{elsewhere}/holds", {"quantity": 1}, key=new_key()))
    order = {"order": {"event_id": elsewhere, "quantity": 1}}
    refused(409, "other_event", buyer.post("/cart/checkout", order, key=new_key()))
    assert picture(stage) == before
    assert buyer.send("DELETE", "/cart").status_code == 204


def test_more_in_the_cart_than_a_booking_may_have(stage, buyer, hall):
    held_by(buyer, hall, {"quantity": 8})
    before = picture(stage)
    refused(409, "limit", buyer.post(f"/events/{hall}/holds", {"quantity": 3}, key=new_key()))
    assert picture(stage) == before
    assert buyer.send("DELETE", "/cart").status_code == 204


def test_more_than_a_buyer_may_have_with_what_they_bought(stage, buyer, hall):
    held_by(buyer, hall, {"quantity": 8})
    booking = expect(201, buyer.post("/cart/checkout", key=new_key()))
    before = picture(stage)
    refused(409, "limit", buyer.post(f"/events/{hall}/holds", {"quantity": 3}, key=new_key()))
    assert picture(stage) == before
    expect(200, buyer.post(f"/bookings/{booking['id']}/cancel"))
    stage.settle(hall)


def test_the_cart_of_an_event_that_closed(stage, seller, buyer):
    event = seller.opens(a_hall(("A", 3000, 1, 4)))
    mine = held_by(buyer, event, {"quantity": 2})
    expect(200, seller.post(f"/events/{event}/close"))
    before = picture(stage)
    refused(409, "sale_not_open", buyer.post("/cart/checkout", key=new_key()))
    refused(409, "sale_not_open", buyer.post(f"/events/{event}/holds/{mine}/extend", key=new_key()))
    refused(409, "sale_not_open", buyer.post(f"/events/{event}/holds", {"quantity": 1}, key=new_key()))
    assert picture(stage) == before
    assert buyer.send("DELETE", f"/events/{event}/holds/{mine}").status_code == 204
    stage.settle(event)


def test_a_cart_whose_time_is_over(stage, buyer, hall):
    me = stage.fetch("select account_id from accounts.tokens order by created_at desc limit 1")[0]["account_id"]
    mine = held_by(buyer, hall, {**A1, "seats": ["2-1"]})
    stage.look(lambda _, store: time_passes(store, hall, me))
    refused(409, "expired", buyer.post("/cart/checkout", key=new_key()))
    refused(409, "expired", buyer.post(f"/events/{hall}/holds/{mine}/extend", key=new_key()))
    assert expect(200, buyer.get("/cart"))["holds"] == []
    assert stage.fetch("select 1 from booking.bookings where buyer = $1", me) == []
    # Or it would be swept while the next test says that nothing changes.
    stage.look(lambda _, store: swept(store, hall))


def test_only_buyers_have_carts(nothing_changes, stage, seller, hall):
    with Person(stage.address) as nobody:
        for method, path in (("POST", f"/events/{hall}/holds"), ("GET", "/cart"), ("POST", "/cart/checkout")):
            refused(401, "not_logged_in", nobody.send(method, path, json={}))
            refused(403, "forbidden", seller.send(method, path, json={}))
