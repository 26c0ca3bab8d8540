"""What is asked of the inventory and what it answers. Pure values; a refusal is a value with a stable code.

`Claim` and `Settlement` check themselves, so that nothing malformed reaches a script: `check` returns the reason or "".
"""

from collections.abc import Sequence
from enum import IntEnum, StrEnum

import msgspec

from aisle.reservation.keys import IDENTIFIER
from aisle.reservation.subsection import SEATS_MAX


class Code(StrEnum):
    OK = "ok"
    SOLD_OUT = "sold_out"  # no seat this party may use
    NO_BLOCK = "no_block"  # some seats, but not for this party
    TAKEN = "taken"  # a named seat is not available
    KEPT = "kept"  # a named seat is for people who need an accessible one
    LIMIT = "limit"  # more than one claim may take, or the extension cap is reached
    CLOSED = "closed"  # no such subsection, or not on sale
    FENCED = "fenced"  # the caller's epoch is not the subsection's
    NOT_OWNER = "not_owner"
    EXPIRED = "expired"  # ended, or past its deadline
    UNKNOWN = "unknown"  # no such claim
    SOLD = "sold"  # a release came after the sale
    NOT_SOLD = "not_sold"  # a refund came before the sale
    FULL = "full"  # no place is left in the pool
    ALREADY_HOLDING = "already_holding"  # the pool grants one live hold a buyer, and this buyer has it
    INVALID = "invalid"  # malformed; it never reached the store


class Kind(StrEnum):
    BOOKING = "b"  # PostgreSQL owns its deadline
    HOLD = "h"  # the store owns it


class Rung(IntEnum):
    """How seats were found: 1 to 4 are the ladder of `seating`."""

    NAMED = 0
    ADJACENT = 1
    ADJACENT_ORPHAN = 2
    SPLIT = 3
    PARTIAL = 4


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Seats for one booking or hold: the best `size`, or the `seats` named by index. `id` makes it repeatable.

    A hold lasts `hold_ms` from now, or `until_ms` by the store's clock, which several holds can share.
    """

    id: str
    owner: str
    kind: Kind = Kind.BOOKING
    size: int = 0
    accessible: int = 0
    allow_partial: bool = False
    worst: Rung = Rung.SPLIT
    hold_ms: int = 0
    seats: tuple[int, ...] | None = None
    until_ms: int = 0

    def check(self) -> str:
        if not (isinstance(self.id, str) and IDENTIFIER.fullmatch(self.id)):
            return f"the id {self.id!r} is not 1 to 64 letters, digits, '-' or '_'"
        if not (isinstance(self.owner, str) and IDENTIFIER.fullmatch(self.owner)):
            return f"the owner {self.owner!r} is not 1 to 64 letters, digits, '-' or '_'"
        if not isinstance(self.kind, Kind) or not isinstance(self.worst, Rung) or self.worst is Rung.NAMED:
            return f"{self.kind!r} is not a kind of claim, or {self.worst!r} not a rung of the ladder"
        if not _whole(self.until_ms, 0, 10**14):
            return f"{self.until_ms!r} is not a moment in ms"
        if self.kind is Kind.HOLD and not self.until_ms and not _whole(self.hold_ms, 1, 86_400_000):
            return f"a hold lasts 1 ms to 24 h, not {self.hold_ms!r} ms"
        if self.seats is not None:
            return _check_seats(self.seats, self.accessible)
        if not _whole(self.size, 1, SEATS_MAX):
            return f"a party is 1 to {SEATS_MAX} people, not {self.size!r}"
        if not _whole(self.accessible, 0, self.size):
            return f"a party of {self.size} cannot need {self.accessible!r} accessible seats"
        return ""

    def packed(self) -> list[object]:
        return [
            self.id, self.owner, self.kind.value, self.size, self.accessible, int(self.allow_partial), int(self.worst),
            self.hold_ms, sorted(self.seats) if self.seats is not None else None, self.until_ms,
        ]  # fmt: skip


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """Answer to a claim. `runs` is (first seat, length, first seat, length, ...); for TAKEN, the seats in the way."""

    code: Code
    how: Rung = Rung.NAMED
    deadline_ms: int = 0
    price: int = 0
    taken_ms: int = 0
    runs: tuple[int, ...] = ()
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.code is Code.OK

    @property
    def seats(self) -> tuple[int, ...]:
        return seats_of(self.runs)


class Verb(StrEnum):
    RELEASE = "release"
    CONFIRM = "confirm"
    REOPEN = "reopen"


class Settlement(msgspec.Struct, frozen=True):
    """What becomes of a claim. `why` is kept with an ended one; `seats` may name a part of it, for a refund only."""

    verb: Verb
    id: str
    owner: str
    why: str = "released"
    seats: tuple[int, ...] | None = None

    def check(self) -> str:
        verb: object = self.verb
        if not isinstance(verb, Verb):
            return f"there is no operation {verb!r}"
        for value in (self.id, self.owner, self.why):
            if not (isinstance(value, str) and IDENTIFIER.fullmatch(value)):
                return f"{value!r} is not 1 to 64 letters, digits, '-' or '_'"
        if self.seats is not None:
            if self.verb is not Verb.REOPEN:
                return "only a refund can take back a part of the seats"
            return _check_seats(self.seats, 0)
        return ""

    def packed(self) -> list[object]:
        return [self.verb.value, self.id, self.owner, self.why, sorted(self.seats) if self.seats is not None else None]


class Settled(msgspec.Struct, frozen=True, array_like=True):
    """Answer to a settlement: the seats it moved, now or when it was first asked."""

    code: Code
    runs: tuple[int, ...] = ()
    price: int = 0
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.code is Code.OK

    @property
    def seats(self) -> tuple[int, ...]:
        return seats_of(self.runs)


def seats_of(runs: Sequence[int]) -> tuple[int, ...]:
    return tuple(s for first, length in zip(runs[::2], runs[1::2], strict=True) for s in range(first, first + length))


def _check_seats(seats: Sequence[int], accessible: int) -> str:
    if not seats:
        return "no seats are named"
    if len(seats) > SEATS_MAX or len(set(seats)) != len(seats):
        return "the named seats are too many or name one twice"
    if not all(_whole(seat, 0, SEATS_MAX - 1) for seat in seats):
        return "a named seat is not a seat index"
    return "" if _whole(accessible, 0, SEATS_MAX) else f"{accessible!r} is not a number of accessible seats"


def _whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
