"""A tab that has not heard what happened since cannot buy: the server decides, and the tab is told."""

from playwright.sync_api import expect

from tests.browser.visitor import aside
from tests.people import a_hall

PAYMENTS = """
    select b.state, count(p.id) as payments
    from booking.bookings b left join payment.payments p on p.booking = b.id where b.event_id = $1 group by b.id
"""


def deaf_tab(ana):
    """Another tab of the same buyer, which hears of nothing by itself."""
    tab = ana.context.new_page()
    tab.route("**/updates*", lambda route: route.abort())
    return tab


def holds_a_seat(ana, event):
    ana.registers(f"/events/{event}")
    ana.sees_the_hall(event)
    ana.clicks_seat("A-1", "1-2")
    ana.waits_for_cart(1)


def test_a_cart_that_was_given_back_elsewhere_is_not_paid_for(stage, seller, visitor):
    event = seller.opens(a_hall(("A", 3000, 2, 4)))
    ana = visitor()
    holds_a_seat(ana, event)
    stale = deaf_tab(ana)
    stale.goto(f"{ana.address}/cart")
    stale.wait_for_selector("[data-key=checkout]")
    ana.page.click("[data-key=empty]")
    ana.waits_for_cart(0)
    stale.click("[data-key=checkout]")
    expect(stale.locator("#says")).to_contain_text("nothing in your cart")
    assert aside(lambda: stage.fetch(PAYMENTS, event)) == []
    aside(lambda: stage.settle(event))


def test_a_booking_that_was_cancelled_elsewhere_is_not_paid_for(stage, seller, visitor):
    event = seller.opens(a_hall(("A", 3000, 2, 4)))
    ana = visitor()
    holds_a_seat(ana, event)
    ana.page.click("[data-key=checkout]")
    ana.page.wait_for_selector("#pay")
    stale = deaf_tab(ana)
    stale.goto(ana.page.url)
    stale.wait_for_selector("#pay")
    ana.page.click("[data-key=cancel]")
    ana.page.click("[data-key=cancel-yes]")
    expect(ana.page.get_by_role("heading", level=1)).to_have_text("This booking has ended")
    stale.click("[data-key=pay]")
    expect(stale.get_by_role("heading", level=1)).to_have_text("This booking has ended")
    assert [tuple(row) for row in aside(lambda: stage.fetch(PAYMENTS, event))] == [("CANCELLED", 0)]
    aside(lambda: stage.settle(event))
