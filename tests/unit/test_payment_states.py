"""The table of a payment's moves, walked exhaustively: what is not in it must be impossible."""

import itertools

import pytest

from aisle.payment.payment import MOVES, OPEN, PaymentState, may_move

LEGAL = {
    "STARTED": {"ACTION", "AUTHORISED", "DECLINED", "ABANDONED", "LATE", "REVIEW"},
    "ACTION": {"AUTHORISED", "DECLINED", "ABANDONED", "LATE", "REVIEW"},
    "AUTHORISED": {"CAPTURED", "DECLINED"},
    "CAPTURED": {"RETURNED"},
    "DECLINED": {"LATE", "REVIEW"},
    "ABANDONED": {"DECLINED", "LATE", "VOIDED", "REVIEW"},
    "LATE": {"AUTHORISED", "VOIDED", "RETURNED"},
    "REVIEW": {"LATE"},
}


@pytest.mark.parametrize(("current", "target"), list(itertools.product(PaymentState, PaymentState)))
def test_every_pair_of_states(current, target):
    assert may_move(current, target) == (target.value in LEGAL.get(current.value, set()))


def test_whatever_is_open_can_go_on_and_money_that_went_back_never_comes_again():
    assert all(MOVES[state] for state in OPEN)
    assert {state for state in PaymentState if not MOVES[state]} == {PaymentState.VOIDED, PaymentState.RETURNED}
