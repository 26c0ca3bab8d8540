"""Races at the door: many scans of one ticket, a refund or a new code against a scan.

Each is first shown to be real: the careless way, with everybody having looked before anybody writes, goes wrong. Then
the guards are taken on: over HTTP, against a refund that takes the locks a refund must take, and against the database
alone, which refuses what a careless program would do.
"""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import pytest

from tests.door import a_sold_show, buys, tickets_of
from tests.http_client import connections
from tests.people import expect, new_key
from tests.stage import refund

CROWD = 20
ROUNDS = 12


@pytest.fixture
def show(stage, seller, buyer):
    return a_sold_show(stage, seller, buyer, seats=1)


async def scan_at_once(stage, show, code, crowd):
    async with connections(stage.address, crowd) as opened:
        body = {"event_id": show.event, "code": code, "gate": "north"}
        answers = await asyncio.gather(
            *(c.request("POST", "/check-ins", body, token=show.door.token, key=new_key()) for c in opened)
        )
    assert {answer.status for answer in answers} == {200}, [answer.body for answer in answers]
    return Counter(answer.json["outcome"] for answer in answers)


async def test_scanners_that_look_and_then_write_let_everybody_in(stage, show):
    """Without the ticket's lock and the index on first scans, each of them is first."""
    everybody_has_looked = asyncio.Barrier(CROWD)
    let_in = []

    async def careless():
        connection = await asyncpg.connect(stage.config.database_url)
        try:
            inside = await connection.fetchval(
                "select admitted_at from ticketing.tickets where event_id = $1 and state = 2", show.event
            )
            await everybody_has_looked.wait()
            if inside is None:
                await connection.execute(
                    "update ticketing.tickets set admitted_at = now() where event_id = $1 and state = 2", show.event
                )
                let_in.append(1)
        finally:
            await connection.close()

    await asyncio.gather(*(careless() for _ in range(CROWD)))
    assert len(let_in) == CROWD, "the race no longer shows: the next test proves nothing"


async def test_of_many_scans_of_one_ticket_one_lets_in(stage, show):
    outcomes = await scan_at_once(stage, show, show.tickets[0]["code"], CROWD)
    assert outcomes == {"accepted": 1, "already_in": CROWD - 1}
    async with stage.behind() as (database, _):
        rows = await database.fetch("select outcome from door.scans where event_id = $1", show.event)
    assert Counter(row["outcome"] for row in rows) == outcomes


async def test_a_second_first_scan_is_refused_by_the_database_itself(stage, show):
    await scan_at_once(stage, show, show.tickets[0]["code"], 1)
    async with stage.behind() as (database, _):
        with pytest.raises(asyncpg.UniqueViolationError):
            await database.execute(
                """insert into door.scans select event_id, 'another-scan', request_hash, staff, gate, place, seat,
                   code_version, outcome, offline, scanned_at, received_at from door.scans where event_id = $1""",
                show.event,
            )


@asynccontextmanager
async def without_the_check_on_rows(database, event):
    """The ticket that is sold, in a table that no longer refuses a guest with a ticket that was given back."""
    guard = "tickets_admitted_while_sold"
    sold = await database.fetchrow("select * from ticketing.tickets where event_id = $1 and state = 2", event)
    rule = await database.fetchval("select pg_get_constraintdef(oid) from pg_constraint where conname = $1", guard)
    await database.execute(f"alter table ticketing.tickets drop constraint {guard}")
    try:
        yield sold
    finally:
        mend = """update ticketing.tickets set state = 2, admitted_at = null, booking = $4
                  where (event_id, place, seat) = ($1, $2, $3)"""
        await database.execute(mend, sold["event_id"], sold["place"], sold["seat"], sold["booking"])
        await database.execute(f"alter table ticketing.tickets add constraint {guard} {rule}")


NOBODY_IS_IN = "select admitted_at is null from ticketing.tickets where (event_id, place, seat) = ($1, $2, $3)"
GIVE_BACK = """update ticketing.tickets set state = 0, booking = null, code_version = code_version + 1
               where (event_id, place, seat) = ($1, $2, $3)"""
IS_SOLD = "select state = 2 from ticketing.tickets where (event_id, place, seat) = ($1, $2, $3)"
LET_IN = "update ticketing.tickets set admitted_at = now() where (event_id, place, seat) = ($1, $2, $3)"
WHAT_CAME = "select state, admitted_at from ticketing.tickets where (event_id, place, seat) = ($1, $2, $3)"


async def test_a_refund_that_looks_and_then_gives_back_meets_a_guest_who_is_in(stage, show):
    """Careless on both sides, without the check on ticket rows: the seat is on sale again and the guest is inside."""
    both_have_looked = asyncio.Barrier(2)

    async def careless(database, ticket, look, write):
        free = await database.fetchval(look, *ticket)
        await both_have_looked.wait()
        if free:
            await database.execute(write, *ticket)

    async with stage.behind() as (database, _), without_the_check_on_rows(database, show.event) as sold:
        ticket = sold["event_id"], sold["place"], sold["seat"]
        await asyncio.gather(
            careless(database, ticket, NOBODY_IS_IN, GIVE_BACK), careless(database, ticket, IS_SOLD, LET_IN)
        )
        row = await database.fetchrow(WHAT_CAME, *ticket)
    assert row["state"] == 0, "the race no longer shows: the next tests prove nothing"
    assert row["admitted_at"] is not None


async def test_a_scanned_ticket_is_not_refunded_and_a_refunded_one_not_scanned(stage, seller, buyer):
    show = await asyncio.to_thread(a_sold_show, stage, seller, buyer, seats=2)
    other = await asyncio.to_thread(buys, stage, buyer, show.event, 1)
    [kept] = await asyncio.to_thread(tickets_of, buyer, other)
    async with stage.behind() as (database, store):
        assert await scan_at_once(stage, show, show.tickets[1]["code"], 1) == {"accepted": 1}
        assert not await refund(database, store, booking=UUID(show.booking)), "one of the two is inside"
        assert await refund(database, store, booking=UUID(other))
        assert await scan_at_once(stage, show, kept["code"], 1) == {"refunded": 1}
        states = await database.fetch(
            "select state, admitted_at is not null as inside from ticketing.tickets where event_id = $1", show.event
        )
    assert Counter(map(tuple, states)) == {(2, True): 1, (2, False): 1, (0, False): 38}


async def test_a_refund_that_forgets_to_look_is_stopped_by_the_database(stage, show):
    await scan_at_once(stage, show, show.tickets[0]["code"], 1)
    async with stage.behind() as (database, _):
        for forgetful in (
            "update ticketing.tickets set state = 0, booking = null, code_version = 2 where booking = $1",
            "update ticketing.tickets set state = 0, booking = null, admitted_at = null where booking = $1",
        ):
            with pytest.raises(asyncpg.CheckViolationError):
                await database.execute(forgetful, UUID(show.booking))


async def test_in_a_race_the_ticket_is_either_scanned_or_refunded(stage, seller, buyer):
    show = await asyncio.to_thread(a_sold_show, stage, seller, buyer, seats=1)
    ends = Counter()
    async with stage.behind() as (database, store):
        for n in range(ROUNDS):
            booking = await asyncio.to_thread(buys, stage, buyer, show.event, 1)
            [ticket] = await asyncio.to_thread(tickets_of, buyer, booking)

            async def refund_soon(booking=booking, wait_s=n % 4 * 0.002):
                await asyncio.sleep(wait_s)
                return await refund(database, store, booking=UUID(booking))

            scanned, refunded = await asyncio.gather(scan_at_once(stage, show, ticket["code"], 3), refund_soon())
            assert refunded == (scanned["accepted"] == 0), (scanned, refunded)
            assert scanned in ({"refunded": 3}, {"accepted": 1, "already_in": 2}), scanned
            ends[refunded] += 1
    assert ends.total() == ROUNDS


async def test_in_a_race_the_old_code_lets_in_or_is_voided_never_both(stage, seller, buyer):
    show = await asyncio.to_thread(a_sold_show, stage, seller, buyer, seats=ROUNDS)
    for ticket in show.tickets:
        path = f"/bookings/{show.booking}/tickets/{ticket['id']}/reissue"
        scanned, answer = await asyncio.gather(
            scan_at_once(stage, show, ticket["code"], 2), asyncio.to_thread(buyer.post, path, {"version": 1})
        )
        if scanned["accepted"]:
            assert (answer.status_code, answer.json()["code"]) == (409, "already_in")
        else:
            assert scanned == {"voided": 2}
            new = expect(200, answer)
            assert await scan_at_once(stage, show, new["code"], 2) == {"accepted": 1, "already_in": 1}
