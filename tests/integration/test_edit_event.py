"""A seller changes prices and words of an event on sale; who has booked or holds keeps the price they were given."""

import itertools

import pytest

from aisle.messages import PriceChanged
from aisle.reservation.prices import set_prices
from tests.people import a_hall, expect, new_key, refused
from tests.running import as_environment, run_aisle

POOL = {"name": "GA", "price": 1500, "capacity": 20}


@pytest.fixture
def event(stage, seller):
    event = seller.opens(a_hall(("A", 3000, 2, 5), ("B", 1000, 2, 5), pools=[POOL]))
    yield event
    stage.settle(event)


def change(seller, event, key="", **body):
    return seller.send("PATCH", f"/events/{event}", json=body, headers={"idempotency-key": key} if key else {})


def prices_in_store(stage, event):
    async def look(_, store):
        keys = [f"section_config:{{{event}:A-1}}", f"section_config:{{{event}:B-1}}", f"pool:{{{event}:GA}}"]
        return [int(p) for p in await store.call_many([("HGET", store.prefix + key, "price") for key in keys])]

    return stage.look(look)


def books_two(buyer, event):
    """Two seats of A and two places of the pool."""
    return [buyer.waits_for(buyer.books(event, 2, **w), "PENDING_PAYMENT") for w in ({"section": "A"}, {"pool": "GA"})]


def waits_for_prices(stage, buyer, event, *prices):
    buyer._wait(lambda: prices_in_store(stage, event) == list(prices), f"the prices are {prices}")


def test_new_prices_are_for_bookings_made_from_now_on(stage, seller, buyer, event):
    before = [
        buyer.waits_for(buyer.books(event, 2, **where), "PENDING_PAYMENT")
        for where in ({"section": "A"}, {"pool": "GA"})
    ]
    expect(200, change(seller, event, prices={"A": 3500, "GA": 0}, name="Night Train, late"))
    waits_for_prices(stage, buyer, event, 3500, 1000, 0)
    shown = expect(200, buyer.get(f"/events/{event}/sections"))
    assert [(s["section"], s["price"]) for s in shown] == [("A", 3500), ("B", 1000), ("GA", 0)]
    assert expect(200, buyer.get(f"/events/{event}"))["name"] == "Night Train, late"
    after = [
        buyer.waits_for(buyer.books(event, 2, **where), "PENDING_PAYMENT")
        for where in ({"section": "A"}, {"pool": "GA"})
    ]
    assert [booking["total"] for booking in after] == [7000, 0]
    assert [buyer.booking(booking["id"])["total"] for booking in before] == [6000, 3000]
    stage.settle(event)
    verified = run_aisle("verify", "--event", str(event), env=as_environment(stage.config))
    assert verified.returncode == 0, verified.stdout


def test_a_live_hold_keeps_its_price(stage, seller, buyer, event):
    hold = {"mode": "manual", "section": "A", "subsection": 1, "seats": ["1-1"]}
    expect(201, buyer.post(f"/events/{event}/holds", hold, key=new_key()))
    expect(200, change(seller, event, prices={"A": 9000}))
    waits_for_prices(stage, buyer, event, 9000, 1000, 1500)
    cart = expect(200, buyer.get("/cart"))
    assert cart["total"] == 3000
    assert [hold["total"] for hold in cart["holds"]] == [3000]
    assert buyer.send("DELETE", "/cart").status_code < 300


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"prices": {"A": 1, "Z": 2}}, 404, "unknown_section"),
        ({"prices": {"A": -1}}, 400, "invalid_request"),
        ({"prices": {"A": 10**10}}, 400, "invalid_request"),
        ({"name": ""}, 400, "invalid_request"),
        ({"sections": []}, 400, "invalid_request"),
        ({"pools": [{**POOL, "capacity": 1}]}, 400, "invalid_request"),
        ({"state": "on_sale"}, 400, "invalid_request"),
        ({"seats": 1}, 400, "invalid_request"),
    ],
)
def test_what_cannot_be_changed_is_refused_as_a_whole(stage, seller, event, body, status, code):
    """Above all, no change can take a seat away: not from the hall, and so not from whoever has it."""
    before = stage.fetch("select * from ticketing.events where id = $1", event)
    refused(status, code, change(seller, event, **body))
    assert stage.fetch("select * from ticketing.events where id = $1", event) == before
    assert prices_in_store(stage, event) == [3000, 1000, 1500]


def test_an_event_of_somebody_else_or_of_nobody_is_not_found(stage, seller, event):
    with stage.person("seller") as other:
        refused(404, "not_found", change(other, event, prices={"A": 1}))
    refused(404, "not_found", change(seller, 2**62, prices={"A": 1}))
    refused(404, "not_found", change(seller, 2**80, prices={"A": 1}))
    assert prices_in_store(stage, event) == [3000, 1000, 1500]


def test_a_repeat_under_the_same_key_does_not_undo_a_later_change(stage, seller, buyer, event):
    key = new_key()
    first = expect(200, change(seller, event, key, prices={"A": 3100}))
    expect(200, change(seller, event, prices={"A": 3200}))
    assert expect(200, change(seller, event, key, prices={"A": 3100})) == first
    refused(422, "key_reused", change(seller, event, key, prices={"A": 3300}))
    waits_for_prices(stage, buyer, event, 3200, 1000, 1500)


def test_prices_that_arrive_in_any_order_end_with_the_newest(stage, seller, event):
    shared = {"lane": "shared", "event": event, "section": "A", "partition": 0, "epoch": 1, "subsections": (1,)}
    changes = [PriceChanged(id=f"{n}", price=3000 + n, revision=n, **shared) for n in (1, 2, 3)]

    async def careless(store, order):
        for one in order:
            await store.call("HSET", f"{store.prefix}section_config:{{{event}:A-1}}", "price", one.price)
        return int(await store.call("HGET", f"{store.prefix}section_config:{{{event}:A-1}}", "price"))

    async def look(_, store):
        assert await careless(store, [changes[2], changes[0]]) == 3001, "whoever comes last wins without a revision"
        for order in itertools.permutations(changes):
            await store.call("HDEL", f"{store.prefix}section_config:{{{event}:A-1}}", "priced")
            for one in (*order, order[0]):
                await set_prices(store, [one])
            assert await store.call("HGET", f"{store.prefix}section_config:{{{event}:A-1}}", "price") == b"3003"
        await store.call("HDEL", f"{store.prefix}section_config:{{{event}:A-1}}", "priced")
        await store.call("HSET", f"{store.prefix}section_config:{{{event}:A-1}}", "price", 3000)

    stage.look(look)


def test_a_rebuilt_event_has_the_new_price_and_takes_no_older_one(stage, seller, buyer, event):
    expect(200, change(seller, event, prices={"A": 3500, "GA": 2000}))
    waits_for_prices(stage, buyer, event, 3500, 1000, 2000)
    rebuilt = run_aisle("rebuild", "--event", str(event), env=as_environment(stage.config))
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    late = {"lane": "shared", "event": event, "partition": 0, "epoch": 1, "price": 1, "revision": 0}
    stage.look(
        lambda _, store: set_prices(
            store,
            [
                PriceChanged(id="a", section="A", subsections=(1,), **late),
                PriceChanged(id="g", section="GA", subsections=(0,), **late),
            ],
        )
    )
    assert prices_in_store(stage, event) == [3500, 1000, 2000]
