"""Somebody who has read nothing has an account, two seats side by side and a PDF within ten acts and two minutes."""

import time

from playwright.sync_api import expect

from tests.browser.visitor import Visitor, aside
from tests.people import GOOD_PASSWORD, a_hall

SEATS = """
    select t.seat from booking.bookings b join accounts.accounts a on a.id = b.buyer
    join ticketing.tickets t on t.booking = b.id where a.email = $1 and b.state = 'PAID' order by t.seat
"""
ACTS_MAX, SECONDS_MAX = 10, 120
EMAIL = "new.to.all.this@example.com"


class Hands:
    """Each click and each field typed is one act; nothing is known but the words on the page."""

    def __init__(self, visitor: Visitor) -> None:
        self.page = visitor.page
        self.acts = 0

    def click(self, role: str, name: str) -> None:
        self.acts += 1
        self.page.get_by_role(role, name=name).first.click()

    def type(self, label: str, words: str) -> None:
        self.acts += 1
        self.page.get_by_label(label).fill(words)


def test_from_the_first_page_to_a_pdf(stage, seller, visitor):
    seller.opens(a_hall(("Stalls", 6800, 8, 12), ("Circle", 4900, 6, 12), name="A first evening", currency="EUR"))
    ana: Visitor = visitor()
    hands = Hands(ana)
    started = time.monotonic()
    ana.goes_to("/")
    hands.click("link", "A first evening")
    hands.click("link", "Create account")
    hands.type("E-mail", EMAIL)
    hands.type("Password", GOOD_PASSWORD)
    hands.click("button", "Create account")
    hands.click("button", "Find seats")
    hands.click("button", "Go to payment")
    hands.click("button", "Pay")
    expect(ana.page.get_by_role("heading", level=1)).to_have_text("Enjoy the show")
    with ana.page.expect_download() as downloaded:
        hands.click("link", "Download tickets")
    seconds = time.monotonic() - started
    assert downloaded.value.path().read_bytes().startswith(b"%PDF-")
    first, second = (row["seat"] for row in aside(lambda: stage.fetch(SEATS, EMAIL)))
    assert second == first + 1
    assert first // 12 == second // 12, "side by side in one row"
    assert hands.acts <= ACTS_MAX
    assert seconds < SECONDS_MAX
