"""What the rules and the dashboard ask for is served by a running system, and tells what really is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aisle.metrics import INVARIANTS
from tests.operate.test_alerts import rules
from tests.patience import eventually
from tests.people import Person, a_hall
from tests.stage import Stage

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = re.compile(r"\b(?:aisle|http_server)_[a-z_]+\b")


def served(stage: Stage) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = httpx.get(f"{stage.address}/metrics", timeout=60).text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(stage: Stage, name: str, /, **labels: str) -> float:
    """Sum over what carries at least these labels."""
    return sum(
        number
        for (found, carried), number in served(stage).items()
        if found == name and labels.items() <= dict(carried).items()
    )


def expressions() -> Iterator[str]:
    for rule in rules():
        yield rule["expr"]
    for panel in json.loads((DEPLOY / "grafana" / "aisle.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


@pytest.fixture(scope="module")
def bought(stage: Stage, seller: Person, buyer: Person) -> int:
    """An event of which two seats are sold, and one is asked for in vain."""
    event = seller.opens(a_hall(("A", 3000, 5, 10)))
    booking = buyer.books(event, 2)
    buyer.waits_for(booking, "PENDING_PAYMENT")
    buyer.pays(booking)
    seat = {"section": "A", "subsection": 1, "seats": ["3-1"]}
    buyer.waits_for(buyer.books(event, **seat), "PENDING_PAYMENT")
    buyer.waits_for(buyer.books(event, **seat), "FAILED")
    return event


def test_every_metric_of_the_rules_and_the_dashboard_is_served(stage, bought):
    eventually(lambda: value(stage, "aisle_state_timestamp_seconds"), "the state was looked at")
    families = {family.removesuffix(end) for family, _ in served(stage) for end in ("", "_total")}
    # A label that nothing has carried yet: the family is declared, its samples come with the first of them.
    text = httpx.get(f"{stage.address}/metrics", timeout=60).text
    declared = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    for expression in expressions():
        for name in NAME.findall(re.sub(r'"[^"]*"', "", expression)):
            if not name.startswith("aisle:"):
                bare = re.sub(r"_(bucket|count|sum)$", "", name)
                assert {name, bare} & (families | declared), f"{name} of {expression} is not served"


def test_what_was_sold_is_counted(stage, bought):
    outcomes = {
        outcome: value(stage, "aisle_reservation_requests_total", outcome=outcome) for outcome in ("reserved", "taken")
    }
    assert outcomes == {"reserved": 2, "taken": 1}
    assert value(stage, "aisle_reservation_requests_total", mode="best") == 1
    assert value(stage, "aisle_reservation_decision_seconds_count", stage="total") >= 1
    eventually(lambda: value(stage, "aisle_outbox_published_total", service="ticketing") >= 1, "messages are counted")
    assert [value(stage, "aisle_invariant_violations_total", invariant=name) for name in INVARIANTS] == [0, 0, 0, 0]


def test_the_shared_state_is_shown(stage, bought):
    eventually(lambda: value(stage, "aisle_bookings", state="pending_payment") == 1, "the unpaid booking is shown")
    assert value(stage, "aisle_store_standing", **{"is": "verified"}) == 1
    assert value(stage, "aisle_part_away") == 0
    assert value(stage, "aisle_database_pool_max") == stage.config.database_pool_size
    assert value(stage, "aisle_store_append_ok") == 0, "the store of the tests appends to no file"
    assert value(stage, "aisle_seats") in (0, 50), "seats are looked at twice a minute"
