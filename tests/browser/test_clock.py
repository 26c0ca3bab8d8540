"""A hold has an end, and both browsers see it; its owner can ask for more time."""

import pytest
from playwright.sync_api import expect

from tests.browser.visitor import aside


@pytest.fixture(scope="module")
def settings():
    return {"hold_seconds": 15, "hold_seconds_max": 60}


def test_a_hold_that_runs_out_returns_the_seat_in_both_browsers(stage, pair_event, two):
    first, second = two
    first.seat(1, 1, 8).click()
    expect(second.seat(1, 1, 8)).to_have_attribute("data-state", "held")
    expect(first.page.locator("#cart .clock strong")).to_contain_text("0:")
    expect(second.seat(1, 1, 8)).to_have_attribute("data-state", "free")
    expect(first.seat(1, 1, 8)).to_have_attribute("data-state", "free")
    expect(first.page.locator("#says")).to_contain_text("Your time ran out")
    aside(lambda: stage.settle(pair_event))


def test_more_time_is_given_once_it_is_asked_for(pair_event, two):
    first, second = two
    first.seat(1, 2, 8).click()
    first.waits_for_cart(1)
    before = deadline(first)
    first.page.wait_for_timeout(1000)
    first.page.click("[data-key=extend]")
    expect(first.page.locator("#says")).to_contain_text("more time")
    assert deadline(first) > before
    expect(second.seat(1, 2, 8)).to_have_attribute("data-state", "held")


def deadline(visitor):
    return visitor.context.request.get(f"{visitor.address}/api/v1/cart").json()["expires_at"]
