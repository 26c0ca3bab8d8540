"""The table of states walked exhaustively, and a producer's luck tried against a model."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from penstock.transactions import (
    EPOCH_LAST_USABLE,
    MOVES,
    PREPARED,
    Partition,
    Producer,
    State,
    Transaction,
    completed,
    due_ms,
    ended,
    fenced,
    init_refusal,
    initialised,
    moved,
    with_group,
    with_partitions,
)

UNKNOWN = Producer(-1, -1)
ONE = (Partition("t", "id", 0),)


def record(state: State, *, epoch: int = 5, last_epoch: int = -1) -> Transaction:
    return Transaction(7, epoch, state, 60_000, 1_000, number=3, started_ms=500, last_epoch=last_epoch)


@pytest.mark.parametrize(("old", "new"), itertools.product(State, State))
def test_only_the_moves_of_the_table_are_possible(old: State, new: State) -> None:
    if new in MOVES[old]:
        assert moved(record(old), new, 2_000).state is new
    else:
        with pytest.raises(AssertionError):
            moved(record(old), new, 2_000)


@pytest.mark.parametrize(
    ("state", "commit", "expected"),
    [
        (State.EMPTY, True, ErrorCode.invalid_txn_state),
        (State.EMPTY, False, ErrorCode.invalid_txn_state),
        (State.ONGOING, True, State.PREPARE_COMMIT),
        (State.ONGOING, False, State.PREPARE_ABORT),
        (State.PREPARE_COMMIT, True, ErrorCode.concurrent_transactions),
        (State.PREPARE_COMMIT, False, ErrorCode.invalid_txn_state),
        (State.PREPARE_ABORT, True, ErrorCode.invalid_txn_state),
        (State.PREPARE_ABORT, False, ErrorCode.concurrent_transactions),
        (State.COMPLETE_COMMIT, True, State.COMPLETE_COMMIT),
        (State.COMPLETE_COMMIT, False, ErrorCode.invalid_txn_state),
        (State.COMPLETE_ABORT, True, ErrorCode.invalid_txn_state),
        (State.COMPLETE_ABORT, False, State.COMPLETE_ABORT),
    ],
)
def test_what_ending_means_in_every_state(state: State, commit: bool, expected: State | ErrorCode) -> None:
    outcome = ended(record(state), Producer(7, 5), commit, 2_000)
    assert (outcome.state if isinstance(outcome, Transaction) else outcome) is expected


@pytest.mark.parametrize("state", State)
def test_nothing_joins_a_transaction_whose_outcome_is_decided(state: State) -> None:
    for outcome in (
        with_partitions(record(state), Producer(7, 5), ONE, 2_000),
        with_group(record(state), Producer(7, 5), "g", 2_000),
    ):
        if state in PREPARED:
            assert outcome is ErrorCode.concurrent_transactions
        else:
            assert isinstance(outcome, Transaction)
            assert outcome.state is State.ONGOING
            assert outcome.number == (3 if state is State.ONGOING else 4)


@pytest.mark.parametrize("state", State)
def test_a_new_instance_waits_for_a_decided_one_and_aborts_an_open_one(state: State) -> None:
    outcome = initialised(record(state), 1_000, UNKNOWN, 99, 2_000)
    if state in PREPARED:
        assert outcome is ErrorCode.concurrent_transactions
        return
    assert isinstance(outcome, Transaction)
    assert outcome.epoch == 6
    assert outcome.producer_id == 7
    assert outcome.state is (State.PREPARE_ABORT if state is State.ONGOING else State.EMPTY)


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_the_last_epochs_lead_to_a_new_producer_id(state: State) -> None:
    for epoch in (EPOCH_LAST_USABLE, EPOCH_LAST_USABLE + 1):
        outcome = initialised(record(state, epoch=epoch), 1_000, UNKNOWN, 99, 2_000)
        assert isinstance(outcome, Transaction)
        assert (outcome.producer_id, outcome.epoch, outcome.last_producer_id) == (99, 0, 7)
    before = initialised(record(state, epoch=EPOCH_LAST_USABLE - 1), 1_000, UNKNOWN, 99, 2_000)
    assert isinstance(before, Transaction)
    assert (before.producer_id, before.epoch) == (7, EPOCH_LAST_USABLE)


def test_a_producer_on_its_last_epoch_can_still_be_fenced() -> None:
    assert fenced(record(State.ONGOING, epoch=EPOCH_LAST_USABLE), 2_000).epoch == 32_767


def test_a_producer_that_lost_the_answer_with_its_new_id_gets_it_again() -> None:
    old = Producer(7, EPOCH_LAST_USABLE)
    rotated = initialised(record(State.EMPTY, epoch=EPOCH_LAST_USABLE), 1_000, old, 99, 2_000)
    assert isinstance(rotated, Transaction)
    again = initialised(rotated, 1_000, old, 100, 3_000)
    assert isinstance(again, Transaction)
    assert (again.producer_id, again.epoch) == (99, 0)


def test_half_an_identity_is_no_identity() -> None:
    assert init_refusal(1_000, Producer(7, -1)) is ErrorCode.invalid_request
    assert init_refusal(1_000, Producer(-1, 0)) is ErrorCode.invalid_request
    assert init_refusal(900_001, UNKNOWN) is ErrorCode.invalid_transaction_timeout
    assert init_refusal(900_000, UNKNOWN) is ErrorCode.none


def test_too_many_partitions_are_refused_and_the_transaction_goes_on() -> None:
    open_one = record(State.ONGOING)
    many = tuple(Partition("t", "id", number) for number in range(20_001))
    assert with_partitions(open_one, Producer(7, 5), many, 2_000) is ErrorCode.policy_violation
    assert with_partitions(open_one, Producer(7, 5), many[:-1], 2_000) is not ErrorCode.policy_violation


def test_an_open_transaction_is_due_at_its_deadline_and_a_stuck_one_soon() -> None:
    assert due_ms(record(State.ONGOING), 1_000) == 500 + 60_000
    assert due_ms(record(State.PREPARE_COMMIT), 1_000) == 2_000
    assert due_ms(record(State.COMPLETE_COMMIT), 1_000) > 7 * 24 * 3_600_000


STEPS = st.lists(
    st.sampled_from(["init", "add", "group", "commit", "abort", "time out", "finish", "zombie"]), max_size=60
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_whatever_happens_epochs_rise_and_every_transaction_ends_one_way(steps: list[str]) -> None:
    known: Transaction | None = None
    decided: dict[int, bool] = {}
    zombie = Producer(1, 0)
    for at, step in enumerate(steps):
        me = Producer(known.producer_id, known.epoch) if known else zombie
        outcome: Transaction | ErrorCode | None = None
        match step:
            case "init":
                outcome = initialised(known, 1_000, UNKNOWN, 1, at)
            case "add":
                outcome = with_partitions(known, me, ONE, at)
            case "group":
                outcome = with_group(known, me, "g", at)
            case "commit" | "abort":
                outcome = ended(known, me, step == "commit", at)
            case "time out" if known and known.state is State.ONGOING:
                outcome = fenced(known, at)
            case "finish" if known and known.state in PREPARED:
                outcome = completed(known, at)
            case "zombie" if known and known.epoch > 0:
                for refused in (with_partitions(known, zombie, ONE, at), ended(known, zombie, True, at)):
                    assert refused is ErrorCode.producer_fenced
        if isinstance(outcome, Transaction):
            if known:
                assert outcome.epoch >= known.epoch
                assert outcome.number >= known.number
            if outcome.state in PREPARED:
                assert decided.setdefault(outcome.number, outcome.commits) is outcome.commits
            known = outcome
