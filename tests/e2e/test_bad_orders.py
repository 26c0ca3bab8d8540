"""What a buyer can get wrong: a precise problem+json code each, and nothing is changed by any of it."""

import asyncio
import socket
from uuid import uuid4

import msgspec
import pytest

from tests.people import Person, a_hall, expect, new_key, refused

TABLES = ("booking.bookings", "booking.purchases", "booking.outbox", "ticketing.tickets", "ticketing.outbox")


@pytest.fixture(scope="module")
def hall(seller):
    """Sections A (2 rows of 10) and B (1 row of 4)."""
    return seller.opens(a_hall(("A", 3000, 2, 10), ("B", 1000, 1, 4)))


@pytest.fixture(scope="module")
def unopened_hall(seller):
    return seller.creates(a_hall(("A", 1, 1, 2)))


@pytest.fixture(autouse=True)
def nothing_changes(stage, hall, unopened_hall):
    before = picture(stage)
    yield
    assert picture(stage) == before
    stage.settle(hall)


def picture(stage):
    """Every row of the booking path, and every key of the store that is not a limiter's or a session's."""

    async def see(database, store):
        rows = {table: sorted(map(str, await database.fetch(f"table {table}"))) for table in TABLES}
        keys = await store.call("KEYS", f"{store.prefix}s[e][ac]*")
        stats = {key: await store.call("HGETALL", key) for key in sorted(keys) if b"section_stats" in key}
        maps = {key: await store.call("GET", key) for key in sorted(keys) if b"seats_bf" in key}
        assert stats
        assert maps
        return rows, stats, maps

    return stage.look(see)


BAD_ORDERS = {
    "no seats": ({"quantity": 0}, 400, "invalid_request"),
    "a thousand seats": ({"quantity": 1000}, 422, "bad_quantity"),
    "more seats than a number holds": ({"quantity": 10**30}, 400, "invalid_request"),
    "a negative quantity": ({"quantity": -1}, 400, "invalid_request"),
    "a quantity in words": ({"quantity": "two"}, 400, "invalid_request"),
    "more than a booking may have": ({"quantity": 11}, 422, "bad_quantity"),
    "neither quantity nor seats": ({}, 422, "bad_order"),
    "a price": ({"quantity": 1, "price": 1}, 400, "invalid_request"),
    "a status": ({"quantity": 1, "state": "PAID"}, 400, "invalid_request"),
    "a buyer": ({"quantity": 1, "buyer": str(uuid4())}, 400, "invalid_request"),
    "an unknown mode": ({"quantity": 1, "mode": "cheapest"}, 400, "invalid_request"),
    "an unknown section": ({"quantity": 1, "section": "Z"}, 404, "unknown_section"),
    "an unknown subsection": ({"quantity": 1, "section": "A", "subsection": 9}, 404, "unknown_section"),
    "a subsection without its section": ({"quantity": 1, "subsection": 1}, 422, "bad_order"),
    "an unknown seat": (
        {"mode": "manual", "section": "A", "subsection": 1, "seats": ["3-1"]}, 404, "unknown_seat",
    ),
    "a seat of another section": (
        {"mode": "manual", "section": "B", "subsection": 1, "seats": ["1-5"]}, 404, "unknown_seat",
    ),
    "seat zero": ({"mode": "manual", "section": "A", "subsection": 1, "seats": ["0-1"]}, 400, "invalid_request"),
    "no seat named": ({"mode": "manual", "section": "A", "subsection": 1, "seats": []}, 400, "invalid_request"),
    "manual without seats": ({"mode": "manual", "section": "A", "subsection": 1}, 422, "bad_order"),
    "seats without their subsection": ({"mode": "manual", "section": "A", "seats": ["1-1"]}, 422, "bad_order"),
    "a seat named twice": (
        {"mode": "manual", "section": "A", "subsection": 1, "seats": ["1-1", "1-1"]}, 422, "bad_order",
    ),
    "best available with seats": ({"quantity": 1, "seats": ["1-1"]}, 422, "bad_order"),
    "more accessible seats than seats": ({"quantity": 1, "accessible": 2}, 422, "bad_quantity"),
    "an event that is not there": ({"event_id": 999_999, "quantity": 1}, 404, "not_found"),
    "an event beyond all numbers": ({"event_id": 2**63, "quantity": 1}, 400, "invalid_request"),
    "event zero": ({"event_id": 0, "quantity": 1}, 400, "invalid_request"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_ORDERS)
def test_a_bad_order_is_refused_by_name(buyer, hall, what):
    order, status, code = BAD_ORDERS[what]
    refused(status, code, buyer.post("/bookings", {"event_id": hall, **order}, key=new_key()))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 5000], ids=repr)
def test_a_body_that_is_no_order(buyer, body):
    headers = {"idempotency-key": new_key(), "content-type": "application/json"}
    refused(400, "invalid_request", buyer.send("POST", "/bookings", content=body, headers=headers))


def test_an_oversize_body(buyer, hall):
    order = {"event_id": hall, "quantity": 1, "section": "A" * 100_000}
    refused(413, "body_too_large", buyer.post("/bookings", order, key=new_key()))


@pytest.mark.parametrize("key", ["", "short", "x" * 65, "with space", "with/slash"], ids=repr)
def test_a_key_that_is_missing_or_malformed(buyer, hall, key):
    headers = {"idempotency-key": key} if key else {}
    answer = buyer.send("POST", "/bookings", json={"event_id": hall, "quantity": 1}, headers=headers)
    refused(400, "invalid_request", answer)


def test_a_sale_that_is_not_open(buyer, unopened_hall):
    refused(409, "sale_not_open", buyer.post("/bookings", {"event_id": unopened_hall, "quantity": 1}, key=new_key()))


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", "/cancel")], ids=["look", "cancel"])
@pytest.mark.parametrize("id", ["0190b4cc-7d6a-7c3e-9d6f-0123456789ab", "1", "not-an-id", "%00", "../users"])
def test_a_booking_that_is_not_there(buyer, id, method, path):
    answer = buyer.send(method, f"/bookings/{id}{path}", json={} if method == "POST" else None)
    assert answer.status_code in (404, 405), answer.text


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer nonsense", "Basic YTpi", "Bearer " + "t.00000000." + "A" * 32 + "." + "A" * 43],
    ids=["none", "empty", "nonsense", "basic", "forged"],
)
def test_a_stale_or_forged_token(stage, hall, authorization):
    with Person(stage.address) as stranger:
        answer = stranger.send(
            "POST",
            "/bookings",
            json={"event_id": hall, "quantity": 1},
            headers={"idempotency-key": new_key(), **({"authorization": authorization} if authorization else {})},
        )
        refused(401, "not_logged_in", answer)


def test_a_forged_session_cookie(stage, hall):
    headers = {"cookie": "__Host-aisle=s.00000000." + "A" * 32 + "." + "A" * 43, "sec-fetch-site": "same-origin"}
    with Person(stage.address) as stranger:
        order = {"event_id": hall, "quantity": 1}
        answer = stranger.send("POST", "/bookings", json=order, headers={**headers, "idempotency-key": new_key()})
        refused(401, "not_logged_in", answer)


def test_a_token_that_was_revoked(stage, hall):
    with stage.person("buyer") as buyer:
        [token] = expect(200, buyer.get("/tokens"))["items"]
        assert buyer.send("DELETE", f"/tokens/{token['id']}").status_code == 204
        refused(401, "not_logged_in", buyer.post("/bookings", {"event_id": hall, "quantity": 1}, key=new_key()))


def test_a_seller_cannot_book_and_a_buyer_cannot_sell(seller, buyer, hall):
    refused(403, "forbidden", seller.post("/bookings", {"event_id": hall, "quantity": 1}, key=new_key()))
    refused(403, "forbidden", buyer.post("/events", a_hall(("A", 1, 1, 1))))
    refused(403, "forbidden", buyer.post(f"/events/{hall}/close"))


@pytest.mark.parametrize("id", [0, -1, 2**31, 2**63, 10**40])
def test_an_event_that_is_not_there(buyer, id):
    for path in (f"/events/{id}", f"/events/{id}/sections", f"/events/{id}/sections/A"):
        answer = buyer.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (path, answer.text)


@pytest.mark.parametrize(
    "after", ["x", "AAAA", "MjAyNy0wMS0wMVQwMDowMDowMCAx", "OTk5OS0xMi0zMVQyMzo1OTo1OS0yMzo1OSA5" * 2]
)
def test_a_cursor_that_nobody_gave(buyer, after):
    refused(400, "bad_cursor", buyer.get("/events", after=after))


@pytest.mark.parametrize("parameters", [{"limit": 0}, {"limit": 101}, {"limit": "x"}, {"search": "x" * 101}])
def test_a_page_nobody_can_turn(buyer, parameters):
    refused(400, "invalid_request", buyer.get("/events", **parameters))


class TestThingsThatAreThere:
    """A booking of somebody's own, which the bad requests of others must not touch."""

    @pytest.fixture(scope="class")
    def booking(self, stage, hall):
        [token] = asyncio.run(stage.tokens(1))
        with Person(stage.address) as owner:
            owner.token = token
            key = new_key()
            booking = expect(202, owner.post("/bookings", {"event_id": hall, "quantity": 2}, key=key))["id"]
            owner.waits_for(booking, "PENDING_PAYMENT")
            stage.settle(hall)
            yield owner, key, booking

    @pytest.fixture(autouse=True)
    def nothing_changes(self, stage, hall, booking):
        before = picture(stage)
        yield
        assert picture(stage) == before

    def test_a_foreign_booking_does_not_exist(self, buyer, booking):
        _, _, id = booking
        refused(404, "not_found", buyer.get(f"/bookings/{id}"))
        refused(404, "not_found", buyer.post(f"/bookings/{id}/cancel"))

    def test_the_key_of_another_order_is_refused(self, hall, booking):
        owner, key, _ = booking
        refused(422, "key_reused", owner.post("/bookings", {"event_id": hall, "quantity": 3}, key=key))

    def test_the_same_order_again_is_the_same_booking(self, hall, booking):
        owner, key, id = booking
        assert expect(202, owner.post("/bookings", {"event_id": hall, "quantity": 2}, key=key))["id"] == id

    def test_a_client_that_hangs_up_after_sending_gets_one_booking_for_its_key(self, stage, hall, booking):
        owner, key, id = booking
        body = msgspec.json.encode({"event_id": hall, "quantity": 2})
        head = f"POST /api/v1/bookings HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {owner.token}\r\n"
        head += f"idempotency-key: {key}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        with socket.create_connection((stage.config.host, stage.config.port)) as hasty:
            hasty.sendall(head.encode() + body)
        assert expect(202, owner.post("/bookings", {"event_id": hall, "quantity": 2}, key=key))["id"] == id
