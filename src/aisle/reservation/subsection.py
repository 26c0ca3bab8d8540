"""One subsection: how its seats are counted, named and kept, two bits each.

Pure. `seating`, the seat map and the edge of the store use it; it never knows who holds a seat.

    index   (row - 1) * seats_per_row + (seat - 1)       rows and seats count from 1, indexes from 0
    name    "row-seat": "5-10" is row 5, seat 10
    bits    |s0|s1|s2|s3| |s4|s5|s6|s7| ...              seat 0 in the two top bits of byte 0, last bits padded with 0
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

SEATS_PER_ROW_MAX = 500
SEATS_MAX = 10_000

SEAT_NAME = re.compile(r"([1-9][0-9]{0,4})-([1-9][0-9]{0,4})")


class SeatState(IntEnum):
    AVAILABLE = 0
    RESERVED = 1
    SOLD = 2
    UNAVAILABLE = 3


class BadSubsection(ValueError):
    """The rows, the seats per row or the accessible seats cannot be those of a subsection."""


class BadSeat(ValueError):
    """A seat that this subsection does not have, or a name that names no seat."""


class BadStates(ValueError):
    """States or bits that do not describe exactly this subsection's seats."""


@dataclass(frozen=True, slots=True)
class Subsection:
    """Row 1 is the best row. `accessible` holds seat indexes and never changes while the event is on sale."""

    rows: int
    seats_per_row: int
    accessible: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise BadSubsection(f"rows must be at least 1, not {self.rows}")
        if not 1 <= self.seats_per_row <= SEATS_PER_ROW_MAX:
            raise BadSubsection(f"seats per row must be 1 to {SEATS_PER_ROW_MAX}, not {self.seats_per_row}")
        if self.seats > SEATS_MAX:
            raise BadSubsection(f"{self.rows} rows of {self.seats_per_row} are more than {SEATS_MAX} seats")
        outside = sorted(seat for seat in self.accessible if not 0 <= seat < self.seats)
        if outside:
            raise BadSubsection(f"accessible seat {outside[0]} is not one of the indexes 0 to {self.seats - 1}")

    @property
    def seats(self) -> int:
        return self.rows * self.seats_per_row

    def index(self, row: int, seat: int) -> int:
        if not (1 <= row <= self.rows and 1 <= seat <= self.seats_per_row):
            raise BadSeat(f"no seat {row}-{seat} in {self.rows} rows of {self.seats_per_row}")
        return (row - 1) * self.seats_per_row + seat - 1

    def row(self, index: int) -> int:
        self.check_index(index)
        return index // self.seats_per_row + 1

    def name(self, index: int) -> str:
        return f"{self.row(index)}-{index % self.seats_per_row + 1}"

    def named(self, name: str) -> int:
        """The index of the seat called `name`. One seat has one name: "05-10" and " 5-10" are refused."""
        match = SEAT_NAME.fullmatch(name)
        if match is None:
            raise BadSeat(f"{name[:20]!r} is not a seat name such as '5-10'")
        return self.index(int(match[1]), int(match[2]))

    def check_index(self, index: int) -> None:
        if not 0 <= index < self.seats:
            raise BadSeat(f"seat {index} is not one of the indexes 0 to {self.seats - 1}")

    def check_states(self, states: Sequence[int]) -> None:
        if len(states) != self.seats:
            raise BadStates(f"{len(states)} states for {self.seats} seats")
        for index, state in enumerate(states):
            if not 0 <= state <= 3:
                raise BadStates(f"seat {self.name(index)} has state {state}; states are 0 to 3")


@dataclass(frozen=True, slots=True)
class Gap:
    """An unbroken run of usable seats in one row. `start` is the index of its leftmost seat."""

    row: int
    start: int
    length: int


def gaps_of(subsection: Subsection, usable: Sequence[int]) -> list[Gap]:
    """The gaps in index order: row by row, left to right. `usable` ascends."""
    gaps: list[Gap] = []
    for seat in usable:
        row = subsection.row(seat)
        if gaps and gaps[-1].row == row and gaps[-1].start + gaps[-1].length == seat:
            gaps[-1] = Gap(row, gaps[-1].start, gaps[-1].length + 1)
        else:
            gaps.append(Gap(row, seat, 1))
    return gaps


def pack(subsection: Subsection, states: Sequence[int]) -> bytes:
    subsection.check_states(states)
    packed = bytearray(packed_size(subsection))
    for index, state in enumerate(states):
        packed[index // 4] |= state << shift(index)
    return bytes(packed)


def unpack(subsection: Subsection, packed: bytes) -> list[SeatState]:
    """The opposite of `pack`. A wrong length or a set padding bit is refused: those bits are not this subsection's."""
    if len(packed) != packed_size(subsection):
        raise BadStates(f"{len(packed)} bytes for {subsection.seats} seats; {packed_size(subsection)} expected")
    states = [SeatState(packed[index // 4] >> shift(index) & 3) for index in range(subsection.seats)]
    padding = -subsection.seats % 4
    if packed[-1] & ((1 << 2 * padding) - 1):
        raise BadStates(f"the last {2 * padding} bits are padding and must be 0")
    return states


def packed_size(subsection: Subsection) -> int:
    return (subsection.seats + 3) // 4


def shift(index: int) -> int:
    """How far a seat's two bits stand from the right end of their byte."""
    return 6 - 2 * (index % 4)
