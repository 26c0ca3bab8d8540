"""The operator's page shows the installation as it is, and only to operators."""

from playwright.sync_api import expect

from aisle.accounts.account import Role
from tests.browser.axe import serious_violations
from tests.browser.visitor import aside
from tests.people import a_hall, new_key, refused
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


def test_an_operator_looks_into_the_store_and_changes_nothing(stage, seller, visitor):
    pool = {"name": "GA", "price": 500, "capacity": 20, "places_per_buyer": 8}
    event = seller.opens(a_hall(("A", 3000, 4, 8), pools=[pool]))
    operator = aside(lambda: stage.staff(Role.OPERATOR))
    ops = visitor(extra_http_headers={"authorization": f"Bearer {operator.token}"})
    page = ops.page
    asked = []
    page.on("request", lambda request: asked.append(request.method))
    with stage.person("buyer") as ana, stage.person("buyer") as ben:
        booking = ana.books(event, 2)
        ana.waits_for(booking, "PENDING_PAYMENT")
        held = answered(201, ben.post(f"/events/{event}/holds", {"pool": "GA", "quantity": 3}, key=new_key()))
        ops.goes_to("/ops/store")
        page.fill("#event input", str(event))
        page.press("#event input", "Enter")
        expect(page.locator("#sections tr")).to_contain_text([f"{event}:A-1open3020032"])
        expect(page.locator("#pools tr")).to_contain_text([f"{event}:GAopen173020"])
        page.click("#pools button")
        expect(page.locator("#held tr")).to_have_count(1)
        expect(page.locator("#held tr")).to_contain_text("3 places")
        expect(page.locator("#held tr")).to_contain_text(held["id"])
        expect(page.locator("#held tr")).to_contain_text(ben.id)
        page.fill("#seat [name=place]", f"{event}:A-1")
        page.fill("#seat [name=seat]", taken_seat(ana, booking))
        page.click("#seat button")
        expect(page.locator("#holder")).to_contain_text(booking)
        expect(page.locator("#holder")).to_contain_text(ana.id)
        page.select_option("#keys select", "pool")
        page.fill("#keys input", str(event))
        page.click("#keys button:not([type])")
        expect(page.locator("#found tr")).to_have_count(1)
        expect(page.locator("#found tr")).to_contain_text(f"pool:{{{event}:GA}}")
    assert serious_violations(page) == []
    assert set(asked) == {"GET"}


def taken_seat(buyer, booking: str) -> str:
    return answered(200, buyer.get(f"/bookings/{booking}"))["seats"][0]["seats"][0]


def test_what_cannot_be_looked_up_is_said_beside_the_field_and_stays_typed(stage, visitor):
    operator = aside(lambda: stage.staff(Role.OPERATOR))
    ops = visitor(extra_http_headers={"authorization": f"Bearer {operator.token}"})
    ops.goes_to("/ops/store")
    for form, field, typed, words in (
        ("event", "event", "", "Please fill this in"),
        ("event", "event", "next week", "An event is a number"),
        ("event", "event", "999999", "event 999999 is not in the store"),
        ("holds", "place", "A-1", "A place is written 1:A-1"),
        ("holds", "place", "999999:A-1", "999999:A-1 is not in the store"),
        ("keys", "event", "x", "An event is a number"),
        ("seat", "place", "A", "A place is written 1:A-1"),
    ):
        ops.page.fill(f"#{form} [name={field}]", typed)
        ops.page.click(f"#{form} button:not([type])")
        expect(ops.page.locator(f"#{form} [data-wrong={field}]")).to_contain_text(words)
        expect(ops.page.locator(f"#{form} [name={field}]")).to_have_value(typed)
        expect(ops.page.locator(f"#{form} [name={field}]")).to_be_focused()


def test_nobody_else_sees_the_pages(visitor):
    ana = visitor()
    ana.registers("/")
    for path in ("/ops", "/ops/store"):
        ana.goes_to(path)
        assert ana.page.url.endswith(f"/login?next={path}")
