"""Sales figures: they are the sums over tickets, also while the event is being sold, and only its seller sees them."""

import asyncio
import csv
import io
from collections import Counter
from datetime import datetime
from uuid import UUID

from aisle.booking.booking import Request
from aisle.booking.expire import cancel
from aisle.once import asked
from tests.door import buys, email_of, scan, tickets_of
from tests.http_client import connections
from tests.integration.live_stage import browsing
from tests.people import a_hall, expect, new_key, refused
from tests.shop import buyers, open_shop, time_passes
from tests.stage import paid, refund, settle

TICKETS = """
    select count(*) filter (where state = 0) as available, count(*) filter (where state = 1) as held,
           count(*) filter (where state = 2) as sold,
           coalesce(sum(price) filter (where state = 2), 0)::bigint as revenue
    from ticketing.tickets where event_id = $1
"""


def sales(seller, event, until=lambda figures: True):
    """The figures, once they are as expected: they are up to a second old."""
    found = {}

    def look():
        found["figures"] = expect(200, seller.get(f"/events/{event}/sales"))
        return until(found["figures"])

    seller._wait(look, "the figures are as expected")
    return found["figures"]


def check(figures):
    """What must hold in every picture, however fast the sale."""
    for row in [*figures["sections"], figures]:
        assert row["available"] + row["held"] + row["sold"] + row["blocked"] == row["seats"], row
        assert 0 <= row["in_carts"] <= row["available"]
    for name in ("seats", "available", "held", "sold", "blocked", "admitted", "revenue", "in_carts"):
        assert sum(section[name] for section in figures["sections"]) == figures[name]
    assert sum(minute["tickets"] for minute in figures["minutes"]) == figures["sold"]
    assert sum(minute["revenue"] for minute in figures["minutes"]) == figures["revenue"]


def test_the_figures_of_a_small_sale(stage, seller, buyer):
    hall = a_hall(("A", 3000, 2, 5), ("B", 1000, 1, 10), seats_per_buyer=40)
    hall["sections"][1]["subsections"][0]["blocked"] = ["1-10"]
    hall["pools"] = [{"name": "GA", "price": 500, "capacity": 20, "places_per_buyer": 8}]
    event = seller.opens(hall)
    door = stage.staff()
    expect(200, seller.send("PUT", f"/events/{event}/door-staff", json={"email": email_of(door)}))
    kept = buys(stage, buyer, event, 2, section="A")
    back = buys(stage, buyer, event, 3, section="B")
    buys(stage, buyer, event, 4, pool="GA")
    assert stage.refund(back)
    ended = buyer.books(event, 1, section="B")
    buyer.waits_for(ended, "PENDING_PAYMENT")
    expect(200, buyer.post(f"/bookings/{ended}/cancel"))
    waiting = buyer.books(event, 2, section="B")
    buyer.waits_for(waiting, "PENDING_PAYMENT")
    stage.settle(event)
    assert scan(door, event, tickets_of(buyer, kept)[0]["code"])["outcome"] == "accepted"

    figures = sales(seller, event, lambda f: f["admitted"] == 1)
    check(figures)
    sections = {
        s["section"]: (s["available"], s["held"], s["sold"], s["blocked"], s["revenue"]) for s in figures["sections"]
    }
    assert sections == {"A": (8, 0, 2, 0, 6000), "B": (7, 2, 0, 1, 0), "GA": (16, 0, 4, 0, 2000)}
    assert (figures["revenue"], figures["currency"], figures["seats"]) == (8000, "TWD", 40)
    assert figures["refunds"] == {"tickets": 3, "amount": 3000}
    assert figures["sell_through"] == round(6 / 39, 4)
    bookings = figures["bookings"]
    assert (bookings["paid"], bookings["refunded"], bookings["cancelled"], bookings["waiting_for_payment"]) == (
        2,
        1,
        1,
        1,
    )
    assert bookings["conversion"] == 0.75, "three were paid, one was let go"


def test_seats_in_a_cart_are_named_apart(stage, seller, buyer):
    event = seller.opens(a_hall(("A", 3000, 2, 5)))
    expect(201, buyer.post(f"/events/{event}/holds", {"quantity": 3}, key=new_key()))
    figures = sales(seller, event, lambda f: f["in_carts"] == 3)
    assert (figures["available"], figures["held"]) == (10, 0)
    check(figures)


async def test_conversion_counts_the_carts_that_ran_out(stage, seller):
    """Of eight people who had seats: three paid, one cancelled, three let their carts run out, one gave all back."""
    event = await asyncio.to_thread(seller.opens, a_hall(("A", 3000, 4, 10), ("B", 1000, 4, 10)))
    async with open_shop(stage) as shop:
        crowd = buyers(8)
        for buyer in crowd:
            await shop.hold(event, buyer, Request(quantity=1, section="A"))
            await shop.hold(event, buyer, Request(quantity=2, section="B"))
        for buyer in crowd[:4]:
            booking = await shop.check_out(buyer)
            if buyer is crowd[3]:
                request = asked(buyer, None, "")
                await cancel(shop.database, booking.id, request, now=booking.placed_at)
            else:
                await paid(shop.database, shop.store, booking=booking.id)
        for buyer in crowd[4:7]:
            await time_passes(shop.store, event, buyer)
        await shop.holder.release_all(crowd[7])
        figures = await asyncio.to_thread(sales, seller, event, lambda f: f["lapsed"]["holds"] == 6)
        rows = await shop.database.fetch("select * from sales.lapsed_holds where event_id = $1", event)
        assert {UUID(row["owner"]) for row in rows} == set(crowd[4:7])
        won, lost = 3, 1
        assert figures["lapsed"] == {"holds": len(rows), "carts": 3}
        assert figures["bookings"]["conversion"] == round(won / (won + lost + 3), 4)
        check(figures)
        await settle(shop.database, shop.store, [event])


def test_the_tables_hold_the_same_figures(stage, seller, buyer):
    event = seller.opens(a_hall(("A", 3000, 2, 5), ("B", 1000, 1, 10)))
    buys(stage, buyer, event, 2, section="A")
    figures = sales(seller, event, lambda f: f["sold"] == 2)
    answer = seller.get(f"/events/{event}/sales.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(r["section"], r["sold"], r["revenue"], r["currency"]) for r in rows] == [
        ("A", "2", "6000", "TWD"),
        ("B", "0", "0", "TWD"),
    ]
    [minute] = csv.DictReader(io.StringIO(seller.get(f"/events/{event}/sales.csv", by="minute").text))
    assert (minute["tickets"], minute["revenue"]) == ("2", "6000")
    assert datetime.fromisoformat(minute["minute"]) == datetime.fromisoformat(figures["minutes"][0]["minute"])
    assert expect(200, seller.get(f"/events/{event}/sales", minutes=0))["minutes"] == []


def test_nobody_but_the_seller_sees_them(stage, seller, buyer):
    event = seller.opens(a_hall(("A", 3000, 2, 5)))
    with stage.person("seller") as other:
        for path in ("sales", "sales.csv", "sales/updates", "sales/bookings"):
            refused(404, "not_found", other.get(f"/events/{event}/{path}"))
            refused(404, "not_found", seller.get(f"/events/{2**62}/{path}"))
            refused(403, "forbidden", buyer.get(f"/events/{event}/{path}"))
    for bad in ({"minutes": -1}, {"minutes": 1441}, {"minutes": "all"}):
        refused(400, "invalid_request", seller.get(f"/events/{event}/sales", **bad))
    refused(400, "invalid_request", seller.get(f"/events/{event}/sales.csv", by="hour"))
    for bad in ({"limit": 0}, {"limit": 101}, {"before": "yesterday"}):
        refused(400, "invalid_request", seller.get(f"/events/{event}/sales/bookings", **bad))


def test_the_newest_bookings_say_what_became_of_them(stage, seller, buyer):
    pool = {"name": "GA", "price": 500, "capacity": 20, "places_per_buyer": 8}
    event = seller.opens(a_hall(("A", 3000, 3, 5), pools=[pool], seats_per_buyer=40))
    first = buys(stage, buyer, event, 2, section="A")
    second = buys(stage, buyer, event, 3, pool="GA")
    third = buyer.books(event, 1, section="A")
    buyer.waits_for(third, "PENDING_PAYMENT")
    refunded = buys(stage, buyer, event, 1, section="A")
    assert stage.refund(refunded)
    stage.settle(event)
    wanted = [(refunded, "REFUNDED"), (third, "PENDING_PAYMENT"), (second, "PAID"), (first, "PAID")]

    def states(bookings):
        return [(booking["id"], booking["state"]) for booking in bookings]

    figures = sales(seller, event, lambda f: states(f["recent"]) == wanted)
    newest = expect(200, seller.get(f"/events/{event}/sales/bookings"))
    assert (newest["items"], newest["next"], newest["currency"]) == (figures["recent"], None, "TWD")
    paid_seats, places = newest["items"][3], newest["items"][2]
    assert (paid_seats["total"], paid_seats["quantity"]) == (6000, 2)
    own = expect(200, buyer.get(f"/bookings/{first}"))
    assert (paid_seats["seats"], paid_seats["placed_at"]) == (own["seats"], own["placed_at"])
    assert places["seats"] == [{"section": "GA", "subsection": 0, "seats": [], "price": 500, "places": 3}]
    assert not {"buyer", "email"} & {key for booking in newest["items"] for key in booking}
    pages, before = [], {}
    while True:
        page = expect(200, seller.get(f"/events/{event}/sales/bookings", limit=2, **before))
        pages.append(states(page["items"]))
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert [one for page in pages for one in page] == wanted
    assert [len(page) for page in pages] == [2, 2, 0]


async def test_figures_are_the_sums_over_tickets_while_a_crowd_buys(stage, seller):
    hall = a_hall(("A", 3000, 10, 20), ("B", 1000, 10, 20), seats_per_booking=4, seats_per_buyer=400)
    event = await asyncio.to_thread(seller.opens, hall)
    tokens = await stage.tokens(20)
    bought = 0
    seen = []
    async with stage.behind() as (database, store), connections(stage.address, 21) as opened:

        async def buy(connection, token):
            nonlocal bought
            for n in range(8):
                if n == 4:
                    # The figures are up to a second old, and a crowd may be done before they move.
                    await asyncio.wait_for(moved.wait(), 60)
                order = {"event_id": event, "quantity": 2, "section": "AB"[n % 2]}
                answer = await connection.request("POST", "/bookings", order, token=token, key=new_key())
                assert answer.status == 202
                id = answer.json["id"]
                while True:
                    state = (await connection.request("GET", f"/bookings/{id}", token=token)).json["state"]
                    if state == "PENDING_PAYMENT":
                        break
                    assert state == "PROCESSING"
                    await asyncio.sleep(0.01)
                if n % 4 != 3:
                    await paid(database, store, booking=UUID(id))
                    bought += 1
                if n % 4 == 2:
                    assert await refund(database, store, booking=UUID(id))

        async def look():
            before = await database.fetchval("select clock_timestamp()")
            ever = await database.fetchval(EVER_SOLD, event)
            answer = await opened[-1].request("GET", f"/events/{event}/sales", token=seller.token)
            figures = answer.json
            check(figures)
            seen.append(figures["sold"])
            if len(set(seen)) > 1:
                moved.set()
            if datetime.fromisoformat(figures["at"]) >= before:
                assert figures["sold"] + figures["refunds"]["tickets"] >= ever
            assert figures["sold"] + figures["refunds"]["tickets"] <= await database.fetchval(EVER_SOLD, event)

        async def watch():
            while not done.is_set():
                await look()
                await asyncio.sleep(0.05)

        done, moved = asyncio.Event(), asyncio.Event()
        await look()
        watching = asyncio.create_task(watch())
        await asyncio.gather(*(buy(c, t) for c, t in zip(opened, tokens, strict=False)))
        done.set()
        await watching
        # A booking may wait for its money a moment before its tickets say so.
        await settle(database, store, [event])
        truth = await database.fetchrow(TICKETS, event)
    assert len(set(seen)) > 1, "nothing was sold while we looked: the test proves nothing"
    figures = await asyncio.to_thread(
        sales, seller, event, lambda f: f["sold"] + f["refunds"]["tickets"] == 2 * bought and f["held"] == truth["held"]
    )
    check(figures)
    assert {name: figures[name] for name in truth.keys()} == dict(truth)  # noqa: SIM118 - a record has no other way
    assert figures["bookings"]["paid"] * 2 == figures["sold"]


EVER_SOLD = """
    select (select count(*) from ticketing.tickets where event_id = $1 and state = 2)
         + (select count(*) from ticketing.voided_codes where event_id = $1 and reason = 'refunded')
"""


async def test_the_seller_sees_them_change_live(stage, seller, buyer):
    event = await asyncio.to_thread(seller.opens, a_hall(("A", 3000, 2, 5)))
    path = f"/events/{event}/sales/updates"
    headers = {"authorization": f"Bearer {seller.token}"}
    async with browsing(stage.address, path, **headers) as one, browsing(stage.address, path, **headers) as other:
        for browser in (one, other):
            first = await browser.until("sales")
            assert (first.data["sold"], first.data["available"]) == (0, 10)
        await asyncio.to_thread(buys, stage, buyer, event, 2)
        for browser in (one, other):
            told = []
            while not told or told[-1]["sold"] < 2:
                told.append((await browser.until("sales")).data)
                check(told[-1])
            assert told[-1]["revenue"] == 6000
    assert Counter(t.name for t in one.told) == {"sales": len(one.told)}
