"""The operator's page shows the installation as it is, and only to operators."""

from playwright.sync_api import expect

from aisle.accounts.account import Role
from tests.browser.axe import serious_violations
from tests.browser.visitor import aside
from tests.people import a_hall, refused
from tests.people import expect as answered


def test_an_operator_sees_every_part_and_what_waits(stage, seller, visitor):
    event = seller.opens(a_hall(("A", 3000, 4, 8)))
    with stage.person("buyer") as ana:
        booking = ana.books(event, 2)
        ana.waits_for(booking, "PENDING_PAYMENT")
        refused(403, "forbidden", ana.get("/ops"))
    operator = aside(lambda: stage.staff(Role.OPERATOR))
    report = answered(200, operator.get("/ops"))
    assert [(part["name"], part["fine"]) for part in report["parts"]] == [
        ("database", True),
        ("store", True),
        ("log", True),
    ]
    assert report["database"]["bookings"]["waiting_for_payment"] == 1
    assert (report["alarms"], report["dead_letters"], report["store"]["overdue_holds"]) == ([], [], 0)
    assert report["store"]["memory_bytes"] > 0
    ops = visitor(extra_http_headers={"authorization": f"Bearer {operator.token}"})
    ops.goes_to("/ops")
    expect(ops.page.locator("#alarms")).to_have_text("Nothing needs you.")
    expect(ops.page.locator("#parts")).to_contain_text("Circuit breaker")
    expect(ops.page.locator("#bookings tr", has_text="Waiting for payment")).to_contain_text("1")
    assert serious_violations(ops.page) == []


def test_nobody_else_sees_the_page(visitor):
    ana = visitor()
    ana.registers("/")
    ana.goes_to("/ops")
    assert ana.page.url.endswith("/login?next=/ops")
