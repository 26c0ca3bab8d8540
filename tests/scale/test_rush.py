"""Crowds on many processes: the last seat, a hall to its last place, a neighbour who wants no part in it."""

import asyncio
from collections import Counter

from aisle.messages import RESERVATION, SHARED_LANE, group
from tests.http_client import connections
from tests.people import a_hall, new_key
from tests.running import wait_until
from tests.scale.topology import ON_SCALE, all_orders, members

pytestmark = ON_SCALE

BOTH = ("api-1", "api-2")


def test_of_forty_who_want_the_last_seat_at_two_processes_one_gets_it(stage, seller):
    event = seller.opens(a_hall(("A", 3000, 1, 1)))
    tokens = asyncio.run(stage.tokens(40))
    asyncio.run(all_orders(stage, event, tokens, [new_key() for _ in tokens], at=BOTH))
    stage.settle(event)
    states = Counter(
        row["state"] for row in stage.fetch("select state from booking.bookings where event_id = $1", event)
    )
    assert states["PENDING_PAYMENT"] == 1
    assert set(states) <= {"PENDING_PAYMENT", "FAILED"}


def test_a_hall_is_sold_to_its_last_seat_and_no_further(stage, seller):
    """140 buyers for 120 seats, in a lane of its own."""
    event = seller.opens(a_hall(("A", 3000, 6, 10), ("B", 1000, 6, 10)))
    tokens = asyncio.run(stage.tokens(140))
    found = asyncio.run(all_orders(stage, event, tokens, [new_key() for _ in tokens], at=BOTH))
    assert len(found) == 140
    stage.settle(event)
    [row] = stage.fetch(
        """select count(*) filter (where state = 1) as reserved, count(*) as all,
                  (select lane from ticketing.events where id = $1) as lane
           from ticketing.tickets where event_id = $1""",
        event,
    )
    assert (row["reserved"], row["all"], row["lane"]) == (120, 120, str(event))


def both_read(found):
    return len(found) == 2 and all(found.values())


def test_two_workers_share_the_partitions_and_one_takes_all_when_the_other_dies(stage, seller, buyer):
    readers = group(RESERVATION, SHARED_LANE)
    wait_until(lambda: both_read(members(stage, readers)), f"both read: {members(stage, readers)}")
    before = members(stage, readers)
    event = seller.opens(a_hall(("A", 3000, 2, 10), ("B", 1000, 2, 10)))
    stage.kill("reservation-1")
    waiting = [buyer.books(event, 1, section=section) for section in "ABAB"]
    for booking in waiting:
        buyer.waits_for(booking, "PENDING_PAYMENT")
    after = members(stage, readers)
    assert len(after) == 1
    assert sum(after.values()) == sum(before.values())
    stage.heal(event)
    wait_until(lambda: len(members(stage, readers)) == 2, "it is back among the readers")
    stage.settle(event)


def test_a_rush_in_one_lane_does_not_stand_before_the_orders_of_another(stage, seller, buyer):
    """Somebody who orders in the middle of a rush on another event is served in the middle of it.

    How much slower the neighbour becomes is measured by `aisle bench sellout --topology scale`.
    """
    hot = seller.opens(a_hall(("A", 3000, 10, 20), ("B", 3000, 10, 20)))
    quiet = seller.opens(a_hall(("A", 3000, 5, 10)))
    lanes = {row["id"]: row["lane"] for row in stage.fetch("select id, lane from ticketing.events")}
    assert (lanes[hot], lanes[quiet]) == (str(hot), SHARED_LANE)
    tokens = asyncio.run(stage.tokens(300))

    async def one(connection, number):
        order = {"event_id": quiet, "quantity": 1}
        answer = await connection.request("POST", "/bookings", order, token=buyer.token, key=f"quiet-{number}-{quiet}")
        assert answer.status == 202, answer.body
        path = f"/bookings/{answer.json['id']}"
        while (await connection.request("GET", path, token=buyer.token)).json["state"] == "PROCESSING":
            await asyncio.sleep(0.02)

    async def neighbour():
        async with connections(stage.address_of("api-1"), 1) as [connection]:
            for number in range(4):  # what one buyer may have of an event
                await one(connection, number)

    async def run():
        rush = all_orders(stage, hot, tokens, [new_key() for _ in tokens], at=BOTH)
        await asyncio.gather(rush, neighbour())

    asyncio.run(run())
    stage.settle_all(hot, quiet)
    [row] = stage.fetch(
        """select (select max(deadline) from booking.bookings where event_id = $1) as rush_served,
                  min(deadline) as first_served, count(*) as served
           from booking.bookings where event_id = $2 and state = 'PENDING_PAYMENT'""",
        hot,
        quiet,
    )
    assert row["served"] == 4
    assert row["first_served"] < row["rush_served"], "the neighbour had to wait for the end of the rush"
