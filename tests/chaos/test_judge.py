"""The judge of a chaos run finds what it is there to find: histories with a planted violation, one of each kind.

A checker that cannot fail is worth nothing. Each history here is the sound one with one thing changed.
"""

import copy
from datetime import UTC, datetime

import pytest

from tests.chaos.soak.audit import forbidden_moves
from tests.chaos.soak.checks import Final, judge_history
from tests.chaos.soak.history import FAIL, OK, UNKNOWN, History, Operation

EVENT, LIMIT, CAPACITY = 1, 4, 5


def seats(*names):
    return [{"section": "A", "subsection": 1, "seats": list(names), "places": len(names), "price": 10}]


def places(count):
    return [{"section": "GA", "subsection": 0, "seats": [], "places": count, "price": 5}]


def told(id, state, parts):
    return {"id": id, "event_id": EVENT, "state": state, "seats": parts}


def asked(buyer, kind, at, answer, *, key="", outcome=OK, status=200, seconds=1.0, **more):
    return Operation(buyer, kind, key, more, at, at + seconds, outcome, status, "", answer)


def final(id, buyer, state, *names, places=0, key=""):
    return Final(id, buyer, EVENT, state, tuple(sorted((EVENT, "A", 1, name) for name in names)), places, key or id)


def a_sound_history():
    """Two buyers, one after the other on the same seat; places of a pool; a hold that lapses; an unknown answer."""
    two = {"body": {"quantity": 2}}
    operations = [
        asked("ann", "book", 0, told("b1", "PROCESSING", []), key="k1", status=202, **two),
        asked("ann", "look", 2, told("b1", "PENDING_PAYMENT", seats("1-1", "1-2"))),
        asked("ann", "look", 4, told("b1", "PENDING_PAYMENT", seats("1-1", "1-2"))),
        asked("ann", "cancel", 6, told("b1", "CANCELLED", seats("1-1", "1-2")), key="k2"),
        asked("bob", "book", 5, None, key="k3", outcome=UNKNOWN, status=0),
        asked("bob", "book", 8, told("b2", "PROCESSING", []), key="k3", status=202, **two),
        asked("bob", "look", 10, told("b2", "PENDING_PAYMENT", seats("1-1", "1-2"))),
        asked("bob", "look", 12, told("b2", "PAID", seats("1-1", "1-2"))),
        asked("bob", "look", 14, told("b2", "PAID", seats("1-1", "1-2"))),
        asked("bob", "scan", 16, {"outcome": "accepted"}, key="k4", ticket="t1", booking="b2"),
        asked("bob", "scan", 17, {"outcome": "already_in"}, key="k5", ticket="t1", booking="b2"),
        asked("eve", "look", 3, told("b3", "PENDING_PAYMENT", places(3))),
        asked("eve", "look", 9, told("b3", "PENDING_PAYMENT", places(3))),
        asked("eve", "hold", 20, hold("h1", 40, "2-1"), key="k6", status=201),
        asked("eve", "book", 50, told("b2", "PROCESSING", []), key="k3", outcome=FAIL, status=422, misuse=True),
    ]
    finals = [
        final("b1", "ann", "CANCELLED", "1-1", "1-2"),
        final("b2", "bob", "PAID", "1-1", "1-2", key="k3"),
        final("b3", "eve", "CANCELLED", places=3),
    ]
    return History(operations), finals


def hold(id, until, *names):
    expires_at = datetime.fromtimestamp(until, UTC).isoformat()
    return {"id": id, "event_id": EVENT, "state": "held", "expires_at": expires_at, "seats": seats(*names)}


def verdict(history, finals):
    return judge_history(history, finals, {EVENT: CAPACITY}, limit=LIMIT)


def test_a_sound_history_is_found_sound():
    assert verdict(*a_sound_history()) == []


def double_sale(history, finals):
    history.operations[6:6] = [
        asked("eve", "look", 10, told("b4", "PENDING_PAYMENT", seats("1-1"))),
        asked("eve", "look", 13, told("b4", "PENDING_PAYMENT", seats("1-1"))),
    ]
    finals.append(final("b4", "eve", "CANCELLED", "1-1"))


def sold_twice_in_the_end(history, finals):
    finals.append(final("b4", "eve", "PAID", "1-2"))


def held_seat_sold(history, finals):
    history.operations += [
        asked("bob", "look", 22, told("b4", "PENDING_PAYMENT", seats("2-1"))),
        asked("bob", "look", 30, told("b4", "PENDING_PAYMENT", seats("2-1"))),
    ]
    finals.append(final("b4", "bob", "CANCELLED", "2-1"))


def overfull_pool(history, finals):
    history.operations += [
        asked("bob", "look", 4, told("b4", "PENDING_PAYMENT", places(3))),
        asked("bob", "look", 8, told("b4", "PENDING_PAYMENT", places(3))),
    ]
    finals.append(final("b4", "bob", "CANCELLED", places=3))


def lost_booking(history, finals):
    del finals[1]


def paid_and_then_not(history, finals):
    finals[1] = final("b2", "bob", "CANCELLED", "1-1", "1-2", key="k3")


def other_seats_than_told(history, finals):
    finals[1] = final("b2", "bob", "PAID", "1-1", "1-3", key="k3")


def no_answer_for_ever(history, finals):
    finals.append(final("b4", "eve", "PROCESSING"))


def one_key_two_answers(history, finals):
    again = copy.deepcopy(history.operations[5])
    again.answer["id"] = "b3"
    history.operations.append(again)


def one_key_two_bookings(history, finals):
    finals.append(final("b4", "bob", "FAILED", key="k3"))


def misused_key_accepted(history, finals):
    history.operations[-1].outcome, history.operations[-1].status = OK, 202


def back_from_the_dead(history, finals):
    history.operations.append(asked("ann", "look", 20, told("b1", "PENDING_PAYMENT", seats("1-1", "1-2"))))


def beyond_the_limit(history, finals):
    history.operations += [
        asked("bob", "look", 11, told("b4", "PENDING_PAYMENT", seats("3-1", "3-2", "3-3"))),
        asked("bob", "look", 15, told("b4", "PENDING_PAYMENT", seats("3-1", "3-2", "3-3"))),
    ]
    finals.append(final("b4", "bob", "CANCELLED", "3-1", "3-2", "3-3"))


def more_than_asked(history, finals):
    history.operations.append(asked("eve", "hold", 30, hold("h2", 40, "4-1", "4-2"), key="k9", body={"quantity": 1}))


def less_than_chosen(history, finals):
    body = {"mode": "manual", "section": "A", "subsection": 1, "seats": ["5-1", "5-2"]}
    history.operations.append(asked("eve", "hold", 30, hold("h2", 40, "5-1"), key="k9", body=body))


def two_people_on_one_ticket(history, finals):
    history.operations.append(asked("bob", "scan", 18, {"outcome": "accepted"}, key="k8", ticket="t1", booking="b2"))


def money_back_and_inside(history, finals):
    history.operations.append(
        asked("bob", "refund", 19, told("b2", "REFUNDED", seats("1-1", "1-2")), key="k8", booking="b2")
    )


PLANTED = {
    double_sale: "I1", sold_twice_in_the_end: "I1", held_seat_sold: "I7", overfull_pool: "I2", lost_booking: "I3",
    paid_and_then_not: "I3", other_seats_than_told: "I3", no_answer_for_ever: "I22", one_key_two_answers: "I9",
    one_key_two_bookings: "I9", misused_key_accepted: "I9", back_from_the_dead: "I10", beyond_the_limit: "I13",
    more_than_asked: "I11", less_than_chosen: "I11", two_people_on_one_ticket: "I21", money_back_and_inside: "I27",
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_violation_is_found(plant):
    history, finals = a_sound_history()
    plant(history, finals)
    found = verdict(history, finals)
    assert [finding for finding in found if finding.startswith(PLANTED[plant] + ":")], found


MOVES = {
    "a booking that was cancelled is paid": ("booking", "CANCELLED", "PAID", None, None, "I10"),
    "a booking is paid without paying": ("booking", "PENDING_PAYMENT", "PAID", None, None, "I10"),
    "a captured payment is declined": ("payment", "CAPTURED", "DECLINED", None, None, "I10"),
    "a ticket changes hands": ("ticket", "1", "1", "one", "two", "I1"),
}


@pytest.mark.parametrize("what", MOVES)
def test_a_move_that_is_in_no_table_is_found(what):
    kind, old, new, old_owner, owner, invariant = MOVES[what]
    row = {"what": kind, "id": "x", "old": old, "new": new, "old_owner": old_owner, "owner": owner}
    sound = {"what": "booking", "id": "y", "old": "PENDING_PAYMENT", "new": "PAYING", "old_owner": None, "owner": None}
    [finding] = forbidden_moves([sound, row])
    assert finding.startswith(invariant)
