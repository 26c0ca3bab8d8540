"""Two browsers at one hall: each sees what the other takes, and one seat goes to one of them."""

import re

from playwright.sync_api import expect

from tests.browser.visitor import aside


def test_a_pick_shows_in_the_other_browser_and_comes_back_when_it_is_given_back(stage, pair_event, two):
    first, second = two
    first.seat(2, 3, 8).click()
    expect(first.seat(2, 3, 8)).to_have_attribute("data-state", "mine")
    expect(second.seat(2, 3, 8)).to_have_attribute("data-state", "held")
    expect(second.page.locator("#sections")).to_contain_text("31 left")
    first.seat(2, 3, 8).click()
    expect(second.seat(2, 3, 8)).to_have_attribute("data-state", "free")
    aside(lambda: stage.settle(pair_event))


def test_one_seat_and_two_clicks_at_the_same_moment(stage, pair_event, two):
    """Both pages ask before either knows of the other: their clicks wait for a moment that both agreed on."""
    when = "(cell) => setTimeout(() => cell.click(), window.agreed - Date.now())"
    for number, seat in enumerate(range(1, 6)):
        agreed = two[0].page.evaluate("Date.now() + 1500")
        for one in two:
            one.page.evaluate("(agreed) => { window.agreed = agreed }", agreed)
            one.seat(3, seat, 8).evaluate(when)
        for one in two:
            expect(one.seat(3, seat, 8)).to_have_attribute("data-state", re.compile("mine|held"))
        states = sorted(one.seat(3, seat, 8).get_attribute("data-state") for one in two)
        assert states == ["held", "mine"], f"round {number}"
        loser = next(one for one in two if one.seat(3, seat, 8).get_attribute("data-state") == "held")
        expect(loser.page.locator("#says")).to_contain_text(re.compile("Somebody was faster|held by somebody"))
        for one in two:
            if one is not loser:
                one.page.click("[data-key=empty]")
                one.waits_for_cart(0)
        for one in two:
            expect(one.seat(3, seat, 8)).to_have_attribute("data-state", "free")
    aside(lambda: stage.settle(pair_event))


def test_a_stale_page_cannot_take_a_seat_and_is_shown_the_nearest_one(stage, pair_event, visitor):
    first, stale = visitor(), visitor()
    stale.page.route("**/updates*", lambda route: route.abort())
    for one in (stale, first):
        one.registers(f"/events/{pair_event}")
        one.sees_the_hall(pair_event)
        one.opens_the_list("A")
    first.seat(2, 5, 8).click()
    first.waits_for_cart(1)
    expect(stale.seat(2, 5, 8)).to_have_attribute("data-state", "free")
    stale.seat(2, 5, 8).click()
    expect(stale.page.locator("#says")).to_contain_text("Somebody was faster")
    expect(stale.page.locator("#says")).to_contain_text("is free and close by")
    stale.waits_for_cart(0)
    aside(lambda: stage.settle(pair_event))


def test_the_focus_stays_on_a_seat_that_somebody_else_takes(pair_event, two):
    first, second = two
    second.seat(4, 4, 8).focus()
    first.seat(4, 4, 8).click()
    cell = second.seat(4, 4, 8)
    expect(cell).to_have_attribute("data-state", "held")
    expect(cell).to_be_focused()
    expect(cell).to_have_attribute("aria-label", "Row 4, seat 4, NT$30, held by somebody")


def test_a_lost_connection_says_so_and_resumes_without_a_gap(stage, pair_event, two):
    first, second = two
    second.context.set_offline(True)
    # Offline does not cut an open stream in Chromium, so the server ends it.
    aside(stage.stop)
    expect(second.page.locator("#live")).to_have_text("Reconnecting …")
    aside(stage.start)
    expect(first.page.locator("#live")).to_have_text("Live")
    first.seat(2, 2, 8).click()
    expect(first.seat(2, 2, 8)).to_have_attribute("data-state", "mine")
    second.context.set_offline(False)
    expect(second.page.locator("#live")).to_have_text("Live")
    expect(second.seat(2, 2, 8)).to_have_attribute("data-state", "held")
