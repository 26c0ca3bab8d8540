"""Tickets and doors in tests: a show that people have paid for, somebody at its door, scans."""

import itertools
import secrets
from types import SimpleNamespace
from typing import Any

from tests.people import Person, a_hall, expect, new_key
from tests.stage import Stage

_scans = itertools.count()


def scan_id() -> str:
    return f"scan-{next(_scans)}-{secrets.token_hex(6)}"


def a_sold_show(stage: Stage, seller: Person, buyer: Person, *, seats: int = 2, **changes: Any) -> SimpleNamespace:
    """An event with a paid booking of a buyer, the tickets of it, and a person at the door."""
    event = seller.opens(a_hall(("A", 3000, 4, 10), seats_per_booking=20, seats_per_buyer=40, **changes))
    door = stage.staff()
    expect(200, seller.send("PUT", f"/events/{event}/door-staff", json={"email": email_of(door)}))
    booking = buys(stage, buyer, event, seats)
    return SimpleNamespace(event=event, door=door, booking=booking, tickets=tickets_of(buyer, booking))


def buys(stage: Stage, buyer: Person, event: int, seats: int, **order: Any) -> str:
    booking = buyer.books(event, seats, **order)
    buyer.waits_for(booking, "PENDING_PAYMENT")
    stage.paid(booking)
    return booking


def email_of(person: Person) -> str:
    return str(expect(200, person.get("/me"))["email"])


def tickets_of(buyer: Person, booking: str) -> list[dict[str, Any]]:
    return list(expect(200, buyer.get(f"/bookings/{booking}/tickets"))["tickets"])


def scan(door: Person, event: int, code: str, *, gate: str = "north", key: str = "") -> dict[str, Any]:
    body = {"event_id": event, "code": code, "gate": gate}
    return dict(expect(200, door.post("/check-ins", body, key=key or new_key())))
