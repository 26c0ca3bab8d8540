"""A role is upgraded process by process while the others sell, and both versions of a message are on the wire."""

import json

from confluent_kafka import Producer

from aisle.messages import TicketReserveRequested, topic
from tests.people import a_hall
from tests.running import run_aisle, wait_until
from tests.scale.meanwhile import orders_meanwhile, require_one_booking_a_key
from tests.scale.topology import ON_SCALE

pytestmark = ON_SCALE


def test_a_role_is_upgraded_while_older_and_newer_messages_travel(stage, seller):
    event = seller.opens(a_hall(("A", 3000, 3, 10), ("B", 1000, 3, 10)))
    with orders_meanwhile(stage, event, at=("api-1", "api-2")) as told:
        wait_until(lambda: len(told) >= 8, "the sale is under way")
        for name in ("reservation-1", "reservation-2"):
            stage.topology.processes[name].restart()
            send_again(stage, event)
    send_again(stage, event)
    stage.heal(event)
    stage.settle(event)
    require_one_booking_a_key(stage, event, told)
    dead = run_aisle("dlq", "list", "--json", env=stage.environment)
    assert dead.returncode == 0, f"a message could not be read: {dead.stdout}"


def send_again(stage, event):
    """Every request once more as the first version wrote it, and once as a later one may: bookings tell them apart."""
    rows = stage.fetch(
        """select b.id::text as booking, b.buyer::text as buyer, b.quantity, e.lane, e.epoch
           from booking.bookings b join ticketing.events e on e.id = b.event_id where b.event_id = $1""",
        event,
    )
    producer = Producer({"bootstrap.servers": stage.config.kafka, "log_level": 0})
    for row in rows:
        first = {
            "type": "ticket_reserve_requested", "id": f"{row['booking']}.again", "lane": row["lane"], "event": event,
            "section": "A", "partition": 0, "epoch": row["epoch"], "version": 1, "booking": row["booking"],
            "buyer": row["buyer"], "quantity": row["quantity"],
        }  # fmt: skip
        later = {**first, "version": 2, "mood": "cheerful", "seats_by_name": [{"row": 1}]}
        for message in (first, later):
            producer.produce(topic(TicketReserveRequested, row["lane"]), json.dumps(message).encode(), partition=0)
    assert producer.flush(60) == 0
