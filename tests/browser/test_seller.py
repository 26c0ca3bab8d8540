"""A seller with a browser: describes a hall, opens its sale, sees what is sold; the forms keep what was typed."""

import json
import re
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import serious_violations
from tests.browser.visitor import Visitor, aside
from tests.people import a_hall
from tests.people import expect as answered

PLANNED = """
    select section, subsection, rows, seats_per_row, blocked, accessible
    from ticketing.subsections where event_id = $1 order by place
"""


def fields(page: Page, part: str, name: str):
    return page.locator(f"{part} [data-name={name}]")


def describes(page: Page, name: str) -> None:
    fields(page, "#basics", "name").fill(name)
    fields(page, "#basics", "starts_at").fill("2027-12-31T20:00")
    fields(page, "#basics", "time_zone").fill("Asia/Taipei")
    first = page.locator("[data-part=section]").first
    for field, value in (("name", "Front"), ("price", "45.50"), ("count", "2"), ("rows", "4"), ("seats_per_row", "6")):
        first.locator(f"[data-name={field}]").fill(value)
    expect(page.locator("#size")).to_have_text("300 seats")


@pytest.fixture
def sam(visitor):
    sam: Visitor = visitor()
    sam.registers("/seller", role="seller")
    return sam


def creates(page: Page) -> int:
    page.click("#create")
    page.wait_for_url(re.compile(r"/seller/events/\d+$"))
    return int(page.url.rpartition("/")[2])


def test_a_hall_is_described_and_its_sales_move(stage, sam, visitor):
    page = sam.page
    expect(page.locator(".empty")).to_contain_text("No events yet")
    page.click("a[href='/seller/new'].primary")
    describes(page, "Night Train")
    page.click("#show-list")
    page.locator('#grid [data-seat="0"]').click()
    page.check("input[value=accessible]")
    page.locator('#grid [data-seat="7"]').focus()
    page.keyboard.press("Enter")
    expect(page.locator(":focus")).to_have_attribute("aria-label", re.compile("Row 2, seat 2, wheelchair place"))
    assert serious_violations(page) == []
    event = creates(page)
    rows = [tuple(row) for row in aside(lambda: stage.fetch(PLANNED, event))][:2]
    assert rows == [("Front", 1, 4, 6, [0], [7]), ("Front", 2, 4, 6, [], [])]
    [starts_at] = aside(lambda: stage.fetch("select starts_at from ticketing.events where id = $1", event))[0]
    assert starts_at.isoformat() == "2027-12-31T12:00:00+00:00"
    page.click("#open")
    expect(page.locator("#state")).to_have_text("on sale")
    sells_two(visitor(), event)
    expect(page.locator("[data-number=revenue]")).to_have_text("€91")
    expect(page.locator("[data-number=sold]")).to_have_text("2")
    shows_in_the_chart(page, tickets=2, revenue="€91")
    expect(page.locator("#by-section tr").first).to_contain_text("2 / 47")
    expect(page.locator("#recent tr")).to_contain_text(["Front 2: Row 2, seats 2, 3paid€91"])
    assert serious_violations(page) == []
    page.fill("#prices input[name=Front]", "50")
    page.click("#prices button")
    expect(page.locator("#says")).to_contain_text("New prices")
    page.click("#close")
    expect(page.locator("#state")).to_have_text("closed")
    assert dict(aside(lambda: stage.fetch("select state from ticketing.events where id = $1", event))[0]) == {
        "state": "closed"
    }
    sam.goes_to("/seller")
    expect(page.locator(".events")).to_contain_text("Night Train")
    aside(lambda: stage.settle(event))


def shows_in_the_chart(page: Page, tickets: int, revenue: str) -> None:
    """One bar as high as half of the scale of four, and the same numbers for whoever hears the page."""
    expect(page.locator("#chart rect title")).to_have_text(re.compile(rf"^\d\d:\d\d: {tickets} tickets, {revenue}$"))
    expect(page.locator("#chart svg")).to_have_attribute("aria-label", re.compile(f"^{tickets} tickets sold"))
    expect(page.locator("#chart tbody tr")).to_contain_text([f"{tickets}{revenue}"])
    bar, lines = page.locator("#chart rect"), page.locator("#chart line")
    bottom, middle, _ = (float(line.get_attribute("y1") or "nan") for line in lines.all())
    assert float(bar.get_attribute("y") or "nan") == middle
    assert float(bar.get_attribute("height") or "nan") == bottom - middle


def test_bookings_appear_as_they_are_placed_a_page_at_a_time(stage, seller, visitor):
    """Twelve a page; an older page stays what it is while newer bookings come, and its states go on moving."""
    event = seller.opens(a_hall(("A", 3000, 5, 8), seats_per_buyer=40))
    desk = visitor(extra_http_headers={"authorization": f"Bearer {seller.token}"})
    desk.goes_to(f"/seller/events/{event}")
    expect(desk.page.locator("#no-bookings")).to_contain_text("Nobody has booked yet")
    rows = desk.page.locator("#recent tr")
    with stage.person("buyer") as ana:
        booked = [ana.books(event, 1) for _ in range(14)]
        for booking in booked:
            ana.waits_for(booking, "PENDING_PAYMENT")
        expect(rows).to_have_count(12)
        expect(rows.first).to_have_attribute("data-booking", booked[-1])
        expect(rows.first).to_contain_text("to be paid")
        desk.page.click("#older")
        expect(rows).to_have_count(2)
        expect(rows.last).to_have_attribute("data-booking", booked[0])
        answered(200, ana.post(f"/bookings/{booked[0]}/cancel"))
        ana.waits_for(ana.books(event, 1), "PENDING_PAYMENT")
        expect(rows.last).to_contain_text("ended")
        expect(rows).to_have_count(2)
        assert serious_violations(desk.page) == []
        desk.page.click("#newest")
        expect(rows).to_have_count(12)
        expect(desk.page.locator("#older")).to_be_enabled()
    aside(lambda: stage.settle(event))


def sells_two(ana: Visitor, event: int) -> None:
    ana.registers(f"/events/{event}")
    ana.sees_the_hall(event)
    ana.opens_the_list("Front", 2)
    for seat in (2, 3):
        ana.seat(2, seat, 6).click()
    ana.waits_for_cart(2)
    ana.page.click("[data-key=checkout]")
    ana.page.click("[data-key=pay]")
    expect(ana.page.get_by_role("heading", level=1)).to_have_text("Enjoy the show")


def test_what_is_refused_is_said_beside_the_field_and_stays_typed(sam):
    page = sam.page
    sam.goes_to("/seller/new")
    describes(page, "Kept")
    second = page.locator("[data-part=section]").nth(1)
    second.locator("[data-name=name]").fill("Upper circle!")
    page.click("#create")
    wrong = second.locator(".field", has=page.locator("[data-name=name]")).locator(".wrong")
    expect(wrong).to_contain_text("Letters, digits and underscores")
    expect(second.locator("[data-name=name]")).to_be_focused()
    expect(second.locator("[data-name=name]")).to_have_value("Upper circle!")
    expect(fields(page, "#basics", "name")).to_have_value("Kept")
    second.locator("[data-name=name]").fill("Front")
    page.click("#create")
    expect(wrong).to_contain_text("two sections have the same name")
    second.locator("[data-name=name]").fill("Back")
    fields(page, "#basics", "time_zone").fill("Mars/Olympus")
    page.click("#create")
    expect(page.locator("#basics")).to_contain_text("not a known time zone")
    fields(page, "#basics", "time_zone").fill("Europe/Lisbon")
    creates(page)


def a_plan() -> dict[str, Any]:
    """Two zones of a category that differ in size, one with a gap, and a category whose name cannot be a section's."""

    def seat(x: int, category: str) -> dict[str, Any]:
        return {"seat_guid": str(uuid4()), "seat_number": "1", "position": {"x": x, "y": 0}, "category": category}

    def zone(*rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "position": {"x": 0, "y": 0},
            "rows": [{"row_number": str(n), "seats": row} for n, row in enumerate(rows)],
        }

    first = zone([seat(0, "Stalls"), seat(30, "Stalls"), seat(90, "Stalls")], [seat(0, "Stalls accessible")])
    second = zone([seat(0, "Stalls"), seat(30, "Stalls")], [seat(0, "Höhe & Loge"), seat(40, "Höhe & Loge")])
    return {"name": "Hall", "zones": [first, second], "categories": [{"name": "Stalls"}, {"name": "Höhe & Loge"}]}


def test_a_plan_comes_from_pretix_and_goes_back(stage, sam):
    page = sam.page
    sam.goes_to("/seller/new")
    describes(page, "Imported")
    page.set_input_files("#plan", {"name": "x.json", "mimeType": "application/json", "buffer": b"no plan"})
    expect(page.locator("#plan-wrong")).to_contain_text("not a seating plan")
    expect(page.locator("#size")).to_have_text("300 seats")
    plan = json.dumps(a_plan()).encode()
    page.set_input_files("#plan", {"name": "x.json", "mimeType": "application/json", "buffer": plan})
    expect(page.locator("[data-part=section]")).to_have_count(2)
    with page.expect_download() as exported:
        page.click("#export")
    back = exported.value.path().read_bytes()
    for price in page.locator("[data-part=section] [data-name=price]").all():
        price.fill("20")
    event = creates(page)
    assert [tuple(row) for row in aside(lambda: stage.fetch(PLANNED, event))] == [
        ("Stalls", 1, 2, 4, [2, 5, 6, 7], [4]),
        ("Stalls", 2, 2, 4, [2, 3, 4, 5, 6, 7], []),
        ("Hohe_Loge", 1, 1, 2, [], []),
    ]
    sam.goes_to("/seller/new")
    page.set_input_files("#plan", {"name": "x.json", "mimeType": "application/json", "buffer": back})
    expect(page.locator("[data-part=section]").nth(1).locator("[data-name=name]")).to_have_value("Hohe_Loge")
    with page.expect_download() as again:
        page.click("#export")
    assert json.loads(again.value.path().read_bytes())["zones"] == json.loads(back)["zones"]


def test_somebody_elses_desk_is_not_found(sam, seller, visitor):
    event = seller.creates(a_hall(("A", 3000, 2, 2)))
    answer = sam.page.goto(f"{sam.address}/seller/events/{event}")
    assert answer is not None
    assert answer.status == 404
    stranger = visitor()
    stranger.goes_to(f"/seller/events/{event}")
    assert stranger.page.url.endswith(f"/login?next=/seller/events/{event}")


def test_what_was_typed_is_shown_and_never_run(sam):
    hostile = "<img src=x onerror=alert(1)>\"'> tonight"
    page = sam.page
    sam.goes_to("/seller/new")
    describes(page, hostile)
    fields(page, "#basics", "venue").fill(hostile)
    creates(page)
    expect(page.locator("h1")).to_have_text(hostile)
    sam.goes_to("/seller")
    expect(page.locator(".events strong")).to_have_text(hostile)
    assert page.locator("main img, main script").count() == 0
