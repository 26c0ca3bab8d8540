"""A purchase from the first page to the paid booking: by mouse, by touch on a phone, and with keys only."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.visitor import Visitor, aside
from tests.people import a_hall

PER_ROW = 10
SOLD = """
    select b.state, t.seat, t.state as ticket
    from booking.bookings b join accounts.accounts a on a.id = b.buyer join ticketing.tickets t on t.booking = b.id
    where a.email = $1 and b.event_id = $2
"""


@pytest.fixture
def event(seller):
    sections = (("Stalls", 6800, 6, PER_ROW), ("Circle", 4900, 5, PER_ROW))
    return seller.opens(a_hall(*sections, name="The Tempest", currency="EUR", time_zone="Europe/Lisbon"))


def assert_sold(stage, event: int, visitor: Visitor, seats: set[int]) -> None:
    """What the page says is what the database says: one paid booking of this buyer with exactly these seats."""
    rows = aside(lambda: stage.fetch(SOLD, visitor.email, event))
    assert {(row["state"], row["seat"], row["ticket"]) for row in rows} == {("PAID", seat, 2) for seat in seats}
    aside(lambda: stage.settle(event))


def pays(visitor: Visitor) -> None:
    page = visitor.page
    page.click("[data-key=checkout]")
    page.wait_for_selector("#pay")
    expect(page.get_by_role("heading", level=1)).to_have_text("Almost yours")
    page.click("[data-key=pay]")
    expect(page.get_by_role("heading", level=1)).to_have_text("Enjoy the show")


def test_by_mouse(stage, event, visitor):
    ana = visitor()
    ana.goes_to("/")
    ana.page.fill("#search", "tempest")
    ana.page.press("#search", "Enter")
    ana.page.click(f"a[href='/events/{event}']")
    ana.sees_the_hall(event)
    ana.registers(f"/events/{event}")
    ana.sees_the_hall(event)
    for seat in ("3-4", "3-5"):
        ana.clicks_seat("Stalls-1", seat)
    ana.waits_for_cart(2)
    expect(ana.page.locator("#cart .total")).to_contain_text("€136")
    pays(ana)
    assert_sold(stage, event, ana, {23, 24})
    ticket = ana.context.request.get(ana.address + ana.page.locator("a[download]").get_attribute("href"))
    assert (ticket.status, ticket.headers["content-type"], ticket.body()[:5]) == (200, "application/pdf", b"%PDF-")
    ana.goes_to("/bookings")
    expect(ana.page.locator("#bookings li")).to_contain_text("paid")
    expect(ana.page.locator("#bookings li")).to_contain_text("Stalls 1: Row 3, seats 4, 5")


def test_by_touch_on_a_phone(stage, seller, visitor):
    event = seller.opens(a_hall(("Stalls", 6800, 20, 30), ("Circle", 4900, 10, 30), name="Seats smaller than a finger"))
    ben = visitor(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, device_scale_factor=2)
    ben.registers(f"/events/{event}")
    ben.sees_the_hall(event)
    afar = ben.point_at("Circle-1", "2-5")
    ben.taps_seat("Circle-1", "2-5")  # from afar a tap comes closer
    assert ben.point_at("Circle-1", "2-5") != afar
    ben.taps_seat("Circle-1", "2-5")
    ben.waits_for_cart(1)
    width = ben.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390, "the page is wider than the phone"
    pays(ben)
    assert_sold(stage, event, ben, {34})


def test_best_seats_together(stage, event, visitor):
    cleo = visitor()
    cleo.registers(f"/events/{event}")
    cleo.sees_the_hall(event)
    cleo.page.select_option("select[name=quantity]", "3")
    cleo.page.select_option("#best-section", "Circle")
    cleo.page.click("#best button")
    cleo.waits_for_cart(1)
    names = cleo.page.locator("#cart .held .seat").inner_text()
    seats = [int(seat) for seat in names.splitlines()[0].partition("seats ")[2].split(", ")]
    assert seats == list(range(seats[0], seats[0] + 3)), "three side by side"
    cleo.page.click("[data-key=empty]")
    cleo.waits_for_cart(0)
    aside(lambda: stage.settle(event))


def test_places_without_a_number(stage, seller, visitor):
    """Beside seats, and in an event that has nothing else."""
    standing = {"name": "Standing", "price": 1400, "capacity": 30, "places_per_buyer": 4}
    both = seller.opens(a_hall(("Front", 3200, 2, 4), currency="EUR", pools=[standing]))
    alone = seller.opens(a_hall(currency="EUR", pools=[standing]))
    for event in (both, alone):
        hana = visitor()
        hana.registers(f"/events/{event}")
        if event == both:
            hana.sees_the_hall(event)
        else:
            expect(hana.page.locator("#hall")).to_be_hidden()
        expect(hana.page.locator("#pools")).to_contain_text("€14 · 30 left")
        hana.page.fill("#pools input", "3")
        hana.page.click("#pools button")
        hana.waits_for_cart(1)
        expect(hana.page.locator("#cart .held")).to_contain_text(re.compile("3 . Standing"))
        expect(hana.page.locator("#cart .total")).to_contain_text("€42")
        expect(hana.page.locator("#pools")).to_contain_text("27 left")
        pays(hana)
        expect(hana.page.locator("#booking .facts")).to_contain_text(re.compile("3 . Standing"))
        aside(lambda event=event: stage.settle(event))


def test_with_keys_only(stage, event, visitor):
    """Not one click: Tab, arrows, Enter and typing, from the first page to the ticket."""
    dora = visitor()
    page = dora.page
    dora.registers("/")  # the form's keys are tried below, in the log-in
    dora.goes_to("/")
    tab_to(page, f"a[href='/events/{event}']")
    page.keyboard.press("Enter")
    page.wait_for_selector("canvas[data-drawn=true]")
    tab_to(page, "#show-list")
    page.keyboard.press("Enter")
    tab_to(page, "#list-section")
    page.keyboard.type("Circle")
    tab_to(page, '[role=gridcell][tabindex="0"]')
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.locator(":focus")).to_have_attribute("aria-label", "Row 2, seat 3, €49, free")
    page.keyboard.press("Enter")
    dora.waits_for_cart(1)
    page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    dora.waits_for_cart(2)
    expect(page.locator(":focus")).to_have_attribute("aria-label", "Row 2, seat 4, €49, yours")
    tab_to(page, "[data-key=checkout]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#pay")
    tab_to(page, "[data-key=pay]")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Enjoy the show")
    assert_sold(stage, event, dora, {12, 13})


def tab_to(page, selector: str) -> None:
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"{selector} cannot be reached with the Tab key")


def test_a_declined_card_keeps_the_seats_and_the_next_card_pays(stage, event, visitor):
    emil = visitor()
    emil.registers(f"/events/{event}")
    emil.sees_the_hall(event)
    emil.clicks_seat("Stalls-1", "5-1")
    emil.waits_for_cart(1)
    emil.page.click("[data-key=checkout]")
    emil.page.select_option("#pay select", "card_declined")
    emil.page.click("[data-key=pay]")
    expect(emil.page.get_by_role("alert")).to_contain_text("declined")
    emil.page.select_option("#pay select", "card_ok")
    emil.page.click("[data-key=pay]")
    expect(emil.page.get_by_role("heading", level=1)).to_have_text("Enjoy the show")
    assert_sold(stage, event, emil, {40})


def test_a_bank_that_wants_a_confirmation(stage, event, visitor):
    fay = visitor()
    fay.registers(f"/events/{event}")
    fay.sees_the_hall(event)
    fay.clicks_seat("Stalls-1", "5-2")
    fay.waits_for_cart(1)
    fay.page.click("[data-key=checkout]")
    fay.page.select_option("#pay select", "card_3ds")
    fay.page.click("[data-key=pay]")
    fay.page.click("[data-key=confirm]")
    expect(fay.page.get_by_role("heading", level=1)).to_have_text("Enjoy the show")
    assert_sold(stage, event, fay, {41})


def test_a_booking_that_is_cancelled_gives_its_seats_back(stage, event, visitor):
    gus = visitor()
    gus.registers(f"/events/{event}")
    gus.sees_the_hall(event)
    gus.clicks_seat("Stalls-1", "6-6")
    gus.waits_for_cart(1)
    gus.page.click("[data-key=checkout]")
    gus.page.click("[data-key=cancel]")
    gus.page.click("[data-key=cancel-yes]")
    expect(gus.page.get_by_role("heading", level=1)).to_have_text("This booking has ended")
    aside(lambda: stage.settle(event))
    free = aside(lambda: stage.fetch("select 1 from ticketing.tickets where event_id = $1 and state <> 0", event))
    assert free == []
