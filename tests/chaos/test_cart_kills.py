"""The process is killed at every crash point of holds and checkout, with a buyer in the middle of it.

Some buyers go on where they were, under the same keys: they get one booking with the seats they chose. Others never
come back: their seats are on sale again when the time is over, and a checkout that was begun has ended somehow.
"""

import httpx
import pytest

from aisle.crash_points import CART_POINTS
from tests.invariants import live_holds
from tests.people import Person, a_hall, expect, new_key
from tests.running import wait_until
from tests.stage import prepared_stage

pytestmark = pytest.mark.long

HALL = a_hall(("A", 3000, 1, 10), ("B", 1000, 1, 10))
A_PAIR = {"mode": "manual", "section": "A", "subsection": 1, "seats": ["1-1", "1-2"]}


@pytest.fixture(scope="module")
def patient(servers, tmp_path_factory):
    """Carts last ten minutes."""
    with prepared_stage(servers, tmp_path_factory.mktemp("patient")) as stage:
        yield stage


@pytest.fixture(scope="module")
def hasty(servers, tmp_path_factory):
    """Carts last five seconds."""
    with prepared_stage(servers, tmp_path_factory.mktemp("hasty"), hold_seconds=5) as stage:
        yield stage


def prepare(stage):
    """An event on sale and a buyer for each crash point, made by a process that lives."""
    stage.start()
    with stage.person("seller") as seller:
        events = {point: seller.opens(HALL) for point in CART_POINTS}
    buyers = {}
    for point in CART_POINTS:
        with stage.person("buyer") as buyer:
            buyers[point] = buyer.token
    stage.stop()
    return events, buyers


@pytest.fixture(scope="module")
def people(patient):
    return prepare(patient)


class Shopper:
    """Holds a pair, the best two and one more, extends, changes their mind about the best two, checks out.

    What was done before the crash may be refused when it is done again, but only with a reason that says so.
    """

    def __init__(self, stage, token, event):
        self.address, self.token = stage.address, token
        self.event = event
        self.keys = [new_key() for _ in range(5)]
        self.held = {}

    def shop(self):
        with Person(self.address) as person:
            person.token = self.token
            return self.shop_as(person)

    def shop_as(self, person):
        for n, order in enumerate((A_PAIR, {"quantity": 2}, {"quantity": 1, "section": "B"})):
            answer = person.post(f"/events/{self.event}/holds", order, key=self.keys[n])
            if answer.status_code == 201:
                self.held[n] = answer.json()["id"]
            else:
                assert answer.json()["code"] in ("expired", "checkout_under_way"), answer.text
        if 0 in self.held:
            extended = person.post(f"/events/{self.event}/holds/{self.held[0]}/extend", key=self.keys[3])
            assert extended.status_code in (200, 404) or extended.json()["code"] == "checkout_under_way", extended.text
        if 1 in self.held:
            gone = person.send("DELETE", f"/events/{self.event}/holds/{self.held[1]}")
            assert gone.status_code in (204, 404) or gone.json()["code"] == "checkout_under_way", gone.text
        return person.post("/cart/checkout", key=self.keys[4])


def kill_while_shopping(stage, point, shopper):
    stage.start("api", crash_at=point)
    with pytest.raises(httpx.TransportError):
        shopper.shop()
    assert stage.wait_for_death() == 137, stage.said()


@pytest.mark.parametrize("point", CART_POINTS)
def test_a_buyer_who_goes_on_gets_the_seats_they_chose(patient, people, point):
    events, buyers = people
    shopper = Shopper(patient, buyers[point], events[point])
    kill_while_shopping(patient, point, shopper)
    patient.start("api")  # what the buyer waits for needs no worker
    try:
        booking = expect(201, shopper.shop())
        assert booking["state"] == "PENDING_PAYMENT"
        seats = [f"{part['section']}-{seat}" for part in booking["seats"] for seat in part["seats"]]
        assert len(seats) == booking["quantity"] == 3
        assert {"A-1-1", "A-1-2"} < set(seats)
        assert [seat for seat in seats if seat.startswith("B")], seats
        patient.settle(events[point])
        assert patient.look(lambda database, store: live_holds(database, store, events[point])) == 0
        rows = patient.fetch("select state from booking.bookings where event_id = $1", events[point])
        assert [row["state"] for row in rows] == ["PENDING_PAYMENT"]
    finally:
        patient.stop()


def test_what_buyers_who_never_come_back_had_is_on_sale_again(hasty):
    events, buyers = prepare(hasty)
    for point in CART_POINTS:
        kill_while_shopping(hasty, point, Shopper(hasty, buyers[point], events[point]))
    hasty.start()
    hasty.fetch("update booking.bookings set placed_at = placed_at - interval '1 minute' where state = 'PROCESSING'")
    for point, event in events.items():
        wait_until(
            lambda event=event: hasty.look(lambda database, store: live_holds(database, store, event)) == 0,
            f"the holds of {point} are over",
        )
        hasty.settle(event)
        rows = hasty.fetch("select state, reason from booking.bookings where event_id = $1", event)
        states = [tuple(row) for row in rows]
        if point in ("after_convert", "after_checkout_reserved"):
            assert states == [("PENDING_PAYMENT", "")], "the seats were the booking's already"
        elif point == "after_checkout_placed":
            assert states in ([("PENDING_PAYMENT", "")], [("FAILED", "expired")])
        else:
            assert states == [], point
    hasty.stop()
