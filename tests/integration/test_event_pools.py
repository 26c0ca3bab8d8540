"""Pools of an event from the seller's description to the buyer's places, over HTTP, observed in both stores."""

import asyncio
import base64
from uuid import UUID, uuid4

import asyncpg
import pytest

from aisle.ticketing import store as tickets
from aisle.ticketing.pool_store import Wanted, number_places
from tests.http_client import connections
from tests.people import a_hall, expect, new_key, refused
from tests.running import as_environment, run_aisle
from tests.stage import require_no_drift, settle

GA = {"name": "GA", "price": 1500, "capacity": 20, "places_per_buyer": 4}


@pytest.fixture
def event(stage, seller):
    event = seller.opens(a_hall(("A", 3000, 2, 5), pools=[GA, {"name": "VIP", "price": 9000, "capacity": 3}]))
    yield event
    stage.settle(event)


def pool_of(buyer, event, name="GA"):
    [found] = [s for s in expect(200, buyer.get(f"/events/{event}/sections")) if s["section"] == name]
    return found


def test_a_pool_is_shown_beside_the_sections_and_on_the_map(buyer, event):
    assert pool_of(buyer, event) == {
        "section": "GA", "price": 1500, "available": 20, "total": 20, "places_per_buyer": 4, "one_hold_per_buyer": False
    }  # fmt: skip
    [counts] = expect(200, buyer.get(f"/events/{event}/sections/VIP"))
    assert (counts["subsection"], counts["available"], counts["total"]) == (0, 3, 3)
    hall = expect(200, buyer.get(f"/events/{event}/seatmap"))
    assert [place[:4] for place in hall["places"]] == [["A", 1, 2, 5], ["GA", 0, 1, 20], ["VIP", 0, 1, 3]]
    assert expect(200, buyer.get(f"/events/{event}"))["seats"] == 33


def test_places_are_booked_counted_and_come_back(stage, buyer, event):
    booking = buyer.waits_for(buyer.books(event, 3, pool="GA"), "PENDING_PAYMENT")
    assert booking["seats"] == [{"section": "GA", "subsection": 0, "seats": [], "price": 1500, "places": 3}]
    assert (booking["total"], booking["quantity"]) == (4500, 3)
    assert pool_of(buyer, event)["available"] == 17
    owners = stage.fetch("select seat from ticketing.tickets where booking = $1 order by seat", UUID(booking["id"]))
    assert [row["seat"] for row in owners] == [0, 1, 2]
    map_of_ga = base64.b64decode(expect(200, buyer.get(f"/events/{event}/seatmap"))["map"])[3:8]
    assert map_of_ga == bytes([0b01010100, 0, 0, 0, 0])
    stage.settle(event)
    expect(200, buyer.post(f"/bookings/{booking['id']}/cancel"))
    buyer.waits_until_free(event, 33)


def test_places_that_came_back_are_sold_again_when_no_others_are_left(stage, buyer, event):
    def takes_all():
        return buyer.waits_for(buyer.books(event, 3, pool="VIP"), "PENDING_PAYMENT")["id"]

    expect(200, buyer.post(f"/bookings/{takes_all()}/cancel"))
    buyer.waits_until_free(event, 33)
    again = takes_all()
    rows = stage.fetch("select seat from ticketing.tickets where booking = $1 order by seat", UUID(again))
    assert [row["seat"] for row in rows] == [0, 1, 2]
    expect(200, buyer.post(f"/bookings/{again}/cancel"))


def test_a_pool_has_a_limit_of_its_own(buyer, event):
    seats = buyer.waits_for(buyer.books(event, 10), "PENDING_PAYMENT")
    places = buyer.waits_for(buyer.books(event, 3, pool="GA"), "PENDING_PAYMENT")
    order = {"event_id": event, "quantity": 2, "pool": "GA"}
    refused(409, "limit", buyer.post("/bookings", order, key=new_key()))
    expect(200, buyer.post(f"/bookings/{places['id']}/cancel"))
    expect(202, buyer.post("/bookings", order, key=new_key()))
    expect(200, buyer.post(f"/bookings/{seats['id']}/cancel"))


@pytest.mark.parametrize(
    ("order", "status", "code"),
    [
        ({"pool": "GA", "quantity": 5}, 422, "bad_quantity"),
        ({"pool": "GA"}, 422, "bad_order"),
        ({"pool": "GA", "quantity": 1, "section": "A"}, 422, "bad_order"),
        ({"pool": "GA", "quantity": 1, "mode": "manual"}, 422, "bad_order"),
        ({"pool": "GA", "quantity": 1, "accessible": 1}, 422, "bad_order"),
        ({"pool": "A", "quantity": 1}, 404, "unknown_pool"),
        ({"section": "GA", "quantity": 1}, 404, "unknown_section"),
        ({"pool": "G:A", "quantity": 1}, 400, "invalid_request"),
    ],
)
def test_an_order_that_does_not_fit_a_pool_changes_nothing(stage, buyer, event, order, status, code):
    refused(status, code, buyer.post("/bookings", {"event_id": event, **order}, key=new_key()))
    assert stage.fetch("select 1 from booking.bookings where event_id = $1", event) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sections": [], "pools": []}, "needs a section or a pool"),
        ({"pools": [GA, GA]}, "the name of another pool"),
        ({"pools": [{**GA, "name": "A"}]}, "the name of another pool or of a section"),
        ({"pools": [{**GA, "capacity": 999_999}]}, "at most 1000000 seats and places"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(stage, seller, changes, sentence):
    before = stage.fetch("select count(*) from ticketing.events")
    answer = seller.post("/events", a_hall(("A", 1, 2, 5), **changes))
    refused(422, "bad_event", answer)
    assert sentence in answer.json()["detail"]
    assert stage.fetch("select count(*) from ticketing.events") == before


def test_an_event_may_have_pools_only(stage, seller, buyer):
    event = seller.opens(a_hall(pools=[GA]))
    refused(422, "bad_order", buyer.post("/bookings", {"event_id": event, "quantity": 1}, key=new_key()))
    booking = buyer.waits_for(buyer.books(event, 2, pool="GA"), "PENDING_PAYMENT")
    assert booking["total"] == 3000
    stage.settle(event)


async def test_a_crowd_gets_every_place_and_not_one_more(stage, seller):
    event = await asyncio.to_thread(seller.opens, a_hall(pools=[{**GA, "capacity": 50}]))
    tokens = await stage.tokens(40)

    async def book(connection, token):
        order = {"event_id": event, "quantity": 2, "pool": "GA"}
        return await connection.request("POST", "/bookings", order, token=token, key=new_key())

    async with connections(stage.address, len(tokens)) as opened:
        answers = await asyncio.gather(*(book(c, t) for c, t in zip(opened, tokens, strict=True)))
    assert {answer.status for answer in answers} == {202}
    async with stage.behind() as (database, store):
        await settle(database, store, [event])
        states = await database.fetch("select state, reason, count(*) from booking.bookings where event_id = $1 "
                                      "group by 1, 2 order by 1", event)  # fmt: skip
    assert [tuple(row) for row in states] == [("FAILED", "full", 15), ("PENDING_PAYMENT", "", 25)]


def test_the_operator_verifies_and_rebuilds_a_pool_from_the_tickets(stage, seller, buyer):
    event = seller.opens(a_hall(("A", 3000, 2, 5), pools=[GA]))
    booking = buyer.waits_for(buyer.books(event, 3, pool="GA"), "PENDING_PAYMENT")["id"]
    stage.settle(event)
    env = as_environment(stage.config)

    async def damage(_, store):
        await store.call("HSET", f"{store.prefix}pool:{{{event}:GA}}", "held", 1)
        await store.call("HDEL", f"{store.prefix}pool_holds:{{{event}:GA}}", booking)

    stage.look(damage)
    drift = run_aisle("verify", "--event", str(event), env=env)
    assert drift.returncode == 1
    assert f"{event}:GA  facts  booking {booking} is reserved in fact and unknown in the store" in drift.stdout
    rebuilt = run_aisle("rebuild", "--event", str(event), env=env)
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    assert f"{event}:GA  20 seats, 1 bookings, 0 holds kept, 0 dropped, epoch 2, on sale" in rebuilt.stdout
    assert run_aisle("verify", "--event", str(event), env=env).returncode == 0
    expect(200, buyer.post(f"/bookings/{booking}/cancel"))
    buyer.waits_until_free(event, 30)
    stage.settle(event)


async def test_two_workers_with_the_same_message_give_a_booking_its_places_once(stage, seller):
    """Without the lock both would find nobody's numbers yet and choose twice: that is shown first."""
    event = await asyncio.to_thread(seller.creates, a_hall(pools=[GA]))
    wanted = Wanted(event, 0, uuid4(), 3)

    async def choose(database: asyncpg.Pool, both_inside: asyncio.Barrier | None) -> tuple[int, ...]:
        async with database.acquire() as connection, connection.transaction():
            if both_inside:
                found = await connection.fetch(
                    "select 1 from ticketing.pool_tickets where booking = $1", wanted.booking
                )
                await both_inside.wait()
                return () if found else (0, 1, 2)
            return (await number_places(connection, [wanted]))[wanted]

    async with stage.behind() as (database, _):
        careless = await asyncio.gather(*[choose(database, both := asyncio.Barrier(2)), choose(database, both)])
        assert careless == [(0, 1, 2), (0, 1, 2)], "both chose: the lock below is what prevents it"
        given = await asyncio.gather(*(choose(database, None) for _ in range(8)))
        assert set(given) == {(0, 1, 2)}
        numbered = await database.fetchval("select numbered from ticketing.pools where event_id = $1", event)
        assert numbered == 3, "asked eight times, chosen once"
        async with database.acquire() as connection:
            assert [pool.capacity for pool in await tickets.pools_of(connection, event)] == [20]


def test_a_module_that_leaves_drift_behind_fails(stage, seller):
    """The check at the end of every stage, with a pool and a subsection that were damaged for it."""
    event = seller.opens(a_hall(("A", 3000, 2, 5), pools=[GA]))

    async def damage(store, name, field, value):
        await store.call("HSET", f"{store.prefix}{name}", field, value)

    for name, field, value, right in (
        (f"pool:{{{event}:GA}}", "sold", 1, 0),
        (f"section_stats:{{{event}:A-1}}", "available", 9, 10),
        (f"section_config:{{{event}:A-1}}", "price", 1, 3000),
    ):
        stage.look(lambda _, store, n=name, f=field, v=value: damage(store, n, f, v))
        with pytest.raises(AssertionError, match="drift: "):
            stage.look(lambda database, store: require_no_drift(database, store, patience_s=0.2))
        stage.look(lambda _, store, n=name, f=field, v=right: damage(store, n, f, v))
    stage.look(require_no_drift)
