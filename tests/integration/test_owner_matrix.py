"""Every route about something that belongs to somebody, asked by another of the same role: it does not exist for them.

`test_role_matrix` walks the roles; this walks the owners. The routes are those of `ACCESS`: a new one with an id in its
path is asked for as well, and fails until its things are among those here.
"""

import re
from uuid import uuid4

import pytest

from aisle.accounts.access import ACCESS, ANONYMOUS
from aisle.accounts.account import Role
from tests.integration.visitors import Visitor, new_email
from tests.people import a_hall, expect, new_key

# What each parameter of a path is taken from, and bodies without which a request would be refused for another reason.
BODIES = {
    ("PATCH", "/events/{event_id}"): {"prices": {"A": 1}},
    ("POST", "/events/{event_id}/holds/{hold_id}/extend"): None,
    ("PUT", "/events/{event_id}/door-staff"): {"email": "door@example.com"},
    ("POST", "/bookings/{booking_id}/payments"): {"method": "card_ok"},
    ("POST", "/bookings/{booking_id}/payments/{payment_id}/confirm"): {"code": "123456"},
    ("POST", "/bookings/{booking_id}/tickets/{ticket_id}/reissue"): {"version": 1},
    ("POST", "/seller/bookings/{booking_id}/refund"): {},
    ("POST", "/payments/{payment_id}/decision"): {"decision": "refund"},
}
# Anybody may hold seats of, or ask about, an event on sale; an operator looks at every event.
NOT_OWNED = {("POST", "/events/{event_id}/holds"), ("GET", "/ops/store/events/{event_id}")}
# A stranger's ticket number on a stranger's booking, and a token, are somebody's too.
OWNED = sorted(
    (method, path.removeprefix("/api/v1"), role)
    for (method, path), callers in ACCESS.items()
    for role in callers
    if "{" in path and path.startswith("/api/v1/") and ANONYMOUS not in callers
    if (method, path.removeprefix("/api/v1")) not in NOT_OWNED
    # A person who decides about money sees all of it.
    if not (role == Role.OPERATOR and path.endswith("/decision"))
)


@pytest.fixture(scope="module")
def things(stage, seller, buyer):
    """One of everything, of one seller and one buyer, by the name of its parameter."""
    event = seller.opens(a_hall(("A", 3000, 4, 8)))
    booking = buyer.books(event, 2)
    buyer.waits_for(booking, "PENDING_PAYMENT")
    payment = buyer.pays(booking)["id"]
    buyer.waits_for(booking, "PAID")
    hold = expect(201, buyer.post(f"/events/{event}/holds", {"quantity": 1}, key=new_key()))["id"]
    ticket = expect(200, buyer.get(f"/bookings/{booking}/tickets"))["tickets"][0]["id"]
    door = stage.staff(Role.DOOR)
    [(email,)] = stage.fetch("select email from accounts.accounts where id = $1::text::uuid", door.id)
    expect(200, seller.send("PUT", f"/events/{event}/door-staff", json={"email": email}))
    [(token,)] = stage.fetch("select id::text from accounts.tokens where account_id = $1::text::uuid limit 1", buyer.id)
    found = {"event_id": event, "booking_id": booking, "payment_id": payment, "hold_id": hold, "ticket_id": ticket}
    return {**found, "account_id": door.id, "token_id": token}


@pytest.fixture(scope="module")
def strangers(stage):
    with stage.person("buyer") as buyer, stage.person("seller") as seller:
        staff = {role: stage.staff(role) for role in (Role.DOOR, Role.OPERATOR)}
        yield {Role.BUYER: buyer, Role.SELLER: seller, **staff}


@pytest.mark.parametrize(("method", "path", "role"), OWNED, ids=str)
def test_what_is_somebody_elses_does_not_exist(stage, things, strangers, method, path, role):
    address = re.sub(r"{(\w+)}", lambda match: str(things[match[1]]), path)
    body = BODIES.get((method, path))
    answer = strangers[role].send(
        method, address, headers={"idempotency-key": new_key()}, **({} if body is None else {"json": body})
    )
    assert answer.status_code == 404, (address, answer.text)


def test_the_owner_finds_it_all_as_it_was(stage, things, seller, buyer):
    """After everything above: nothing was refunded, cancelled, repriced, withdrawn or reissued."""
    event, booking = things["event_id"], things["booking_id"]
    assert buyer.booking(booking)["state"] == "PAID"
    assert [hold["id"] for hold in expect(200, buyer.get("/cart"))["holds"]] == [things["hold_id"]]
    assert [one["price"] for one in expect(200, buyer.get(f"/events/{event}/sections"))] == [3000]
    assert expect(200, seller.get(f"/seller/events/{event}"))["state"] == "on_sale"
    staff = expect(200, seller.get(f"/events/{event}/door-staff"))["items"]
    assert [one["account_id"] for one in staff] == [things["account_id"]]
    assert [one["state"] for one in expect(200, buyer.get(f"/bookings/{booking}/payments"))] == ["CAPTURED"]
    assert buyer.send("DELETE", "/cart").status_code < 300


def test_lists_hold_ones_own_only(strangers, things):
    assert expect(200, strangers[Role.BUYER].get("/bookings"))["items"] == []
    assert expect(200, strangers[Role.BUYER].get("/cart"))["holds"] == []
    assert expect(200, strangers[Role.SELLER].get("/seller/events"))["items"] == []
    assert expect(200, strangers[Role.SELLER].get("/payments/review")) == []


def test_a_stranger_exports_only_what_is_the_strangers(stage, things):
    with Visitor(stage.address) as stranger:
        email = new_email()
        expect(201, stranger.register(email))
        expect(201, stranger.log_in(email))
        data = expect(200, stranger.get("/me/data"))
        assert ([one["email"] for one in data["account"]], data["bookings"], data["payments"]) == ([email], [], [])
        assert stranger.get(f"/bookings/{uuid4()}").status_code == 404
