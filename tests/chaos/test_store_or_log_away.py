"""The store or the log goes away under a selling Aisle: 503 or patience, nothing half-done, recovery by itself."""

import os
import signal
from contextlib import contextmanager

import pytest

from aisle.embedded.supervisor import Supervisor
from tests.people import a_hall, expect, new_key
from tests.running import status_of, wait_until
from tests.stage import running_stage


@contextmanager
def selling(servers, folder, **options):
    """A stage with a seller, a buyer and an event on sale."""
    with running_stage(servers, folder, **options) as stage, stage.person("seller") as seller:
        event = seller.opens(a_hall(("A", 3000, 10, 10), seats_per_booking=4, seats_per_buyer=100))
        with stage.person("buyer") as buyer:
            buyer.waits_for(buyer.books(event, 2), "PENDING_PAYMENT")
            yield stage, seller, buyer, event


def test_without_the_log_bookings_wait_and_nothing_is_lost(servers, tmp_path):
    with selling(servers, tmp_path) as (stage, seller, buyer, event):
        stage.log.kill()
        waiting = [buyer.books(event, 2) for _ in range(5)]
        # An event with topics of its own is created meanwhile: those cannot be made now.
        born = expect(201, seller.post("/events", a_hall(("A", 1, 1, 4), own_lane=True)))["id"]
        assert status_of(f"{stage.address}/livez") == 200
        assert {buyer.booking(id)["state"] for id in waiting} == {"PROCESSING"}
        assert len(stage.fetch("select 1 from ticketing.tickets where event_id = $1 and state = 1", event)) == 2
        stage.log.start()
        for id in waiting:
            assert len(buyer.waits_for(id, "PENDING_PAYMENT")["seats"]) == 1
        stage.settle(event)
        wait_until(
            lambda: expect(200, seller.get(f"/seller/events/{born}"))["state"] == "ready", f"{born} is ready too"
        )
        stage.settle(born)


@pytest.fixture
def valkey(tmp_path):
    with Supervisor(tmp_path / "valkey", log=lambda line: None) as supervisor:
        yield supervisor.start_valkey()


def test_a_store_that_was_killed_and_came_back_is_verified_and_sold_from_again(servers, valkey, tmp_path):
    with selling(servers, tmp_path, store_url=valkey.url) as (stage, _, buyer, event):
        stage.settle(event)
        valkey.kill()
        valkey.start()

        def sells_again() -> bool:
            answer = buyer.post("/bookings", {"event_id": event, "quantity": 1}, key=new_key())
            if answer.status_code != 202:
                return False
            booking = buyer.waits_for(answer.json()["id"], "PENDING_PAYMENT", "FAILED")
            assert booking["reason"] == "", "nobody loses because the store was being verified"
            return booking["state"] == "PENDING_PAYMENT"

        wait_until(sells_again, "the store was verified")
        stage.settle(event)
        assert len(stage.fetch("select 1 from ticketing.tickets where event_id = $1 and state = 1", event)) == 3


def test_without_the_store_orders_are_refused_with_503_and_a_time_to_come_back(servers, valkey, tmp_path):
    options = {"store_url": valkey.url, "store_timeout": 0.5, "store_breaker_seconds": 3}
    with selling(servers, tmp_path, **options) as (stage, _, buyer, event):
        before = stage.fetch("table booking.bookings")
        order = {"event_id": event, "quantity": 1}
        os.kill(valkey.pid, signal.SIGSTOP)
        try:
            answers = []
            # The process may use its own copy of the event for a second; what it accepts then has to wait.
            wait_until(
                lambda: answers.append(buyer.post("/bookings", order, key=new_key())) or answers[-1].status_code == 503,
                "orders are refused",
            )
            answers += [buyer.post("/bookings", order, key=new_key()) for _ in range(10)]
            refusals = [answer for answer in answers if answer.status_code == 503]
            assert len(refusals) == 11
            for answer in refusals:
                assert answer.json()["code"] in ("store_unavailable", "store_outcome_unknown")
                assert 1 <= int(answer.headers["retry-after"]) <= stage.config.store_breaker_seconds
            accepted = [answer.json()["id"] for answer in answers if answer.status_code == 202]
            rows = stage.fetch("select id::text, state from booking.bookings")
            assert {row["id"] for row in rows} == {str(row["id"]) for row in before} | set(accepted)
            assert {row["state"] for row in rows if row["id"] in accepted} <= {"PROCESSING"}
        finally:
            os.kill(valkey.pid, signal.SIGCONT)
        wait_until(lambda: buyer.post("/bookings", order, key=new_key()).status_code == 202, "orders are taken again")
        for id in accepted:
            buyer.waits_for(id, "PENDING_PAYMENT")
        stage.settle(event)
