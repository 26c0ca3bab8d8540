"""A transaction as data: its states, the legal moves between them, and what a producer is answered. Pure: no I/O.

    none ──InitProducerId──> Empty ──first partition or group──> Ongoing ──EndTxn──> PrepareCommit | PrepareAbort
                               ^                                    ^    ──too old, or a new instance──> PrepareAbort
                               │                                    │
                               └─InitProducerId─ CompleteCommit ────┤ <──markers written, offsets moved── PrepareCommit
                               └─InitProducerId─ CompleteAbort  ────┘ <──markers written, offsets dropped─ PrepareAbort

Once Prepare* is stored the outcome is decided: whoever coordinates the id finishes it, however often they are killed.
`transaction_coordinator` gives this time and the store; every function takes the old record and returns the new one
or Kafka's code for the refusal.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec
from kio.schema.errors import ErrorCode

TIMEOUT_MS_MAX = 15 * 60 * 1000  # Kafka's transaction.max.timeout.ms
ID_SILENCE_MS = 7 * 24 * 3600 * 1000  # Kafka's transactional.id.expiration.ms
PARTITIONS_MAX = 20_000
GROUPS_MAX = 1_000
# The last epoch is kept for fencing, so that a producer on its last usable one can still be shut out.
EPOCH_LAST_USABLE = 32_766
NONE = -1


class State(StrEnum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


MOVES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING}),
}
PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})


class Partition(NamedTuple):
    topic: str
    topic_id: str  # a later topic of the same name is not part of the transaction
    number: int


class Transaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of one transactional id, as the store keeps it."""

    producer_id: int
    epoch: int
    state: State
    timeout_ms: int
    changed_ms: int
    number: int = 0  # counts the transactions of this id; markers and enrolments carry it
    started_ms: int = NONE
    last_producer_id: int = NONE
    last_epoch: int = NONE  # the epoch before the last bump that a producer asked for: it may ask again
    partitions: tuple[Partition, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def commits(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


class Producer(NamedTuple):
    """Who a request says it is."""

    id: int
    epoch: int


def moved(known: Transaction, state: State, now_ms: int, **changes: object) -> Transaction:
    assert state in MOVES[known.state], f"{known.state} -> {state}"
    return msgspec.structs.replace(known, state=state, changed_ms=now_ms, **changes)


def init_refusal(timeout_ms: int, expected: Producer) -> ErrorCode:
    """What is wrong with an InitProducerId whatever the record says."""
    if (expected.id == NONE) != (expected.epoch == NONE):
        return ErrorCode.invalid_request
    if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
        return ErrorCode.invalid_transaction_timeout
    return ErrorCode.none


def initialised(
    known: Transaction | None, timeout_ms: int, expected: Producer, fresh_id: int, now_ms: int
) -> Transaction | ErrorCode:
    """A new instance of the producer: the old one is fenced. In PrepareAbort it has to be finished and asked again."""
    if known is None:
        return Transaction(fresh_id, 0, State.EMPTY, timeout_ms, now_ms)
    given = expected.id != NONE
    rotated = expected.id == known.last_producer_id and expected.epoch >= EPOCH_LAST_USABLE
    if given and expected.id != known.producer_id and not rotated:
        return ErrorCode.producer_fenced
    if known.state in PREPARED:
        return ErrorCode.concurrent_transactions
    if known.state is State.ONGOING:
        return fenced(known, now_ms)
    repeated = given and expected.epoch == known.last_epoch and (rotated or expected.id == known.producer_id)
    if repeated:  # the answer to the same request was lost
        return moved(known, State.EMPTY, now_ms, timeout_ms=timeout_ms)
    if given and expected.epoch != known.epoch:
        return ErrorCode.producer_fenced
    last_epoch = known.epoch if given else NONE
    if known.epoch >= EPOCH_LAST_USABLE:
        fresh = {"producer_id": fresh_id, "epoch": 0, "last_producer_id": known.producer_id}
    else:
        fresh = {"epoch": known.epoch + 1}
    return moved(known, State.EMPTY, now_ms, timeout_ms=timeout_ms, last_epoch=last_epoch, **fresh)


def fenced(known: Transaction, now_ms: int) -> Transaction:
    """Abort what is open and shut its producer out: it is too old, or another instance took its place."""
    return moved(known, State.PREPARE_ABORT, now_ms, epoch=known.epoch + 1, last_epoch=NONE)


def with_partitions(
    known: Transaction | None, producer: Producer, partitions: tuple[Partition, ...], now_ms: int
) -> Transaction | ErrorCode:
    """The record itself if it holds them already."""
    refused = _refusal(known, producer)
    if known is None or refused:
        return refused
    if known.state in PREPARED:
        return ErrorCode.concurrent_transactions
    if known.state is not State.ONGOING:
        return _begun(known, now_ms, partitions=tuple(dict.fromkeys(partitions)))
    wider = tuple(dict.fromkeys(known.partitions + partitions))
    if len(wider) > PARTITIONS_MAX:
        return ErrorCode.policy_violation
    return known if len(wider) == len(known.partitions) else moved(known, State.ONGOING, now_ms, partitions=wider)


def with_group(known: Transaction | None, producer: Producer, group: str, now_ms: int) -> Transaction | ErrorCode:
    """The record itself if it has the group already."""
    refused = _refusal(known, producer)
    if known is None or refused:
        return refused
    if known.state in PREPARED:
        return ErrorCode.concurrent_transactions
    if known.state is not State.ONGOING:
        return _begun(known, now_ms, groups=(group,))
    if group in known.groups:
        return known
    if len(known.groups) >= GROUPS_MAX:
        return ErrorCode.policy_violation
    return moved(known, State.ONGOING, now_ms, groups=(*known.groups, group))


def ended(known: Transaction | None, producer: Producer, commit: bool, now_ms: int) -> Transaction | ErrorCode:
    """Prepare*, the record itself if it has ended in this way before, or why not."""
    refused = _refusal(known, producer)
    if known is None or refused:
        return refused
    match known.state:
        case State.ONGOING:
            return moved(known, State.PREPARE_COMMIT if commit else State.PREPARE_ABORT, now_ms)
        case State.EMPTY:
            return ErrorCode.invalid_txn_state
        case _ if known.commits is not commit:
            return ErrorCode.invalid_txn_state
        case State.PREPARE_COMMIT | State.PREPARE_ABORT:
            return ErrorCode.concurrent_transactions
        case _:
            return known


def completed(known: Transaction, now_ms: int) -> Transaction:
    state = State.COMPLETE_COMMIT if known.commits else State.COMPLETE_ABORT
    return moved(known, state, now_ms, partitions=(), groups=(), started_ms=NONE)


def due_ms(known: Transaction, patience_ms: int) -> int:
    """When somebody has to look at it: to abort it, to finish what another should have finished, or to forget it."""
    if known.state is State.ONGOING:
        return known.started_ms + known.timeout_ms
    return known.changed_ms + (patience_ms if known.state in PREPARED else ID_SILENCE_MS)


def _refusal(known: Transaction | None, producer: Producer) -> ErrorCode:
    if known is None or known.producer_id != producer.id:
        return ErrorCode.invalid_producer_id_mapping
    return ErrorCode.none if known.epoch == producer.epoch else ErrorCode.producer_fenced


def _begun(known: Transaction, now_ms: int, **members: object) -> Transaction:
    return moved(known, State.ONGOING, now_ms, number=known.number + 1, started_ms=now_ms, **members)
