"""At the door with a browser: the first scan lets in, the second does not, with a network and without one."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, expect

from tests.browser.axe import serious_violations
from tests.browser.visitor import aside
from tests.door import a_sold_show
from tests.people import Person
from tests.people import expect as answered
from tests.stage import Stage

SCANS = "select outcome, offline from door.scans where event_id = $1 order by scanned_at, id"


@pytest.fixture(scope="module")
def ana(stage: Stage) -> Iterator[Person]:
    with stage.person("buyer") as ana:
        yield ana


@pytest.fixture
def show(stage, seller, ana):
    return aside(lambda: a_sold_show(stage, seller, ana, seats=3))


@pytest.fixture
def page(visitor, show) -> Page:
    """The door's page, as the staff of the show sees it: logged in by token, since nobody can register as staff."""
    dan = visitor(extra_http_headers={"authorization": f"Bearer {show.door.token}"})
    dan.goes_to("/door")
    expect(dan.page.locator("#network")).to_have_text("Connected.")
    return dan.page


def shows(page: Page, code: str, outcome: str, words: str) -> None:
    page.fill("#code", code)
    page.press("#code", "Enter")
    expect(page.locator("#verdict")).to_have_text(words)
    expect(page.locator("#answer")).to_have_attribute("data-outcome", outcome)


def logged(stage, event: int) -> list[tuple[str, bool]]:
    return [(row["outcome"], row["offline"]) for row in aside(lambda: stage.fetch(SCANS, event))]


def test_a_ticket_opens_the_door_once(stage, show, page):
    code = show.tickets[0]["code"]
    shows(page, code, "accepted", "Welcome")
    expect(page.locator("#seat")).to_contain_text("A-1-")
    assert serious_violations(page) == []
    shows(page, code, "refused", "Already inside")
    expect(page.locator("#why")).to_contain_text("Came in")
    shows(page, code[:-4] + "AAAA", "refused", "Not a ticket of ours")
    expect(page.locator("#accepted")).to_have_text("1")
    expect(page.locator("#refused")).to_have_text("2")
    assert logged(stage, show.event) == [("accepted", False), ("already_in", False), ("tampered", False)]


def test_without_a_network_the_device_decides_and_hands_in_later(stage, show, page):
    inside, fresh, void = (ticket["code"] for ticket in show.tickets)
    shows(page, inside, "accepted", "Welcome")
    page.context.set_offline(True)
    shows(page, inside, "refused", "Already inside")
    shows(page, fresh, "accepted", "Welcome")
    expect(page.locator("#why")).to_contain_text("without a connection")
    shows(page, fresh, "refused", "Already inside")
    forged = ("A" if void[30] != "A" else "B").join((void[:30], void[31:]))
    shows(page, forged, "refused", "Not a ticket of ours")
    expect(page.locator("#queued")).to_have_text("4")
    page.context.set_offline(False)
    expect(page.locator("#queued")).to_have_text("0")
    assert logged(stage, show.event) == [
        ("accepted", False),
        ("already_in", True),
        ("accepted", True),
        ("already_in", True),
        ("tampered", True),
    ]


def test_a_replaced_code_is_refused_without_a_network(stage, show, ana, visitor):
    ticket = show.tickets[0]
    path = f"/bookings/{show.booking}/tickets/{ticket['id']}/reissue"
    newer = aside(lambda: answered(200, ana.post(path, {"version": ticket["version"]})))
    dan = visitor(extra_http_headers={"authorization": f"Bearer {show.door.token}"})
    dan.goes_to("/door")
    expect(dan.page.locator("#network")).to_have_text("Connected.")
    dan.context.set_offline(True)
    shows(dan.page, ticket["code"], "refused", "Replaced by a newer ticket")
    shows(dan.page, newer["code"], "accepted", "Welcome")


def test_the_page_opens_again_without_a_network_and_goes_on_scanning(stage, show, seller, visitor):
    """Closed and opened, or reloaded, with no server in reach; the scans are handed in when there is one again."""
    dan = visitor()
    stands_at_the_door(stage, seller, show, dan)
    dan.goes_to("/door")
    expect(dan.page.locator("#kept")).to_be_visible()
    fresh, again, _ = (ticket["code"] for ticket in show.tickets)
    dan.context.set_offline(True)
    # What a page asks while it is being loaded can slip past Chromium's emulation, so the server is away as well.
    aside(stage.stop)
    with pytest.raises(PlaywrightError):
        dan.context.new_page().goto(f"{dan.address}/")
    dan.page.reload()
    expect(dan.page.locator("#network")).to_contain_text("No connection")
    shows(dan.page, fresh, "accepted", "Welcome")
    dan.page.reload()
    expect(dan.page.locator("#queued")).to_have_text("1")
    shows(dan.page, fresh, "refused", "Already inside")
    shows(dan.page, again, "accepted", "Welcome")
    shows(dan.page, again[:-4] + "AAAA", "refused", "Not a ticket of ours")
    expect(dan.page.locator("#queued")).to_have_text("4")
    assert logged(stage, show.event) == []
    aside(stage.start)
    dan.context.set_offline(False)
    dan.page.reload()
    expect(dan.page.locator("#queued")).to_have_text("0")
    assert logged(stage, show.event) == [
        ("accepted", True),
        ("already_in", True),
        ("accepted", True),
        ("tampered", True),
    ]


def test_whoever_logs_out_leaves_no_page_behind(stage, show, seller, visitor):
    dan = visitor()
    stands_at_the_door(stage, seller, show, dan)
    dan.goes_to("/door")
    expect(dan.page.locator("#kept")).to_be_visible()
    dan.page.click("#log-out")
    dan.page.wait_for_url(f"{dan.address}/")
    dan.goes_to("/door")
    dan.page.wait_for_url("**/login?next=/door")
    dan.context.set_offline(True)
    with pytest.raises(PlaywrightError):
        dan.page.goto(f"{dan.address}/door")


def stands_at_the_door(stage, seller, show, dan) -> None:
    """Logs in with a password: a service worker takes the cookie along, and no header that a test has set."""
    dan.registers("/")
    aside(lambda: stage.fetch("update accounts.accounts set role = 'door' where email = $1", dan.email))
    aside(lambda: answered(200, seller.send("PUT", f"/events/{show.event}/door-staff", json={"email": dan.email})))
    dan.page.click("#log-out")
    dan.page.wait_for_selector("a[href^='/login']")
    dan.logs_in()
