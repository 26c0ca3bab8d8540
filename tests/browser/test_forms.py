"""What a form gets wrong is said beside it, and what was typed stays: the forms of the event and of the desk."""

from playwright.sync_api import expect

from tests.browser.visitor import aside
from tests.people import a_hall

PRICES = "select section, price from ticketing.sections where event_id = $1 order by section"


def test_asking_for_more_than_there_is(stage, seller, visitor):
    pool = {"name": "GA", "price": 500, "capacity": 3, "places_per_buyer": 8}
    event = seller.opens(a_hall(("A", 3000, 1, 3), ("B", 2000, 1, 2), pools=[pool]))
    ana = visitor()
    ana.registers(f"/events/{event}")
    ana.sees_the_hall(event)
    page = ana.page
    page.select_option("select[name=quantity]", "3")
    page.select_option("#best-section", "B")
    page.click("#best button")
    expect(page.locator("#best-wrong")).to_contain_text("not so many seats side by side")
    expect(page.locator("select[name=quantity]")).to_have_value("3")
    expect(page.locator("#best-section")).to_have_value("B")
    page.select_option("#best-section", "A")
    page.click("#best button")
    ana.waits_for_cart(1)
    expect(page.locator("#best-wrong")).to_be_empty()
    wrong = page.locator("#pools .wrong")
    for typed in ("", "0", "9", "2.5"):
        page.fill("#pools input", typed)
        page.click("#pools button")
        expect(wrong).to_have_text("Choose a number from 1 to 8.")
        expect(page.locator("#pools input")).to_have_value(typed)
        expect(page.locator("#pools input")).to_be_focused()
    page.fill("#pools input", "4")
    page.click("#pools button")
    expect(wrong).to_contain_text("Pay for what you hold or give it back first")
    page.click("[data-key=empty]")
    ana.waits_for_cart(0)
    page.click("#pools button")
    expect(wrong).to_contain_text("not so many places left")
    expect(page.locator("#pools input")).to_have_value("4")
    ana.waits_for_cart(0)
    aside(lambda: stage.settle(event))


def test_the_forms_of_the_desk(stage, seller, visitor):
    event = seller.opens(a_hall(("A", 3000, 2, 3), ("B", 2000, 2, 3)))
    sam = visitor(extra_http_headers={"authorization": f"Bearer {seller.token}"})
    sam.goes_to(f"/seller/events/{event}")
    page = sam.page
    page.fill("#prices input[name=A]", "31")
    page.fill("#prices input[name=B]", "twenty")
    page.click("#prices button")
    wrong = page.locator("#prices .field", has=page.locator("input[name=B]")).locator(".wrong")
    expect(wrong).not_to_be_empty()
    expect(page.locator("#prices input[name=B]")).to_be_focused()
    expect(page.locator("#prices input[name=A]")).to_have_value("31")
    assert [row["price"] for row in aside(lambda: stage.fetch(PRICES, event))] == [3000, 2000], "all or none"
    page.fill("#prices input[name=B]", "99999999999999999")
    page.click("#prices button")
    expect(page.locator("#prices .wrong:not(:empty)")).to_have_count(1)
    expect(page.locator("#prices input[name=B]")).to_have_value("99999999999999999")
    for typed, words in (("nobody@example.com", "no door account"), ("not an address", "")):
        page.fill("#staff input", typed)
        page.click("#staff button")
        expect(page.locator("#staff-wrong")).to_contain_text(words)
        expect(page.locator("#staff-wrong")).not_to_be_empty()
        expect(page.locator("#staff input")).to_have_value(typed)
        expect(page.locator("#staff input")).to_be_focused()
