"""Places of a pool are paid for, given back, and taken again for money that came late, as seats are."""

from datetime import timedelta
from uuid import UUID

import pytest

from tests.payment.steps import pay, pending
from tests.people import a_hall, expect, new_key
from tests.running import wait_until


def test_places_are_paid_for_and_given_back(stage):
    pools = [{"name": "GA", "price": 500, "capacity": 10, "places_per_buyer": 6}]
    with stage.person("seller") as seller, stage.person("buyer") as buyer:
        event = seller.opens(a_hall(("A", 3000, 1, 4), pools=pools))
        kept = pending(buyer, event, 2, pool="GA")
        buyer.pays(kept)
        booking = pending(buyer, event, 3, pool="GA")
        assert buyer.pays(booking)["amount"] == 1500
        stage.settle(event)
        expect(200, buyer.post(f"/bookings/{booking}/refund", key=new_key()))
        stage.settle(event)
        buyer.waits_until_free(event, 12)
        again = pending(buyer, event, 4, pool="GA")
        buyer.pays(again)
        stage.settle(event)


def settles(stage, booking, after):
    stage.fetch(
        """update payment.sandbox_charges set settles_at = now() + $2::interval
           where payment in (select id from payment.payments where booking = $1)""",
        UUID(booking),
        after,
    )


def price_of_a_place(buyer, event):
    hold = expect(201, buyer.post(f"/events/{event}/holds", {"pool": "GA", "quantity": 1}, key=new_key()))
    assert buyer.send("DELETE", "/cart").status_code == 204
    return hold["total"]


def too_late(stage, buyer, event, booking):
    """A payment whose provider decides after the places were let go."""
    expect(201, pay(buyer, booking, "card_late"))
    settles(stage, booking, timedelta(days=1))
    stage.overdue(booking)
    stage.fetch(
        "update payment.payments set started_at = started_at - interval '1 hour', look_at = now() where booking = $1",
        UUID(booking),
    )
    buyer.waits_for(booking, "CANCELLED")
    stage.settle(event)


def money_comes(stage, booking):
    settles(stage, booking, timedelta())
    stage.fetch("update payment.payments set look_at = now() where booking = $1", UUID(booking))


def test_late_money_takes_as_many_places_again(stage):
    pools = [{"name": "GA", "price": 500, "capacity": 10, "places_per_buyer": 6}]
    with stage.person("seller") as seller, stage.person("buyer") as buyer, stage.person("buyer") as other:
        event = seller.opens(a_hall(("A", 3000, 1, 4), pools=pools))
        booking = pending(buyer, event, 3, pool="GA")
        too_late(stage, buyer, event, booking)
        # Somebody else has the tickets that this booking had; seven places are left.
        pending(other, event, 3, pool="GA")
        money_comes(stage, booking)
        wait_until(lambda: buyer.booking(booking)["reason"] == "paid_late_moved", "the buyer has places again")
        stage.settle(event)
        [new] = [b for b in expect(200, buyer.get("/bookings"))["items"] if b["state"] == "PAID"]
        assert (new["total"], new["reason"], new["seats"][0]["places"]) == (1500, "paid_late", 3)
        assert len(expect(200, buyer.get(f"/bookings/{new['id']}/tickets"))["tickets"]) == 3
        expect(200, buyer.post(f"/bookings/{new['id']}/refund", key=new_key()))
        stage.settle(event)


@pytest.mark.parametrize("obstacle", ["full", "limit", "price"])
def test_late_money_goes_back_if_there_are_no_such_places(stage, obstacle):
    pools = [{"name": "GA", "price": 500, "capacity": 6, "places_per_buyer": 4}]
    with stage.person("seller") as seller, stage.person("buyer") as buyer, stage.person("buyer") as other:
        event = seller.opens(a_hall(("A", 3000, 1, 4), pools=pools))
        booking = pending(buyer, event, 3, pool="GA")
        too_late(stage, buyer, event, booking)
        if obstacle == "full":
            pending(other, event, 4, pool="GA")
        elif obstacle == "limit":
            pending(buyer, event, 2, pool="GA")
        else:
            expect(200, seller.send("PATCH", f"/events/{event}", json={"prices": {"GA": 600}}))
            wait_until(lambda: price_of_a_place(other, event) == 600, "the new price holds")
        stage.settle(event)
        money_comes(stage, booking)
        wait_until(lambda: buyer.booking(booking)["reason"] == "paid_late_returned", "the money is on its way back")
        stage.settle(event)
        charge = stage.fetch(
            """select c.state from payment.sandbox_charges c join payment.payments p on p.id = c.payment
               where p.booking = $1""",
            UUID(booking),
        )
        assert [row["state"] for row in charge] == ["voided"]
