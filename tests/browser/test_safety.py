"""Pages under strain: text that wants to be markup, a strict policy, wrong input, missing pages, no barriers."""

import re

import httpx
import pytest
from playwright.sync_api import expect

from aisle.ui.pages import PAGE_POLICY
from tests.people import a_hall

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "</title><script>alert(1)</script>",
    "{{ 7 * 7 }} ${7*7} {% raw %}",
    "javascript:alert(1)",
    "&lt;b&gt;bold&lt;/b&gt;",
    "\u202eevil\u202c \u0000zero".replace("\u0000", ""),
    "<!--", "]]>", "`${alert(1)}`", "<a href=//evil.example>x</a>",
]  # fmt: skip


@pytest.fixture
def event(seller):
    hall = a_hall(("A", 3000, 3, 6), ("B", 2000, 3, 6), name="Quiet night")
    hall["sections"][0]["subsections"][0] |= {"accessible": ["1-1"], "blocked": ["3-6"]}
    return seller.opens(hall)


@pytest.mark.parametrize("words", HOSTILE[:4])
def test_what_a_seller_typed_is_shown_and_never_run(seller, visitor, words):
    opened = seller.opens(a_hall(("A", 3000, 2, 2), name=f"{words} tonight", venue=words, description=words))
    mallory = visitor()
    mallory.registers(f"/events/{opened}")
    mallory.sees_the_hall(opened)
    assert mallory.page.locator("h1").inner_text() == f"{words} tonight"
    mallory.clicks_seat("A-1", "1-1")
    mallory.waits_for_cart(1)
    mallory.page.click("[data-key=checkout]")
    expect(mallory.page.locator("#booking h2").last).to_have_text(f"{words} tonight")
    mallory.goes_to("/bookings")
    expect(mallory.page.locator("#bookings strong")).to_have_text(f"{words} tonight")
    assert mallory.page.locator("main script, main img, main svg, main iframe").count() == 0


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_text_in_the_list_of_events(seller, visitor, words):
    seller.opens(a_hall(("A", 3000, 1, 1), name=f"{words} in a list", venue=words[:200], description=words))
    mallory = visitor()
    mallory.goes_to("/")
    expect(mallory.page.locator(".events")).to_contain_text(" ".join(f"{words} in a list".split()))
    assert mallory.page.locator("main script, main img, main iframe, a[href*=evil], main b.bold").count() == 0


def test_every_page_has_the_strict_policy_and_breaks_it_nowhere(event, visitor):
    ana = visitor()
    ana.page.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => console.error('policy', e.violatedDirective, e.blockedURI))"
    )
    assert "unsafe" not in PAGE_POLICY
    assert "*" not in PAGE_POLICY
    ana.registers("/")
    for path in ("/", "/?search=x", f"/events/{event}", "/cart", "/bookings", "/login", "/register", "/nowhere"):
        answer = ana.page.goto(f"{ana.address}{path}")
        assert answer.headers["content-security-policy"] == PAGE_POLICY, path
        ana.page.wait_for_timeout(300)
    assert ana.complaints == []


def test_a_form_says_what_is_wrong_beside_the_field_and_keeps_what_was_typed(visitor):
    ana = visitor()
    page = ana.page
    ana.goes_to("/register")
    page.fill("#email", "not an address")
    page.fill("#password", "12345678")
    page.click("#register button")
    expect(page.locator("#email-wrong")).to_contain_text("does not look like an e-mail address")
    expect(page.locator("#email")).to_be_focused()
    expect(page.locator("#email")).to_have_value("not an address")
    page.fill("#email", "x")
    page.click("#register button")
    expect(page.locator("#email-wrong")).to_contain_text("does not look like an e-mail address")
    page.fill("#email", "somebody@example.com")
    page.click("#register button")
    expect(page.locator("#password-wrong")).to_contain_text("longer or less common")
    expect(page.locator("#email-wrong")).to_be_empty()
    ana.goes_to("/login")
    page.click("#login button")
    expect(page.locator("#email-wrong")).to_have_text("Please fill this in.")
    page.fill("#email", "nobody@example.com")
    page.fill("#password", "not my password")
    page.click("#login button")
    expect(page.locator("#form-wrong")).to_contain_text("wrong")
    expect(page.locator("#email")).to_have_value("nobody@example.com")


@pytest.mark.parametrize(
    "where", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", ""]
)
def test_logging_in_never_leads_to_another_site(stage, where):
    page = httpx.get(f"{stage.address}/login", params={"next": where}).text
    assert 'data-next="/"' in page


def test_what_is_private_asks_to_log_in_and_comes_back(event, visitor):
    ana = visitor()
    ana.goes_to("/bookings")
    ana.page.wait_for_url("**/login?next=/bookings")
    ana.registers("/bookings")
    expect(ana.page.get_by_role("heading", name="No bookings yet")).to_be_visible()
    ana.page.click("#log-out")
    ana.page.wait_for_url(f"{ana.address}/")
    ana.goes_to("/cart")
    ana.page.wait_for_url("**/login?next=/cart")


def test_a_page_that_does_not_exist_is_a_page_for_people_and_a_problem_for_programs(stage):
    html = httpx.get(f"{stage.address}/events/999999", headers={"accept": "text/html"})
    assert (html.status_code, "This page does not exist" in html.text) == (404, True)
    program = httpx.get(f"{stage.address}/events/999999")
    assert (program.status_code, program.headers["content-type"]) == (404, "application/problem+json")
    api = httpx.get(f"{stage.address}/api/v1/events/999999", headers={"accept": "text/html"})
    assert api.headers["content-type"] == "application/problem+json"


def test_static_files_are_kept_for_ever_and_nothing_else_is_served(stage):
    home = httpx.get(f"{stage.address}/").text
    for path in re.findall(r'(?:src|href)="(/static/[^"]+)"', home):
        answer = httpx.get(f"{stage.address}{path}")
        assert (answer.status_code, "immutable" in answer.headers["cache-control"]) == (200, True), path
    for path in ("../pages.py", "..%2fpages.py", "%2e%2e/pages.py", "", "vendor", "/etc/passwd"):
        assert httpx.get(f"{stage.address}/static/{path}").status_code in (404, 400), path
