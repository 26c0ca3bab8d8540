"""A message that cannot be handled is set aside with its reason; an operator sees it and sends it again, once."""

import asyncio
import json
from uuid import UUID

import pytest
from confluent_kafka import Producer

from aisle.log import open_writer
from aisle.messages import SHARED_LANE, TicketReserveRequested, topic
from tests.people import a_hall
from tests.running import as_environment, run_aisle, wait_until


def dlq(stage, *arguments):
    done = run_aisle("dlq", *arguments, "--json", env=as_environment(stage.config))
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def letters(stage, *arguments):
    return dlq(stage, "list", *arguments)["dead_letters"]


def test_bytes_that_nobody_can_read_do_not_stop_the_partition(stage):
    with stage.person("seller") as seller, stage.person("buyer") as buyer:
        event = seller.opens(a_hall(("A", 3000, 1, 4)))
        requests = topic(TicketReserveRequested, SHARED_LANE)
        producer = Producer({"bootstrap.servers": stage.config.kafka})
        producer.produce(requests, b"\xff not a message", partition=0)
        assert producer.flush(30) == 0
        buyer.waits_for(buyer.books(event, 2), "PENDING_PAYMENT")
    wait_until(lambda: letters(stage), "it lies on the dead-letter topic")
    [letter] = letters(stage)
    assert letter["reason"].startswith("not readable: ")
    assert (letter["lane"], letter["topic"], letter["partition"], letter["kind"]) == ("shared", requests, 0, "")
    stage.settle(event)
    assert dlq(stage, "replay") == {"replayed": {"shared": 0}}, "it would only come back"
    assert (letters(stage), letters(stage, "--all")) == ([], [letter])


def test_a_message_that_fails_is_listed_with_its_reason_and_handled_once_when_it_is_replayed(stage):
    with stage.person("seller") as seller, stage.person("buyer") as buyer:
        event = seller.opens(a_hall(pools=[{"name": "GA", "price": 1000, "capacity": 10}]))

        async def write_held(store, text):
            await store.call("HSET", f"{store.prefix}pool:{{{event}:GA}}", "held", text)

        stage.look(lambda _, store: write_held(store, "many"))
        booking = buyer.books(event, 3, pool="GA")
        wait_until(lambda: any(found["id"] == booking for found in letters(stage)), "the request was set aside")
        [letter, *_] = [found for found in letters(stage) if found["id"] == booking]
        assert letter["kind"] == "ticket_reserve_requested"
        assert "StoreScriptFailed" in letter["reason"]
        assert "held is not a whole number" in letter["reason"]
        assert buyer.booking(booking)["state"] == "PROCESSING"

        # Nobody asks again by itself from here on: what happens now is the replay's doing.
        stage.fetch("update booking.bookings set placed_at = now() + interval '1 hour' where id = $1", UUID(booking))
        stage.look(lambda _, store: write_held(store, "0"))
        count = len(letters(stage))
        assert dlq(stage, "replay", "--lane", "shared")["replayed"]["shared"] <= count
        buyer.waits_for(booking, "PENDING_PAYMENT")
        assert [found for found in letters(stage) if found["id"] == booking] == []
        assert letter in letters(stage, "--all")
        assert dlq(stage, "replay") == {"replayed": {}}, "a second replay has nothing to do"
        stage.fetch("update booking.bookings set placed_at = now() where id = $1", UUID(booking))
        stage.settle(event)
        assert len(stage.fetch("select 1 from ticketing.tickets where booking = $1", UUID(booking))) == 3


def test_a_replay_that_is_repeated_has_one_effect(stage):
    """A crash between sending and remembering sends a message twice: the receivers bear it."""
    with stage.person("seller") as seller, stage.person("buyer") as buyer:
        event = seller.opens(a_hall(("A", 3000, 1, 8)))
        booking = buyer.waits_for(buyer.books(event, 2), "PENDING_PAYMENT")["id"]
        row = stage.fetch("select * from booking.bookings where id = $1", UUID(booking))[0]
        again = TicketReserveRequested(
            id=booking, lane="shared", event=event, section="any", partition=0, epoch=1, booking=booking,
            buyer=str(row["buyer"]), quantity=2,
        )  # fmt: skip

        async def send():
            async with open_writer(stage.config.kafka) as writer:
                await writer.publish([again, again])

        asyncio.run(send())
        probe = buyer.waits_for(buyer.books(event, 1), "PENDING_PAYMENT")["id"]
        assert probe
        stage.settle(event)
        assert len(stage.fetch("select 1 from ticketing.tickets where event_id = $1 and state = 1", event)) == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("list", "--lane", "nowhere"), "there is no lane 'nowhere'"),
        (("replay", "--lane", "7"), "there is no lane '7'"),
    ],
)
def test_a_lane_that_is_not_there_is_said_in_one_line(stage, arguments, sentence):
    done = run_aisle("dlq", *arguments, env=as_environment(stage.config))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"aisle: {sentence}\n")


def test_a_log_that_is_away_is_said_in_one_line(stage):
    env = {**as_environment(stage.config), "AISLE_KAFKA": "127.0.0.1:1"}
    done = run_aisle("dlq", "list", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "aisle: Kafka at 127.0.0.1:1 does not answer\n"
