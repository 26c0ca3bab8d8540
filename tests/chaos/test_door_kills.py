"""The process dies between letting somebody in and saying so: whoever asks again is told what was decided, once."""

import httpx
import pytest

from aisle.crash_points import DOOR_POINTS
from tests.door import a_sold_show, scan, scan_id, tickets_of
from tests.people import expect, new_key
from tests.stage import prepared_stage

pytestmark = pytest.mark.xdist_group("stage-door-kills")  # one stage for the module, in one worker


@pytest.fixture(scope="module")
def stage(servers, tmp_path_factory):
    with prepared_stage(servers, tmp_path_factory.mktemp("stage")) as stage:
        stage.start()
        yield stage


@pytest.fixture
def show(stage):
    with stage.person("seller") as seller, stage.person("buyer") as buyer:
        show = a_sold_show(stage, seller, buyer)
        show.buyer = buyer
        yield show


def dies(stage, at, ask):
    """`ask` gets no answer, because the process dies at the point; another one takes its place."""
    stage.stop()
    stage.start(crash_at=at)
    with pytest.raises(httpx.TransportError):
        ask()
    assert stage.wait_for_death() == 137
    stage.start()


def test_these_are_all_the_points():
    assert set(DOOR_POINTS) == {"after_check_in", "after_reissue"}


def test_a_guest_whose_answer_was_lost_is_let_in_and_nobody_after_them(stage, show):
    key, code = new_key(), show.tickets[0]["code"]
    dies(stage, "after_check_in", lambda: scan(show.door, show.event, code, key=key))
    assert scan(show.door, show.event, code, key=key)["outcome"] == "accepted"
    assert scan(show.door, show.event, code)["outcome"] == "already_in"


def test_scans_whose_merge_was_cut_off_are_handed_in_again(stage, show):
    scans = [
        {"id": scan_id(), "code": ticket["code"], "scanned_at": f"2026-01-31T19:0{n}:00Z"}
        for n, ticket in enumerate([*show.tickets, *show.tickets])
    ]
    body = {"event_id": show.event, "gate": "south", "scans": scans}
    dies(stage, "after_check_in", lambda: show.door.post("/check-ins/merge", body))
    items = expect(200, show.door.post("/check-ins/merge", body))["items"]
    assert [item["outcome"] for item in items] == ["accepted", "accepted", "already_in", "already_in"]
    assert stage.fetch("select count(*) from door.scans where event_id = $1", show.event)[0][0] == 4


def test_a_new_code_whose_answer_was_lost_is_the_one_that_is_given(stage, show):
    old = show.tickets[0]
    path = f"/bookings/{show.booking}/tickets/{old['id']}/reissue"
    dies(stage, "after_reissue", lambda: show.buyer.post(path, {"version": 1}))
    new = expect(200, show.buyer.post(path, {"version": 1}))
    assert (new["version"], tickets_of(show.buyer, show.booking)[0]) == (2, new)
    assert scan(show.door, show.event, old["code"])["outcome"] == "voided"
