"""Rarer misfortunes, for `make kills`: servers that take turns, hosts that come back with an old view."""

import os
import signal
import time

from tests.people import a_hall
from tests.running import run_aisle, wait_until
from tests.scale.meanwhile import orders_meanwhile, require_one_booking_a_key
from tests.scale.topology import ON_SCALE, lagging, take_over

pytestmark = ON_SCALE


def test_servers_that_take_turns_are_verified_each_time(stage, seller, buyer):
    """The old primary comes back to power in the same process, and has missed sales meanwhile: it does not pass."""
    event = seller.opens(a_hall(("A", 3000, 3, 10), seats_per_booking=10, seats_per_buyer=30))
    first = stage.primary_of(event)
    second = lagging(stage, first)
    take_over(stage, second)
    stage.rebuild(event)
    buyer.waits_for(buyer.books(event, 2), "PENDING_PAYMENT")
    assert lagging(stage, second) == first
    kept = buyer.books(event, 10)
    buyer.waits_for(kept, "PENDING_PAYMENT")
    take_over(stage, first)
    wait_until(lambda: run_aisle("verify", "--json", env=stage.environment).returncode == 1, "the loss is seen")
    late = buyer.books(event, 10)
    time.sleep(3)
    assert buyer.booking(late)["state"] in ("PROCESSING", "FAILED")
    stage.rebuild(event)
    buyer.waits_for(late, "PENDING_PAYMENT", "FAILED")
    stage.settle(event)


def test_hosts_that_vanish_and_come_back_with_an_old_view_do_no_harm(stage, seller):
    """One process of each role stands still for longer than the log misses it, then goes on where it was."""
    event = seller.opens(a_hall(("A", 3000, 3, 10), ("B", 1000, 3, 10)))
    frozen = [stage.topology.processes[name].pid for name in ("api-2", "reservation-1", "booking-1", "ticketing-1")]
    with orders_meanwhile(stage, event) as told:
        wait_until(lambda: len(told) >= 8, "the sale is under way")
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(9)
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    stage.heal(event)
    stage.settle(event)
    require_one_booking_a_key(stage, event, told)
