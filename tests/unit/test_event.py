"""What a seller may describe, and the hall that follows from it."""

import itertools
from datetime import datetime

import msgspec
import pytest

from aisle.ticketing.event import (
    EVENT_MOVES,
    TICKET_MOVES,
    BadDescription,
    Description,
    EventState,
    TicketState,
    lane_of,
    partition_of,
    plan_hall,
)


def describe(**changes: object) -> Description:
    body = {
        "name": "Night Train",
        "starts_at": "2026-12-31T20:00:00+08:00",
        "currency": "TWD",
        "sections": [
            {"name": "A", "price": 3000, "subsections": [{"rows": 2, "seats_per_row": 10, "count": 2}]},
            {
                "name": "B",
                "price": 1500,
                "subsections": [{"rows": 1, "seats_per_row": 4, "blocked": ["1-2"], "first": 7}],
            },
        ],
        **changes,
    }
    return msgspec.convert(body, Description, strict=False)


def test_subsections_are_numbered_best_first():
    hall = plan_hall(describe())
    assert [(s.section, s.subsection, s.place, s.seats, s.price) for s in hall] == [
        ("A", 1, 0, 20, 3000),
        ("A", 2, 1, 20, 3000),
        ("B", 7, 2, 4, 1500),
    ]
    assert hall[2].blocked == (1,)


SECTION = {"name": "A", "price": 1, "subsections": [{"rows": 1, "seats_per_row": 4}]}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"starts_at": datetime(2026, 12, 31, 20)}, "starts_at needs an offset"),
        ({"time_zone": "Mars/Olympus"}, "not a known time zone"),
        ({"seats_per_buyer": 1}, "seats_per_buyer is smaller"),
        ({"sections": [SECTION, SECTION]}, "two sections have the same name"),
        ({"sections": [{**SECTION, "subsections": [{"rows": 1, "seats_per_row": 4}] * 2}]}, "have the same number"),
        ({"sections": [{**SECTION, "subsections": [{"rows": 21, "seats_per_row": 500}]}]}, "more than 10000 seats"),
        (
            {"sections": [{**SECTION, "subsections": [{"rows": 100, "seats_per_row": 100, "count": 101}]}]},
            "1000000 seats",
        ),
        (
            {"sections": [{**SECTION, "subsections": [{"rows": 1, "seats_per_row": 4, "blocked": ["2-1"]}]}]},
            "no seat 2-1",
        ),
    ],
)
def test_a_hall_that_cannot_be_sold_is_refused_with_the_reason(changes, sentence):
    with pytest.raises(BadDescription, match=sentence):
        plan_hall(describe(**changes))


@pytest.mark.parametrize("name", ["A:1", "A{1}", "", "A" * 33, "Ä", "A-1"])
def test_a_section_name_that_could_forge_a_key_is_refused(name):
    with pytest.raises(msgspec.ValidationError):
        describe(sections=[{**SECTION, "name": name}])


def test_sections_are_dealt_over_ten_partitions():
    assert [partition_of(n) for n in (0, 1, 9, 10, 25)] == [0, 1, 9, 0, 5]


def test_a_large_event_gets_a_lane_of_its_own_unless_the_seller_says_otherwise():
    assert lane_of(7, 5000, None, own_lane_from_seats=5000) == "7"
    assert lane_of(7, 4999, None, own_lane_from_seats=5000) == "shared"
    assert lane_of(7, 10, True, own_lane_from_seats=5000) == "7"
    assert lane_of(7, 50000, False, own_lane_from_seats=5000) == "shared"


@pytest.mark.parametrize(("current", "target"), list(itertools.product(TicketState, TicketState)))
def test_every_pair_of_ticket_states(current, target):
    legal = {(0, 1), (1, 2), (1, 0), (2, 0)}
    assert (target in TICKET_MOVES[current]) == ((int(current), int(target)) in legal)


def test_an_event_is_sold_only_after_it_was_verified():
    assert EventState.ON_SALE not in EVENT_MOVES[EventState.CREATING]
    assert EVENT_MOVES[EventState.CREATING] == {EventState.READY}
