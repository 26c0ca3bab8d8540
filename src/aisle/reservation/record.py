"""The record of a claim as the store keeps it: one line of text in `holds`, written by the scripts, read here.

    state | kind | owner | price | taken ms | deadline ms | how | note | runs
    L|h|buyer-7|3000|1760000000000|1760000600000|1||80+2,100+1

Pure. `lua/record.lua` explains each field; a line that does not parse is drift, never a guess.
"""

import re
from enum import StrEnum

import msgspec

from aisle.reservation.claims import Kind, Rung, seats_of

LINE = re.compile(r"([LSE])\|([bh])\|([^|]*)\|(\d+)\|(\d+)\|(\d+)\|(\d)\|([^|]*)\|((?:\d+\+\d+)(?:,\d+\+\d+)*)")


class ClaimState(StrEnum):
    LIVE = "L"
    SOLD = "S"
    ENDED = "E"


class BadRecord(ValueError):
    """A line in `holds` that no script wrote."""


class Record(msgspec.Struct, frozen=True):
    state: ClaimState
    kind: Kind
    owner: str
    price: int
    taken_ms: int
    deadline_ms: int
    how: Rung
    note: str
    runs: tuple[int, ...]

    @property
    def seats(self) -> tuple[int, ...]:
        return seats_of(self.runs)

    @classmethod
    def parse(cls, line: bytes) -> "Record":
        match = LINE.fullmatch(line.decode(errors="replace"))
        if match is None:
            raise BadRecord(f"a record cannot be read: {line[:200]!r}")
        state, kind, owner, price, taken, deadline, how, note, runs = match.groups()
        numbers = tuple(int(number) for run in runs.split(",") for number in run.split("+"))
        return cls(
            ClaimState(state), Kind(kind), owner, int(price), int(taken), int(deadline), Rung(int(how)), note, numbers
        )

    def line(self) -> bytes:
        runs = ",".join(f"{first}+{length}" for first, length in zip(self.runs[::2], self.runs[1::2], strict=True))
        times = f"{self.taken_ms}|{self.deadline_ms}"
        return f"{self.state}|{self.kind}|{self.owner}|{self.price}|{times}|{int(self.how)}|{self.note}|{runs}".encode()
