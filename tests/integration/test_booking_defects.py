"""Defects of the systems that this one is made from, in the booking path: each is shown not to be here.

The seed took seats with a pipeline that compared nothing and was safe only while one consumer owned a section; it never
counted the ticket rows an update had matched; it made topics for every event; a manual order kept as many seats as it
had found; and its expiry waited for a key to vanish.
"""

import asyncio
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from aisle.messages import BookingFailed, SeatsReserved, TicketReserveRequested
from aisle.reservation.inventory import Inventory
from aisle.reservation.pools import Pools
from aisle.reservation.worker import ReservationWorker
from tests.invariants import assert_store_consistent
from tests.people import a_hall, expect
from tests.running import wait_until
from tests.stage import prepared_stage


@pytest.fixture(scope="module")
def stage(servers, tmp_path_factory):
    with prepared_stage(servers, tmp_path_factory.mktemp("stage")) as stage:
        stage.start()
        yield stage


async def test_defect_8_two_workers_that_both_believe_to_own_a_section_give_no_seat_twice(stage, seller):
    """A rebalance leaves a zombie: two workers handle the same messages, and different ones, at the same time."""
    event = await asyncio.to_thread(seller.opens, a_hall(("A", 3000, 5, 10)))

    def request(n):
        where = [{}, {"in_section": "A"}, {"in_section": "A", "in_subsection": 1}][n % 3]
        return TicketReserveRequested(
            id=str(n), lane="shared", event=event, section="A", partition=0, epoch=1, booking=str(uuid4()),
            buyer=str(uuid4()), quantity=n % 3 + 1, **where,
        )  # fmt: skip

    both, one, other = ([request(n) for n in range(20)] for _ in range(3))
    async with stage.behind() as (_, store), stage.behind() as (_, another_store):
        owners = [ReservationWorker(s, Inventory(s), Pools(s)) for s in (store, another_store)]
        answers = await asyncio.gather(owners[0].handle([*both, *one]), owners[1].handle([*both, *other]))
        await assert_store_consistent(store, event)
    seats_of, refused = {}, set()
    for answer in (answer for some in answers for answer in some):
        if isinstance(answer, SeatsReserved):
            seats = {(part.section, part.subsection, seat) for part in answer.parts for seat in part.seats}
            assert seats_of.setdefault(answer.booking, seats) == seats, "the same booking, the same seats"
        elif isinstance(answer, BookingFailed):
            refused.add(answer.booking)
    taken = [seat for seats in seats_of.values() for seat in seats]
    assert len(taken) == len(set(taken)) == 50, "the hall is full and no seat was given twice"
    assert len(seats_of.keys() | refused) == 60


def test_defect_9_no_booking_waits_for_payment_without_its_seats(stage, seller, buyer):
    """PostgreSQL has fewer free tickets than the store has free seats: the row count decides, the store is mended."""
    event = seller.opens(a_hall(("A", 3000, 1, 4)))
    stranger = uuid4()
    stage.fetch(
        "update ticketing.tickets set state = 1, booking = $2 where event_id = $1 and seat = 2", event, stranger
    )
    booking = buyer.books(event, 4)
    assert buyer.waits_for(booking, "FAILED", "CANCELLED")["reason"] == "taken"
    kept = stage.fetch("select seat, booking from ticketing.tickets where event_id = $1 and state = 1", event)
    assert [(row["seat"], row["booking"]) for row in kept] == [(2, stranger)]
    buyer.waits_until_free(event, 4)
    stage.fetch("update ticketing.tickets set state = 0, booking = null where booking = $1", stranger)
    stage.settle(event)


def test_defect_10_small_events_share_their_topics(stage, seller):
    def topics():
        return set(AdminClient({"bootstrap.servers": stage.config.kafka}).list_topics(timeout=30).topics)

    before = topics()
    assert before
    for _ in range(3):
        seller.opens(a_hall(("A", 3000, 1, 4)))
    assert topics() == before


def test_defect_10_a_seat_is_offered_again_only_when_its_ticket_can_be_sold(stage, seller, buyer):
    """With nobody to release the tickets, the bits stay as they are: nobody is offered a seat that is half released."""
    event = seller.opens(a_hall(("A", 3000, 1, 4)))
    booking = buyer.books(event, 2)
    buyer.waits_for(booking, "PENDING_PAYMENT")
    stage.settle(event)
    stage.stop()
    stage.start("api,booking,reservation")
    assert expect(200, buyer.post(f"/bookings/{booking}/cancel"))["state"] == "CANCELLED"
    wait_until(lambda: not stage.fetch("table booking.outbox"), "the end of the booking is on the log")
    assert buyer.free(event) == 2
    assert len(stage.fetch("select 1 from ticketing.tickets where event_id = $1 and state = 1", event)) == 2
    stage.stop()
    stage.start()
    buyer.waits_until_free(event, 4)
    stage.settle(event)


def test_defect_11_a_couple_gets_two_seats_or_none(stage, seller, buyer):
    event = seller.opens(a_hall(("A", 3000, 1, 4)))
    first = buyer.books(event, seats=["1-2"], section="A", subsection=1)
    buyer.waits_for(first, "PENDING_PAYMENT")
    couple = buyer.books(event, seats=["1-1", "1-2"], section="A", subsection=1)
    assert buyer.waits_for(couple, "FAILED", "PENDING_PAYMENT")["reason"] == "taken"
    stage.settle(event)
    assert buyer.free(event) == 3


def test_defect_11_no_deadline_of_a_booking_depends_on_a_key_that_vanishes(stage, seller, buyer):
    """Keys of a hall never expire; the deadline in PostgreSQL ends the booking, whatever the store remembers."""
    event = seller.opens(a_hall(("A", 3000, 1, 4)))
    booking = buyer.books(event, 2, section="A", subsection=1)
    buyer.waits_for(booking, "PENDING_PAYMENT")

    async def lifetimes(_, store):
        keys = await store.call("KEYS", f"{store.prefix}*{{{event}:A-1}}")
        return {key: await store.call("PTTL", key) for key in keys}

    found = stage.look(lifetimes)
    assert len(found) >= 6
    assert set(found.values()) == {-1}
    stage.overdue(booking)
    buyer.waits_for(booking, "CANCELLED")
    buyer.waits_until_free(event, 4)
    stage.settle(event)
