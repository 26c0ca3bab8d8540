"""The process is killed at every point between money and seats; the next one brings each payment to its end.

Whoever heard nothing asks again under the same key. In the end money kept is seats delivered, by our books, by the
provider's, by the tickets and by the store.
"""

import asyncio
from uuid import UUID

import pytest

from aisle.accounts.account import Role
from aisle.crash_points import PAYMENT_POINTS
from tests.http_client import connections
from tests.payment.steps import look_now, pending
from tests.people import a_hall, expect, new_key
from tests.running import wait_until
from tests.stage import prepared_stage

pytestmark = pytest.mark.xdist_group("stage-payment-kills")  # one stage for the module, in one worker

LATE_POINTS = [point for point in PAYMENT_POINTS if point.startswith("after_late")]
REFUND_POINTS = ["after_refund", "after_provider_refund"]
DECISION_POINTS = ["after_decision"]
PAY_POINTS = [p for p in PAYMENT_POINTS if p not in (*LATE_POINTS, *REFUND_POINTS, *DECISION_POINTS)]


@pytest.fixture(scope="module")
def stage(servers, tmp_path_factory):
    with prepared_stage(servers, tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture
def stage_left_empty(stage):
    yield stage
    stage.stop()


@pytest.fixture
def booking(stage_left_empty, stage):
    """(buyer, event, a booking of theirs that waits for its payment), made by a process that lives, then stopped."""
    stage.start()
    with stage.person("seller") as seller, stage.person("buyer") as buyer:
        event = seller.opens(a_hall(("A", 3000, 2, 10)))
        id = pending(buyer, event)
        stage.settle(event)
        yield buyer, event, id


def restart(stage, crash_at=""):
    stage.stop()
    stage.start(crash_at=crash_at)


def ask_in_vain(stage, buyer, path, body, key):
    """The process dies while it answers."""

    async def ask():
        async with connections(stage.address, 1) as [connection]:
            await connection.request("POST", path, body, token=buyer.token, key=key)

    with pytest.raises(ConnectionError):
        asyncio.run(ask())
    assert stage.wait_for_death() == 137, stage.said()


@pytest.mark.parametrize("point", PAY_POINTS)
def test_a_payment_that_was_cut_off_here_comes_to_its_end(stage, booking, point):
    buyer, event, id = booking
    path, key = f"/bookings/{id}/payments", new_key()
    restart(stage, crash_at=point)
    ask_in_vain(stage, buyer, path, {"method": "card_ok"}, key)
    stage.start()
    again = expect(201, buyer.post(path, {"method": "card_ok"}, key=key))
    look_now(stage)
    # Cut off before the provider was asked, nobody was charged, and the buyer's time is not over.
    expected = "PENDING_PAYMENT" if point == "after_fence" else "PAID"
    buyer.waits_for(id, expected)
    if point == "after_fence":
        buyer.pays(id)
    stage.settle(event)
    assert buyer.booking(id)["state"] == "PAID"
    made = stage.fetch("select id::text, state from payment.payments where event_id = $1 order by id", event)
    assert made[0]["id"] == again["id"], "the same key is the same payment, before and after the crash"
    charges = stage.fetch(
        """select c.state from payment.sandbox_charges c join payment.payments p on p.id = c.payment
           where p.event_id = $1""",
        event,
    )
    assert [row["state"] for row in charges] == ["captured"], "charged once"


@pytest.mark.parametrize("point", REFUND_POINTS)
def test_a_refund_that_was_cut_off_here_is_done_once(stage, booking, point):
    buyer, event, id = booking
    buyer.pays(id)
    stage.settle(event)
    restart(stage, crash_at=point)
    path, key = f"/bookings/{id}/refund", new_key()
    if point == "after_refund":
        ask_in_vain(stage, buyer, path, None, key)
    else:
        expect(200, buyer.post(path, key=key))
        assert stage.wait_for_death() == 137, stage.said()
    stage.start()
    assert expect(200, buyer.post(path, key=key))["state"] == "REFUNDED"
    look_now(stage)
    stage.settle(event)
    buyer.waits_until_free(event, 20)
    rows = stage.fetch(
        """select r.amount from payment.sandbox_refunds r join payment.payments p on p.id = r.payment
           where p.event_id = $1""",
        event,
    )
    assert [row["amount"] for row in rows] == [6000], "the provider gave it back once"


@pytest.mark.parametrize("point", DECISION_POINTS)
def test_a_decision_that_was_cut_off_here_is_carried_out_once(stage, booking, point):
    buyer, event, id = booking
    payment = expect(201, buyer.post(f"/bookings/{id}/payments", {"method": "card_wrong_amount"}, key=new_key()))
    restart(stage, crash_at=point)
    operator = stage.staff(Role.OPERATOR)
    path, key, order = f"/payments/{payment['id']}/decision", new_key(), {"decision": "accept"}
    ask_in_vain(stage, operator, path, order, key)
    stage.start()
    look_now(stage)
    buyer.waits_for(id, "PAID")
    assert expect(200, operator.post(path, order, key=key))["state"] == "CAPTURED"
    look_now(stage)
    stage.settle(event)
    rows = stage.fetch("select amount, why from payment.refunds where booking = $1", UUID(id))
    assert [tuple(row) for row in rows] == [(1, "overpaid")]


@pytest.mark.parametrize("point", LATE_POINTS)
def test_late_money_that_was_cut_off_here_seats_its_buyer_once(stage, booking, point):
    buyer, event, id = booking
    expect(201, buyer.post(f"/bookings/{id}/payments", {"method": "card_late"}, key=new_key()))
    stage.fetch("update payment.sandbox_charges set settles_at = now() + interval '1 day' where card = 'card_late'")
    stage.overdue(id)
    stage.fetch("update payment.payments set started_at = started_at - interval '1 hour', look_at = now()")
    buyer.waits_for(id, "CANCELLED")
    buyer.waits_until_free(event, 20)
    restart(stage, crash_at=point)
    stage.fetch("update payment.sandbox_charges set settles_at = now() where card = 'card_late'")
    stage.fetch("update payment.payments set look_at = now() where state = 'ABANDONED'")
    assert stage.wait_for_death() == 137, stage.said()
    stage.start()
    look_now(stage)
    wait_until(lambda: buyer.booking(id)["reason"] == "paid_late_moved", "the buyer is told")
    stage.settle(event)
    paid = [b for b in expect(200, buyer.get("/bookings"))["items"] if b["state"] == "PAID"]
    assert [(b["event_id"], b["total"], b["reason"]) for b in paid] == [(event, 6000, "paid_late")]
    assert paid[0]["seats"] == buyer.booking(id)["seats"], "the same seats: they were free"
