"""The door over HTTP: who may scan, what each kind of code is told, what the log keeps, merging what was offline."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from aisle.door.code import Content, write_code
from aisle.door.keys import Sealer
from tests.door import a_sold_show, buys, email_of, scan, scan_id, tickets_of
from tests.people import expect, new_key, refused

NOW = datetime.now(UTC)


@pytest.fixture
def show(stage, seller, buyer):
    return a_sold_show(stage, seller, buyer)


def entered(stage, event):
    return stage.fetch(
        "select place, seat, admitted_at from ticketing.tickets where event_id = $1 and admitted_at is not null", event
    )


def the_log(person, event, **wanted):
    items, page = [], {"next": ""}
    while page["next"] is not None:
        page = expect(200, person.get(f"/events/{event}/scans", limit=3, before=page["next"], **wanted))
        items += page["items"]
    return items


def merge(door, event, scans, gate="south"):
    sent = [{"id": id, "code": code, "scanned_at": at.isoformat()} for id, code, at in scans]
    body = {"event_id": event, "gate": gate, "scans": sent}
    return expect(200, door.post("/check-ins/merge", body))["items"]


def test_the_first_scan_lets_in_and_the_second_is_told_when_and_where(show, stage, seller, buyer):
    code = show.tickets[0]["code"]
    first = scan(show.door, show.event, code, gate="north")
    assert (first["outcome"], first["ticket"], first["gate"]) == ("accepted", show.tickets[0]["id"], "north")
    again = scan(show.door, show.event, code, gate="south")
    assert again["outcome"] == "already_in"
    assert again["first_entry"] == {"gate": "north", "scanned_at": first["scanned_at"]}
    assert len(entered(stage, show.event)) == 1
    assert tickets_of(buyer, show.booking)[0]["admitted_at"] is not None
    log = the_log(seller, show.event)
    assert [(s["id"], s["outcome"]) for s in log] == [(again["id"], "already_in"), (first["id"], "accepted")]
    assert the_log(show.door, show.event, outcome="already_in") == log[:1]
    assert code not in str(log)


def test_a_scan_that_is_sent_again_gets_the_same_answer_and_counts_once(show, stage):
    key, code = new_key(), show.tickets[0]["code"]
    first = scan(show.door, show.event, code, key=key)
    assert scan(show.door, show.event, code, key=key) == first
    assert first["outcome"] == "accepted"
    other = {"event_id": show.event, "code": show.tickets[1]["code"], "gate": "north"}
    refused(422, "scan_id_reused", show.door.post("/check-ins", other, key=key))
    assert len(the_log(show.door, show.event)) == len(entered(stage, show.event)) == 1


def test_each_bad_code_is_told_why_and_lets_nobody_in(show, stage, seller, buyer):
    other = a_sold_show(stage, seller, buyer)
    good = show.tickets[0]["code"]
    foreign = Sealer([]).new_key()
    tampered = good[:40] + ("A" if good[40] != "A" else "B") + good[41:]
    forged = write_code(Content(show.event, 0, 0, 1), foreign.id, Sealer([]).open(foreign))
    reissued = show.tickets[1]
    path = f"/bookings/{show.booking}/tickets/{reissued['id']}/reissue"
    expect(200, buyer.post(path, {"version": 1}))
    refunded = buys(stage, buyer, show.event, 1)
    [refunded_ticket] = tickets_of(buyer, refunded)
    assert stage.refund(refunded)
    told = {
        "tampered": tampered,
        "unknown_key": forged,
        "other_event": other.tickets[0]["code"],
        "voided": reissued["code"],
        "refunded": refunded_ticket["code"],
    }
    for outcome, code in told.items():
        assert scan(show.door, show.event, code)["outcome"] == outcome
    assert scan(show.door, show.event, "https://example.com/menu")["outcome"] == "tampered"
    assert entered(stage, show.event) == entered(stage, other.event) == []
    log = the_log(seller, show.event)
    assert sorted(s["outcome"] for s in log) == sorted([*told, "tampered"]), "refused guests are in the log too"
    assert scan(show.door, show.event, good)["outcome"] == "accepted"


def test_a_refunded_seat_that_was_sold_again_lets_its_new_owner_in_only(show, stage, buyer):
    old = {t["id"]: t["code"] for t in show.tickets}
    assert stage.refund(show.booking)
    # The store still has the seats sold: the new owner gets them as a late payment would, in PostgreSQL.
    stage.fetch(
        """update ticketing.tickets set state = 2, booking = gen_random_uuid()
           where event_id = $1 and place = 0 and seat = 0 and state = 0""",
        show.event,
    )
    assert scan(show.door, show.event, old["A-1-1-1"])["outcome"] == "refunded"
    assert entered(stage, show.event) == []


def test_only_granted_staff_scan_and_only_the_seller_grants(show, stage, seller, buyer):
    stranger, code = stage.staff(), show.tickets[0]["code"]
    body = {"event_id": show.event, "code": code}
    refused(404, "not_found", stranger.post("/check-ins", body, key=new_key()))
    refused(404, "not_found", stranger.get(f"/events/{show.event}/scans"))
    refused(403, "forbidden", buyer.post("/check-ins", body, key=new_key()))
    refused(403, "forbidden", stranger.send("PUT", f"/events/{show.event}/door-staff", json={"email": "x@example.com"}))
    with stage.person("seller") as other:
        for method, path in (("PUT", ""), ("GET", ""), ("DELETE", f"/{stranger.id}")):
            more = {"json": {"email": email_of(stranger)}} if method == "PUT" else {}
            answer = other.send(method, f"/events/{show.event}/door-staff{path}", **more)
            refused(404, "not_found", answer)
        refused(404, "not_found", other.get(f"/events/{show.event}/scans"))
    for email in (email_of(buyer), "nobody@example.com", "not an address"):
        answer = seller.send("PUT", f"/events/{show.event}/door-staff", json={"email": email})
        refused(404, "unknown_staff", answer)
    path = f"/events/{show.event}/door-staff"
    for _ in range(2):
        staff = expect(200, seller.send("PUT", path, json={"email": email_of(stranger)}))["items"]
        assert [one["account_id"] for one in staff] == [show.door.id, stranger.id]
    assert scan(stranger, show.event, code)["outcome"] == "accepted"
    assert seller.send("DELETE", f"{path}/{stranger.id}").status_code == 204
    refused(404, "not_found", seller.send("DELETE", f"{path}/{stranger.id}"))
    refused(404, "not_found", stranger.post("/check-ins", body, key=new_key()))
    assert len(the_log(seller, show.event)) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"event_id": 0, "code": "A"},
        {"event_id": 2**63, "code": "A"},
        {"event_id": "{event}", "code": ""},
        {"event_id": "{event}", "code": "A" * 181},
        {"event_id": "{event}", "code": "A", "gate": "x" * 65},
        {"event_id": "{event}", "code": "A", "gate": "a\x00b"},
        {"event_id": "{event}", "code": "A", "admit": True},
    ],
)
def test_a_malformed_scan_is_refused_and_not_logged(show, body):
    body = {name: show.event if value == "{event}" else value for name, value in body.items()}
    refused(400, "invalid_request", show.door.post("/check-ins", body, key=new_key()))
    assert the_log(show.door, show.event) == []


def test_a_malformed_merge_is_refused_whole(show):
    code, at = show.tickets[0]["code"], NOW.isoformat()
    good = {"id": scan_id(), "code": code, "scanned_at": at}
    for bad in ({"id": "short"}, {"scanned_at": "2027-12-31T20:00:00"}, {"code": ""}, {"extra": 1}):
        body = {"event_id": show.event, "scans": [good, {**good, **bad}]}
        refused(400, "invalid_request", show.door.post("/check-ins/merge", body))
    for scans in ([], [{**good, "id": scan_id()} for _ in range(201)]):
        refused(400, "invalid_request", show.door.post("/check-ins/merge", {"event_id": show.event, "scans": scans}))
    twice = [good, {**good, "code": show.tickets[1]["code"]}]
    refused(422, "scan_id_reused", show.door.post("/check-ins/merge", {"event_id": show.event, "scans": twice}))
    assert the_log(show.door, show.event) == []
    for cursor in ("x", "AAAA", "MjAyNy0xMi0zMVQyMDowMDowMCswMDowMCBhAGI="):
        refused(400, "bad_cursor", show.door.get(f"/events/{show.event}/scans", before=cursor))


def test_a_door_without_a_network_knows_what_is_void(show, stage, seller, buyer):
    path = f"/events/{show.event}/voided-codes"
    assert expect(200, show.door.get(path)) == {"items": [], "next": None}
    expect(200, buyer.post(f"/bookings/{show.booking}/tickets/A-1-1-2/reissue", {"version": 1}))
    expect(200, buyer.post(f"/bookings/{show.booking}/tickets/A-1-1-2/reissue", {"version": 2}))
    assert stage.refund(show.booking)
    items, page = [], {"next": ""}
    while page["next"] is not None:
        page = expect(200, seller.get(path, limit=1, after=page["next"]))
        items += [[code["place"], code["seat"], code["version"]] for code in page["items"]]
    assert items == [[0, 0, 1], [0, 1, 1], [0, 1, 2], [0, 1, 3]]
    hall = expect(200, buyer.get(f"/events/{show.event}/seatmap"))["places"]
    assert hall[0][:2] == ["A", 1]
    for bad in ({"after": "1-2"}, {"after": "1-2-x"}, {"after": "9999999999-0-0"}, {"limit": 1001}):
        refused(400, "invalid_request", show.door.get(path, **bad))
    refused(404, "not_found", stage.staff().get(path))


def test_an_earlier_scan_that_comes_late_is_the_entry_and_both_are_named(show, stage, seller):
    code = show.tickets[0]["code"]
    online = scan(show.door, show.event, code, gate="north")
    earlier = datetime.fromisoformat(online["scanned_at"]) - timedelta(minutes=3)
    [merged] = merge(show.door, show.event, [(scan_id(), code, earlier)])
    assert (merged["outcome"], merged["gate"], merged["offline"]) == ("accepted", "south", True)
    assert [(s["gate"], s["outcome"]) for s in the_log(seller, show.event)] == [
        ("north", "already_in"),
        ("south", "accepted"),
    ]
    [row] = entered(stage, show.event)
    assert row["admitted_at"] == earlier
    # Nobody gets in a third time by it.
    assert scan(show.door, show.event, code)["outcome"] == "already_in"


def test_a_clock_in_the_future_counts_as_now(show):
    code = show.tickets[0]["code"]
    [merged] = merge(show.door, show.event, [(scan_id(), code, NOW + timedelta(days=400))])
    assert datetime.fromisoformat(merged["scanned_at"]) <= datetime.now(UTC) + timedelta(minutes=1)
    again = scan(show.door, show.event, code)
    assert (again["outcome"], again["first_entry"]["gate"]) == ("already_in", "south")


def test_two_offline_devices_leave_the_same_log_in_whatever_order_they_hand_in(stage, seller, buyer):
    reports = []
    for seed in range(3):
        show = a_sold_show(stage, seller, buyer, seats=20)
        chance = random.Random(7)  # the same evening each time
        scans = []
        for n in range(300):
            ticket = chance.choice(show.tickets)
            at = NOW - timedelta(hours=3) + timedelta(seconds=chance.randrange(600))
            scans.append((f"device-{n % 2}-{n:05}", ticket["code"], at))
        order = random.Random(seed)
        sent = [*scans, *scans[:50]]
        order.shuffle(sent)
        while sent:
            size = order.randint(1, 60)
            merge(show.door, show.event, list(dict.fromkeys(sent[:size])))
            sent = sent[size:]
        rows = stage.fetch("select id, outcome, scanned_at from door.scans where event_id = $1 order by id", show.event)
        reports.append([tuple(row) for row in rows])
        admitted = stage.fetch(
            "select place, seat, admitted_at from ticketing.tickets where event_id = $1 and state = 2", show.event
        )
        firsts = stage.fetch(
            "select place, seat, scanned_at from door.scans where event_id = $1 and outcome = 'accepted'", show.event
        )
        assert sorted(map(tuple, admitted)) == sorted(map(tuple, firsts))
        assert len(rows) == 300
        assert len(firsts) == 20
    assert reports[0] == reports[1] == reports[2]
