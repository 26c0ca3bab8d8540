"""axe-core finds no serious barrier on any page, in light and in dark, by each of those who see it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from aisle.accounts.access import ACCESS
from aisle.accounts.account import Role
from tests.browser.axe import serious_violations
from tests.browser.visitor import Visitor, aside
from tests.door import a_sold_show
from tests.people import a_hall

pytestmark = pytest.mark.parametrize("scheme", ["light", "dark"])
Look = Callable[[str], None]


@pytest.fixture
def event(seller):
    hall = a_hall(("A", 3000, 3, 6), ("B", 2000, 3, 6), name="Quiet night")
    hall["sections"][0]["subsections"][0] |= {"accessible": ["1-1"], "blocked": ["3-6"]}
    return seller.opens(hall)


@contextmanager
def looking(page: Page) -> Iterator[Look]:
    """All barriers of all looks together, so that one run shows them all."""
    found = {}

    def look(name: str) -> None:
        if barriers := serious_violations(page):
            found[name] = barriers

    yield look
    assert not found, json.dumps(found, indent=1)


def test_for_buyers(event, visitor, scheme):
    ana: Visitor = visitor(color_scheme=scheme)
    with looking(ana.page) as look:
        for path in ("/", "/?search=nothing+like+it", "/login", "/register", "/nowhere", f"/events/{event}"):
            ana.goes_to(path)
            look(path)
        ana.registers("/bookings")
        expect(ana.page.locator("#none")).to_be_visible()
        look("no bookings")
        ana.goes_to("/cart")
        expect(ana.page.locator("#cart a")).to_be_visible()
        look("an empty cart")
        ana.sees_the_hall(event)
        look("the map")
        ana.opens_the_list("A")
        ana.seat(2, 2, 6).click()
        ana.waits_for_cart(1)
        look("the list, with a seat held")
        ana.goes_to("/cart")
        ana.waits_for_cart(1)
        look("the cart")
        ana.page.click("[data-key=checkout]")
        ana.page.wait_for_selector("#pay")
        look("paying")
        ana.page.click("[data-key=pay]")
        ana.page.wait_for_selector("a[download]")
        look("paid")
        ana.goes_to("/bookings")
        ana.page.wait_for_selector("#bookings li")
        look("the bookings")
        ana.goes_to("/account")
        expect(ana.page.locator("#email")).to_have_text(ana.email)
        look("the account")
        ana.page.click("[data-key=erase]")
        ana.page.click("[data-key=erase-yes]")
        expect(ana.page.locator("#password-wrong")).not_to_be_empty()
        look("the account, with something wrong")


def test_for_sellers(event, seller, visitor, scheme):
    sam: Visitor = visitor(color_scheme=scheme, extra_http_headers={"authorization": f"Bearer {seller.token}"})
    with looking(sam.page) as look:
        sam.goes_to("/seller")
        look("the events")
        sam.goes_to("/seller/new")
        sam.page.wait_for_selector("canvas[data-drawn=true]")
        look("the editor")
        sam.page.click("#add-pool")
        sam.page.click("#create")
        expect(sam.page.locator("[aria-invalid=true]").first).to_be_visible()
        look("the editor, with something wrong")
        sam.goes_to(f"/seller/events/{event}")
        sam.page.wait_for_selector("#by-section tr")
        look("the desk before a sale")


def test_for_doors_and_operators(stage, seller, visitor, scheme):
    with stage.person("buyer") as ana:
        show = aside(lambda: a_sold_show(stage, seller, ana))
    operator = aside(lambda: stage.staff(Role.OPERATOR))
    dan: Visitor = visitor(color_scheme=scheme, extra_http_headers={"authorization": f"Bearer {show.door.token}"})
    with looking(dan.page) as look:
        dan.goes_to("/door")
        look("the door, waiting")
        code = show.tickets[0]["code"]
        for outcome in ("accepted", "refused"):
            dan.page.fill("#code", code)
            dan.page.press("#code", "Enter")
            dan.page.wait_for_selector(f"[data-outcome={outcome}]")
            look(f"the door, {outcome}")
    sam: Visitor = visitor(color_scheme=scheme, extra_http_headers={"authorization": f"Bearer {seller.token}"})
    with looking(sam.page) as look:
        sam.goes_to(f"/seller/events/{show.event}")
        sam.page.wait_for_selector("#recent tr")
        look("the desk of a sale")
    ops: Visitor = visitor(color_scheme=scheme, extra_http_headers={"authorization": f"Bearer {operator.token}"})
    with looking(ops.page) as look:
        ops.goes_to("/ops")
        ops.page.wait_for_selector("#parts div")
        look("how it runs")
        ops.goes_to("/ops/store")
        ops.page.fill("#event input", str(show.event))
        ops.page.press("#event input", "Enter")
        ops.page.wait_for_selector("#sections tr")
        ops.page.click("#keys button:not([type])")
        ops.page.wait_for_selector("#found tr")
        look("the store")
        ops.goes_to("/docs/api")
        ops.page.locator("details").first.locator("summary").click()
        look("the API")


def test_no_page_is_forgotten(scheme):
    """A page that is added to the table of routes is added to this list, and to a test above."""
    pages = {path for method, path in ACCESS if method == "GET" and not path.startswith(("/api/", "/static/"))}
    pages -= {"/livez", "/readyz", "/version", "/metrics", "/door-worker.js"}
    assert {path for path in pages if not path.startswith("/docs/litestar")} == {
        *("/", "/events/{event_id}", "/login", "/register", "/cart", "/bookings", "/bookings/{booking_id}"),
        "/account",
        *("/seller", "/seller/new", "/seller/events/{event_id}", "/door", "/ops", "/ops/store", "/docs/api"),
    }
