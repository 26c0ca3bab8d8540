"""What people do, from one process to the next: whoever answers, it is one product."""

import asyncio

from tests.door import email_of, scan, tickets_of
from tests.integration.live_stage import browsing
from tests.people import a_hall, expect, new_key, refused
from tests.running import wait_until
from tests.scale.topology import ON_SCALE

pytestmark = ON_SCALE


def test_an_event_is_sold_paid_scanned_and_given_back_through_both_doors(stage, seller, buyer):
    with stage.person_at("api-2", seller) as sells, stage.person_at("api-2", buyer) as buys:
        event = sells.opens(a_hall(("A", 3000, 4, 10), name="Through Both Doors"))
        found = expect(200, buyer.get("/events", search="Through Both Doors"))["items"]
        assert [each["id"] for each in found] == [event]
        booking = buyer.books(event, 2)
        assert buys.waits_for(booking, "PENDING_PAYMENT")["total"] == 6000
        assert buys.pays(booking)["state"] == "CAPTURED"
        tickets = tickets_of(buyer, booking)
        assert buys.get(f"/bookings/{booking}/tickets.pdf").content.startswith(b"%PDF")
        door = stage.staff()
        expect(200, seller.send("PUT", f"/events/{event}/door-staff", json={"email": email_of(door)}))
        with stage.person_at("api-2", door) as other_door:
            assert scan(door, event, tickets[0]["code"])["outcome"] == "accepted"
            assert scan(other_door, event, tickets[0]["code"])["outcome"] == "already_in"
        second = buys.books(event, 3)
        buyer.waits_for(second, "PENDING_PAYMENT")
        buyer.pays(second)
        expect(200, buys.post(f"/bookings/{second}/refund", key=new_key()))
        buyer.waits_until_free(event, 38)
        wait_until(lambda: expect(200, sells.get(f"/events/{event}/sales"))["sold"] == 2, "the figures follow")
    stage.settle(event)


def test_a_cart_is_filled_at_one_process_and_checked_out_at_another(stage, seller, buyer, other_buyer):
    event = seller.opens(a_hall(("A", 3000, 2, 10), ("B", 1000, 2, 10)))
    pair = {"mode": "manual", "section": "A", "subsection": 1, "seats": ["1-1", "1-2"]}
    with stage.person_at("api-2", buyer) as there, stage.person_at("api-2", other_buyer) as rival:
        expect(201, buyer.post(f"/events/{event}/holds", pair, key=new_key()))
        refused(409, "taken", rival.post(f"/events/{event}/holds", pair, key=new_key()))
        expect(201, there.post(f"/events/{event}/holds", {"quantity": 2, "section": "B"}, key=new_key()))
        booking = expect(201, there.post("/cart/checkout", key=new_key()))["id"]
        assert buyer.waits_for(booking, "PENDING_PAYMENT")["total"] == 8000
        expect(200, buyer.post(f"/bookings/{booking}/cancel"))
        there.waits_until_free(event, 40)
    stage.settle(event)


def test_the_same_key_at_another_process_is_the_same_booking(stage, seller, buyer):
    event = seller.opens(a_hall(("A", 3000, 1, 10)))
    order, key = {"event_id": event, "quantity": 2}, new_key()
    with stage.person_at("api-2", buyer) as there:
        first = expect(202, buyer.post("/bookings", order, key=key))["id"]
        assert expect(202, there.post("/bookings", order, key=key))["id"] == first
        there.waits_for(first, "PENDING_PAYMENT")
        assert there.free(event) == 8
        stage.overdue(first)
        there.waits_for(first, "CANCELLED")
        buyer.waits_until_free(event, 10)
    stage.settle(event)


def test_viewers_of_every_live_process_see_what_any_other_process_sells(stage, seller, buyer):
    event = seller.opens(a_hall(("A", 3000, 1, 10)))

    async def watch(name, seen, ready):
        async with browsing(stage.address_of(name), f"/events/{event}/updates?seats=true") as browser:
            await browser.until("snapshot")
            ready.release()
            while browser.seats["A-1"].count(1) < 4:
                assert await browser.next() is not None
            seen.append(name)

    async def run():
        ready, seen = asyncio.Semaphore(0), []
        watching = [asyncio.create_task(watch(name, seen, ready)) for name in ("live-1", "live-2")]
        for _ in watching:
            await ready.acquire()
        await asyncio.to_thread(buyer.books, event, 4)
        await asyncio.gather(*watching)
        assert sorted(seen) == ["live-1", "live-2"]

    asyncio.run(run())
    stage.settle(event)


def test_who_logs_out_at_one_process_is_out_everywhere(stage):
    with stage.person("buyer") as buyer, stage.person_at("api-2", buyer) as there:
        assert there.get("/me").status_code == 200
        [mine] = expect(200, buyer.get("/tokens"))["items"]
        assert buyer.send("DELETE", f"/tokens/{mine['id']}").status_code == 204
        wait_until(lambda: there.get("/me").status_code == 401, "the other process knows")
