"""The stories of buyers over HTTP, on the embedded log."""

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from tests.people import a_hall, expect
from tests.stories.conftest import has

pytestmark = pytest.mark.xdist_group("stage-buyer")  # one stage for the module, in one worker

pytest_plugins = ["tests.stories.buying"]

scenarios(
    "features/buyer/browse_events.feature",
    "features/buyer/select_seats.feature",
    "features/buyer/payment_window.feature",
)


@given("these events are on sale", target_fixture="events")
def these_events(stage, seller, datatable):
    """Put on sale once for the module: browsing shows all events there are."""
    rows = stage.fetch("select name, id from ticketing.events where starts_at < '2027-12-01'")
    known = {row["name"]: row["id"] for row in rows}
    for name, venue, starts in datatable[1:]:
        if name not in known:
            known[name] = seller.opens(a_hall(("A", 3000, 2, 10), name=name, venue=venue, starts_at=starts))
    return known


@when(parsers.parse("a visitor browses {limit:d} events at a time"), target_fixture="seen")
def browses(buyers, limit):
    seen, page = [], {"next": ""}
    while page["next"] is not None:
        page = expect(200, buyers[0].get("/events", limit=limit, after=page["next"]))
        assert len(page["items"]) <= limit
        seen += page["items"]
    return seen


@when(parsers.parse('a visitor searches for "{words}"'), target_fixture="seen")
def searches(buyers, words):
    return expect(200, buyers[0].get("/events", search=words))["items"]


@then(parsers.parse("the visitor sees {found} in this order, each once"))
@then(parsers.parse("the visitor sees {found}"))
def sees(seen, events, found):
    wanted = [] if found == "nothing" else [name.strip('"') for name in found.split(", ")]
    assert [event["name"] for event in seen if event["id"] in events.values()] == wanted
    assert len({event["id"] for event in seen}) == len(seen)


@given(parsers.parse('a buyer has booked {seats:d} seats of "{name}"'))
def has_booked_of(story, events, buyers, seats, name):
    story.event = events[name]
    has(story, buyers[0], quantity=seats)


@then(parsers.parse('section {section} of "{name}" shows {free:d} of {total:d} seats free'))
def section_shows(events, buyers, section, name, free, total):
    [shown] = expect(200, buyers[0].get(f"/events/{events[name]}/sections/{section}"))
    assert (shown["available"], shown["total"], shown["reserved"]) == (free, total, total - free)
