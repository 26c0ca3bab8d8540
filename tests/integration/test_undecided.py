"""While the store is being verified, and after a rebuild, bookings wait instead of failing; nobody waits for ever."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from aisle.booking import order_store
from aisle.booking.booking import Request
from aisle.booking.place import reserve_message
from aisle.bridges import watch_gate_for_ever
from aisle.log import open_writer
from aisle.reservation.generation import Standing
from tests.people import a_hall, expect, new_key, refused
from tests.running import as_environment, run_aisle

HALL = a_hall(("A", 3000, 2, 5), pools=[{"name": "GA", "price": 1000, "capacity": 5}])


def write_total(stage, event, total):
    async def write(_, store):
        await store.call("HSET", f"{store.prefix}section_stats:{{{event}:A-1}}", "total", total)

    stage.look(write)


def forget_verification(stage):
    async def forget(_, store):
        await store.call("DEL", f"{store.prefix}generation")

    stage.look(forget)


def test_bookings_wait_for_the_verification_while_seats_still_come_back(stage, seller, buyer):
    event = seller.opens(HALL)
    earlier = buyer.waits_for(buyer.books(event, 2), "PENDING_PAYMENT")["id"]
    stage.settle(event)
    # The store looks new and differs from PostgreSQL, so it stays shut.
    write_total(stage, event, 11)
    forget_verification(stage)

    def hold_is_refused():
        answer = buyer.post(f"/events/{event}/holds", {"quantity": 1}, key=new_key())
        if answer.status_code == 201:
            buyer.send("DELETE", "/cart")
            return False  # the process has not looked again yet
        refused(503, "store_unverified", answer)
        return int(answer.headers["retry-after"]) > 0

    buyer._wait(hold_is_refused, "the gate is shut")
    waiting = [buyer.books(event, 1), buyer.books(event, 1, pool="GA")]
    expect(200, buyer.post(f"/bookings/{earlier}/cancel"))
    buyer._wait(
        lambda: expect(200, buyer.get(f"/events/{event}/sections"))[0]["available"] == 10, "the seats came back"
    )
    assert {buyer.booking(id)["state"] for id in waiting} == {"PROCESSING"}
    write_total(stage, event, 10)
    for id in waiting:
        assert buyer.waits_for(id, "PENDING_PAYMENT", "FAILED")["state"] == "PENDING_PAYMENT"
    stage.settle(event)


def placing_of(event, epoch):
    partition_and_epoch = {"partition": 0, "epoch": epoch}
    return order_store.Placing(
        uuid4(), event, "shared", uuid4(), Request(quantity=2), "key", b"h" * 16, 10, **partition_and_epoch
    )


def place(stage, placing, *, placed_at):
    async def write(database, _):
        async with database.acquire() as connection:
            await order_store.place(connection, [placing], now=placed_at)

    stage.look(write)


def publish(stage, placing):
    async def send():
        async with open_writer(stage.config.kafka) as writer:
            await writer.publish([reserve_message(placing)])

    asyncio.run(send())


def booking(stage, id):
    [row] = stage.fetch("select state, reason, asked_at from booking.bookings where id = $1", id)
    return tuple(row)


def test_a_request_from_before_a_rebuild_is_asked_again_in_the_epoch_that_holds(stage, seller, buyer):
    event = seller.opens(HALL)
    rebuilt = run_aisle("rebuild", "--event", str(event), env=as_environment(stage.config))
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    buyer.waits_for(buyer.books(event, 1), "PENDING_PAYMENT")
    old = placing_of(event, 1)
    place(stage, old, placed_at=datetime.now(UTC))
    publish(stage, old)
    buyer._wait(lambda: booking(stage, old.id)[0] != "PROCESSING", "the request was decided")
    state, reason, asked_at = booking(stage, old.id)
    assert (state, reason) == ("PENDING_PAYMENT", "")
    assert asked_at is not None, "in the old epoch it was not decided"
    stage.settle(event)


def test_a_booking_that_nobody_could_answer_fails_and_its_seats_go_back_when_they_are_found(stage, seller, buyer):
    event = seller.opens(HALL)
    long_ago = datetime.now(UTC) - timedelta(seconds=stage.config.processing_seconds + 60)
    late = placing_of(event, 1)
    place(stage, late, placed_at=long_ago)
    buyer._wait(lambda: booking(stage, late.id)[:2] == ("FAILED", "timeout"), "it was given up")
    publish(stage, late)
    publish(stage, late)
    # Whatever was found for it has come and gone before this one, on the same partition, is answered.
    other = buyer.waits_for(buyer.books(event, 1), "PENDING_PAYMENT")["id"]
    stage.settle(event)
    rows = stage.fetch("select booking from ticketing.tickets where event_id = $1 and state = 1", event)
    assert [row["booking"] for row in rows] == [UUID(other)]


async def test_a_store_that_differs_is_compared_again_after_a_growing_pause(monkeypatch):
    pauses, compared = [], []

    class Gate:
        standing = Standing.RESTARTED

        async def check(self):
            return self.standing

    class Enough(Exception):
        pass

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 12:
            raise Enough

    async def differs(database, store, gate):
        compared.append(1)
        gate.standing = Standing.VERIFIED if len(compared) == 8 else Standing.RESTARTED

    monkeypatch.setattr("aisle.bridges.verify_and_admit", differs)
    monkeypatch.setattr("aisle.bridges.asyncio.sleep", sleep)
    with pytest.raises(Enough):
        await watch_gate_for_ever(None, None, Gate())
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30, 1, 1, 1, 1]
