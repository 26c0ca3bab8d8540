"""The table of moves, walked exhaustively: what is not in it must be impossible."""

import itertools

import pytest

from aisle.booking.booking import LIVE, MOVES, State, may_move, sources_of

LEGAL = {
    ("PROCESSING", "PENDING_PAYMENT"),
    ("PROCESSING", "FAILED"),
    ("PENDING_PAYMENT", "PAYING"),
    ("PENDING_PAYMENT", "CANCELLED"),
    ("PAYING", "PAID"),
    ("PAYING", "PENDING_PAYMENT"),
    ("PAYING", "CANCELLED"),
    ("PAID", "REFUNDED"),
}


@pytest.mark.parametrize(("current", "target"), list(itertools.product(State, State)))
def test_every_pair_of_states(current, target):
    assert may_move(current, target) == ((current.value, target.value) in LEGAL)


def test_terminal_states_never_change():
    assert {state for state in State if not MOVES[state]} == {State.CANCELLED, State.FAILED, State.REFUNDED}


def test_sources_are_the_table_read_backwards():
    for target in State:
        assert set(sources_of(target)) == {current for current, end in LEGAL if end == target.value}


def test_a_booking_counts_against_the_limit_until_it_ends():
    assert set(State) - {State.CANCELLED, State.FAILED, State.REFUNDED} == LIVE
