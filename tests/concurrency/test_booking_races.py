"""Crowds over HTTP: one seat, a small hall, one key, one limit. What came of it is read from PostgreSQL and the store.

The same races without their guards go wrong: a seat in `test_last_seat`, a key and a limit in `integration/test_place`.
"""

import asyncio
import random
from collections import Counter

from tests.http_client import connections
from tests.people import a_hall, new_key
from tests.stage import settle


def told_at_once_or_accepted(answers):
    """How many were accepted; who came after the last seat may have been told so at once, and left no trace."""
    statuses = Counter(answer.status for answer in answers)
    assert set(statuses) <= {202, 409}
    assert all(answer.json["code"] == "sold_out" for answer in answers if answer.status == 409)
    return statuses[202]


async def book_all(stage, orders):
    """Send (token, key, order) over as many connections as there are orders, at most 250. Returns the answers."""
    queue = list(enumerate(orders))
    answers = [None] * len(orders)

    async def work(connection):
        while queue:
            n, (token, key, order) = queue.pop()
            answers[n] = await connection.request("POST", "/bookings", order, token=token, key=key)
            if answers[n].status == 503:  # told to come back, which a buyer does, with the same key
                queue.append((n, (token, key, order)))

    async with connections(stage.address, min(250, len(orders))) as opened:
        await asyncio.gather(*map(work, opened))
    return answers


async def outcomes(database, event):
    rows = await database.fetch("select state, reason from booking.bookings where event_id = $1", event)
    return Counter(tuple(row) for row in rows)


async def test_of_five_hundred_buyers_one_gets_the_seat(stage, seller):
    event = await asyncio.to_thread(seller.opens, a_hall(("A", 3000, 1, 1), seats_per_booking=1, seats_per_buyer=1))
    tokens = await stage.tokens(500)
    named = {"mode": "manual", "section": "A", "subsection": 1, "seats": ["1-1"]}
    orders = [{"event_id": event, **(named if n % 2 else {"quantity": 1})} for n in range(500)]
    answers = await book_all(stage, [(t, new_key(), order) for t, order in zip(tokens, orders, strict=True)])
    accepted = told_at_once_or_accepted(answers)
    async with stage.behind() as (database, store):
        await settle(database, store, [event])
        found = await outcomes(database, event)
        assert found["PENDING_PAYMENT", ""] == 1
        assert {reason for state, reason in found if state == "FAILED"} <= {"taken", "sold_out"}
        assert sum(found.values()) == accepted


async def test_two_thousand_buyers_for_five_hundred_seats_buy_each_seat_once(stage, seller):
    hall = [(name, 1000, 10, 10) for name in "ABCDE"]
    event = await asyncio.to_thread(seller.opens, a_hall(*hall, seats_per_booking=4, seats_per_buyer=4))
    tokens = await stage.tokens(2000)
    chance = random.Random(5)
    orders = []
    for n in range(2000):
        where = chance.choice([{}, {"section": chance.choice("ABCDE")}, {"section": "A", "subsection": 1}])
        orders.append((tokens[n], new_key(), {"event_id": event, "quantity": chance.randint(1, 4), **where}))
    answers = await book_all(stage, orders)
    accepted = told_at_once_or_accepted(answers)
    async with stage.behind() as (database, store):
        await settle(database, store, [event])
        found = await outcomes(database, event)
        assert sum(found.values()) == accepted
        assert {reason for state, reason in found if state == "FAILED"} <= {"sold_out", "no_block"}
        sold = await database.fetchval(
            "select count(*) from ticketing.tickets where event_id = $1 and state = 1", event
        )
        assert sold == 500, "the hall is full: single people went on asking to the end"


async def test_the_same_key_from_fifty_clients_is_one_booking(stage, seller):
    event = await asyncio.to_thread(seller.opens, a_hall(("A", 3000, 10, 10), seats_per_buyer=100))
    [token] = await stage.tokens(1)
    key, order = new_key(), {"event_id": event, "quantity": 3}
    answers = await book_all(stage, [(token, key, order)] * 50)
    assert Counter(answer.status for answer in answers) == {202: 50}
    assert len({answer.json["id"] for answer in answers}) == 1
    async with stage.behind() as (database, store):
        await settle(database, store, [event])
        assert await outcomes(database, event) == {("PENDING_PAYMENT", ""): 1}
        assert await database.fetchval("select seats from booking.purchases where event_id = $1", event) == 3


async def test_one_buyer_on_fifty_devices_gets_no_more_than_the_limit(stage, seller):
    event = await asyncio.to_thread(seller.opens, a_hall(("A", 3000, 10, 10), seats_per_booking=4, seats_per_buyer=4))
    [token] = await stage.tokens(1)
    answers = await book_all(stage, [(token, new_key(), {"event_id": event, "quantity": 1})] * 1)
    answers += await book_all(stage, [(token, new_key(), {"event_id": event, "quantity": 1}) for _ in range(50)])
    assert Counter(answer.status for answer in answers) == {202: 4, 409: 47}
    assert {answer.json["code"] for answer in answers if answer.status == 409} == {"limit"}
    async with stage.behind() as (database, store):
        await settle(database, store, [event])
        assert await outcomes(database, event) == {("PENDING_PAYMENT", ""): 4}


async def test_buyers_who_cancel_the_moment_they_have_seats_leave_an_empty_hall(stage, seller):
    """The seats are still on their way to PostgreSQL when their release overtakes them on another topic."""
    event = await asyncio.to_thread(seller.opens, a_hall(*((name, 1000, 10, 10) for name in "ABC")))
    tokens = await stage.tokens(60)

    async def book_and_cancel(connection, n):
        order = {"event_id": event, "quantity": 2, **({"section": "ABC"[n % 3]} if n % 2 else {})}
        booking = (await connection.request("POST", "/bookings", order, token=tokens[n], key=new_key())).json["id"]
        status = 409
        while status == 409:  # not cancellable before it has seats
            status = (await connection.request("POST", f"/bookings/{booking}/cancel", token=tokens[n])).status
        assert status == 200

    async with connections(stage.address, len(tokens)) as opened, asyncio.timeout(60):
        await asyncio.gather(*(book_and_cancel(connection, n) for n, connection in enumerate(opened)))
    async with stage.behind() as (database, store):
        await settle(database, store, [event])
        assert await outcomes(database, event) == {("CANCELLED", "cancelled"): 60}
        assert not await database.fetchval(
            "select count(*) from ticketing.tickets where event_id = $1 and state <> 0", event
        )


async def test_a_deadline_and_many_cancellations_at_once_end_a_booking_once(stage, seller):
    event = await asyncio.to_thread(seller.opens, a_hall(("A", 3000, 10, 10)))
    tokens = await stage.tokens(10)
    answers = await book_all(stage, [(token, new_key(), {"event_id": event, "quantity": 4}) for token in tokens])
    async with stage.behind() as (database, store):
        await settle(database, store, [event])
        async with connections(stage.address, 40) as opened:
            cancellations = [
                connection.request("POST", f"/bookings/{answers[n % 10].json['id']}/cancel", token=tokens[n % 10])
                for n, connection in enumerate(opened)
            ]
            due = database.execute("update booking.bookings set deadline = now() where event_id = $1", event)
            *cancelled, _ = await asyncio.gather(*cancellations, due)
        assert {answer.status for answer in cancelled} == {200}
        await settle(database, store, [event])
        assert sum((await outcomes(database, event)).values()) == 10
        counted = await database.fetchval("select sum(seats) from booking.purchases where event_id = $1", event)
        assert counted == 0, "each buyer's seats stopped counting once"
