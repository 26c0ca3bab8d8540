"""A booking, the states it goes through and the moves it may make.

Pure: no I/O, no clock. Every change of state is checked against MOVES, in Python before and in SQL while it is written,
so two processes that disagree cannot both win. The diagram in the documentation is drawn from this table.
"""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from aisle.messages import Held, Part


class State(StrEnum):
    PROCESSING = "PROCESSING"
    PENDING_PAYMENT = "PENDING_PAYMENT"
    PAYING = "PAYING"
    PAID = "PAID"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    REFUNDED = "REFUNDED"


MOVES: dict[State, frozenset[State]] = {
    State.PROCESSING: frozenset({State.PENDING_PAYMENT, State.FAILED}),
    State.PENDING_PAYMENT: frozenset({State.PAYING, State.CANCELLED}),
    # A declined card goes back, so that the buyer can try another one before the deadline.
    State.PAYING: frozenset({State.PAID, State.PENDING_PAYMENT, State.CANCELLED}),
    State.PAID: frozenset({State.REFUNDED}),
    State.CANCELLED: frozenset(),
    State.FAILED: frozenset(),
    State.REFUNDED: frozenset(),
}

LIVE = frozenset({State.PROCESSING, State.PENDING_PAYMENT, State.PAYING, State.PAID})


def may_move(current: State, target: State) -> bool:
    """True if a booking may go from `current` to `target`. Staying put is not a move."""
    return target in MOVES[current]


def sources_of(target: State) -> list[str]:
    """The states from which `target` can be reached: what SQL compares with."""
    return [state.value for state in State if target in MOVES[state]]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the buyer asked for: the best seats somewhere, the seats named, places of a pool, or what a cart holds."""

    quantity: int
    section: str | None = None
    subsection: int | None = None
    seats: tuple[int, ...] | None = None
    accessible: int = 0
    allow_partial: bool = False
    pool: str | None = None
    held: tuple[Held, ...] = ()

    @property
    def held_parts(self) -> tuple[Part, ...]:
        """What a cart had; places of a pool are still without their tickets."""
        return tuple(part for held in self.held for part in held.parts)


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    event_id: int
    state: State
    quantity: int
    parts: tuple[Part, ...]
    total: int
    reason: str
    placed_at: datetime
    deadline: datetime | None
    ended_at: datetime | None
