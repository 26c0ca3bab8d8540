"""Tickets of a paid booking: whose they are, what is on the paper, what a new code does to the old one, keys."""

import base64

import pypdfium2
import pytest
import zxingcpp
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.door import a_sold_show, buys, scan, tickets_of
from tests.people import expect, refused
from tests.running import as_environment, run_aisle


@pytest.fixture(scope="module")
def stranger(stage):
    with stage.person("buyer") as stranger:
        yield stranger


@pytest.fixture
def show(stage, seller, buyer):
    return a_sold_show(stage, seller, buyer)


def keys_of(person) -> dict[str, Ed25519PublicKey]:
    jwks = expect(200, person.get("/ticket-keys"))["keys"]
    return {k["kid"]: Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(k["x"] + "=")) for k in jwks}


def test_a_ticket_a_seat_with_a_code_that_a_published_key_verifies(show, buyer, stage):
    assert [t["id"] for t in show.tickets] == ["A-1-1-1", "A-1-1-2"]
    assert [(t["price"], t["version"], t["admitted_at"]) for t in show.tickets] == [(3000, 1, None)] * 2
    assert len({t["code"] for t in show.tickets}) == 2
    keys = keys_of(buyer)
    for ticket in show.tickets:
        raw = base64.b32decode(ticket["code"] + "=" * (-len(ticket["code"]) % 8))
        keys[raw[1:5].hex()].verify(raw[-64:], raw[:-64])
        email = expect(200, buyer.get("/me"))["email"].encode()
        assert email not in raw
        assert buyer.id.encode() not in raw


def test_tickets_belong_to_the_buyer_alone(show, stranger, seller):
    for path in ("tickets", "tickets.pdf"):
        refused(404, "not_found", stranger.get(f"/bookings/{show.booking}/{path}"))
    refused(404, "not_found", stranger.post(f"/bookings/{show.booking}/tickets/A-1-1-1/reissue", {"version": 1}))
    refused(403, "forbidden", seller.get(f"/bookings/{show.booking}/tickets"))


def test_a_booking_that_is_not_paid_has_no_tickets(show, buyer, stage):
    booking = buyer.books(show.event, 1)
    buyer.waits_for(booking, "PENDING_PAYMENT")
    for path in ("tickets", "tickets.pdf"):
        refused(409, "no_tickets", buyer.get(f"/bookings/{booking}/{path}"))
    assert stage.refund(show.booking)
    refused(409, "no_tickets", buyer.get(f"/bookings/{show.booking}/tickets"))


def test_the_paper_says_what_the_screen_says(stage, seller, buyer):
    name = (
        "Night Train \u2014 \u041d\u043e\u0447\u043d\u043e\u0439 \u043f\u043e\u0435\u0437\u0434 <b>&amp;</b> "
        + "very " * 30
    )
    show = a_sold_show(stage, seller, buyer, name=name[:200], venue="\u53f0\u5317\u5c0f\u5de8\u86cb", seats=3)
    answer = buyer.get(f"/bookings/{show.booking}/tickets.pdf")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/pdf")
    assert answer.headers["cache-control"] == "private, no-store"
    document = pypdfium2.PdfDocument(answer.content)
    assert len(document) == 3
    email = expect(200, buyer.get("/me"))["email"]
    for page, ticket in zip(document, show.tickets, strict=True):
        text = " ".join(page.get_textpage().get_text_range().split())
        for words in (
            "Night Train \u2014 \u041d\u043e\u0447\u043d\u043e\u0439",
            "<b>&amp;</b>",
            "\u53f0\u5317\u5c0f\u5de8\u86cb",
        ):
            assert words in text
        assert "Friday 31 December 2027, 12:00 (UTC)" in text
        assert f"Row {ticket['row']} Seat {ticket['seat']} Price 30.00 TWD Booked by {email}" in text
        [found] = zxingcpp.read_barcodes(page.render(scale=2).to_pil())
        assert found.text == ticket["code"]


def test_a_place_of_a_pool_has_a_ticket_like_a_seat(stage, seller, buyer):
    pools = [{"name": "GA", "price": 1500, "capacity": 20, "places_per_buyer": 4}]
    show = a_sold_show(stage, seller, buyer, pools=pools)
    booking = buys(stage, buyer, show.event, 2, pool="GA")
    tickets = tickets_of(buyer, booking)
    assert [(t["id"], t["price"]) for t in tickets] == [("GA-1", 1500), ("GA-2", 1500)]
    document = pypdfium2.PdfDocument(buyer.get(f"/bookings/{booking}/tickets.pdf").content)
    text = " ".join(document[1].get_textpage().get_text_range().split())
    assert "Admission GA Place 2 Price 15.00 TWD" in text
    scanned = scan(show.door, show.event, tickets[1]["code"])
    assert (scanned["outcome"], scanned["ticket"]) == ("accepted", "GA-2")
    assert scan(show.door, show.event, tickets[1]["code"])["outcome"] == "already_in"
    stage.settle(show.event)


def test_a_new_code_voids_the_old_one(show, buyer):
    old = show.tickets[0]
    path = f"/bookings/{show.booking}/tickets/{old['id']}/reissue"
    new = expect(200, buyer.post(path, {"version": 1}))
    assert (new["id"], new["version"]) == (old["id"], 2)
    assert tickets_of(buyer, show.booking)[0] == new
    # The answer was lost and the buyer asks again: the code they got stays good.
    assert expect(200, buyer.post(path, {"version": 1})) == new
    assert scan(show.door, show.event, old["code"])["outcome"] == "voided"
    assert scan(show.door, show.event, new["code"])["outcome"] == "accepted"
    refused(409, "already_in", buyer.post(path, {"version": 2}))
    assert tickets_of(buyer, show.booking)[0]["version"] == 2


@pytest.mark.parametrize(
    ("ticket", "body", "status", "code"),
    [
        ("A-1-1-1", {"version": 7}, 409, "no_such_version"),
        ("A-1-1-1", {"version": 101}, 409, "too_many_reissues"),
        ("A-1-1-1", {"version": 0}, 400, "invalid_request"),
        ("A-1-1-1", {}, 400, "invalid_request"),
        ("A-1-1-9", {"version": 1}, 404, "not_found"),
        ("nonsense%00", {"version": 1}, 404, "not_found"),
    ],
)
def test_a_bad_reissue_changes_nothing(show, buyer, ticket, body, status, code):
    refused(status, code, buyer.post(f"/bookings/{show.booking}/tickets/{ticket}/reissue", body))
    assert tickets_of(buyer, show.booking) == show.tickets


def test_after_a_rotation_old_codes_still_open_the_door_and_after_a_revocation_not(stage, seller, buyer):
    """On a stage of its own key set: the other tests of the module are done with theirs or ask again."""
    show = a_sold_show(stage, seller, buyer)
    env = as_environment(stage.config)
    old = next(iter(keys_of(buyer)))
    rotated = run_aisle("ticket-keys", "rotate", env=env)
    assert (rotated.returncode, "sealed with AISLE_SECRET_KEY" in rotated.stdout) == (0, True), rotated.stderr
    listed = run_aisle("ticket-keys", "list", env=env).stdout.splitlines()
    assert [line.split()[0] for line in listed][1:] == [old]
    assert [line.split()[3] for line in listed] == ["signs,", "verifies,"]
    assert scan(show.door, show.event, show.tickets[0]["code"])["outcome"] == "accepted"

    assert run_aisle("ticket-keys", "revoke", old, env=env).returncode == 0
    again = run_aisle("ticket-keys", "revoke", old, env=env)
    assert (again.returncode, again.stdout) == (2, "")
    # Another process has not heard the old key's name before.
    stage.stop()
    stage.start()
    assert scan(show.door, show.event, show.tickets[1]["code"])["outcome"] == "unknown_key"
    [fresh] = [t for t in tickets_of(buyer, show.booking) if t["id"] == show.tickets[1]["id"]]
    assert scan(show.door, show.event, fresh["code"])["outcome"] == "accepted"


def test_a_private_key_does_not_lie_in_the_database_in_the_clear(show, stage):
    rows = stage.fetch("select private, sealed_with from ticketing.ticket_keys")
    assert rows
    assert all(len(row["private"]) > 32 and row["sealed_with"] for row in rows)
