"""What a subsection is to look like after a rebuild: the facts, and what the store alone knows and may keep.

Pure; `rebuild` writes it. Bookings come from the facts. A live hold stays if its seats are free by the facts and its
deadline has not passed. Every other record of the old state ends here or has ended: it is kept for a day without its
seats, so that a repeated claim or a late payment is told `expired` and does not take seats again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from aisle.reservation.claims import Kind, Rung
from aisle.reservation.facts import ClaimFact, HallFacts
from aisle.reservation.record import ClaimState, Record
from aisle.reservation.subsection import SeatState, Subsection, pack

KEEP_ENDED_MS = 86_400_000


@dataclass(slots=True)
class Restored:
    """The values of the seven keys, and what became of the old records."""

    shape: Subsection
    states: list[SeatState]
    owners: dict[str, str] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    index: dict[str, int] = field(default_factory=dict)
    holds_kept: int = 0
    holds_dropped: list[str] = field(default_factory=list)
    bookings_dropped: list[str] = field(default_factory=list)

    @property
    def map(self) -> bytes:
        return pack(self.shape, self.states)

    @property
    def stats(self) -> dict[str, int]:
        counted = {state.name.lower(): self.states.count(state) for state in SeatState}
        return counted | {"total": self.shape.seats}

    @property
    def rows(self) -> dict[str, int]:
        width = self.shape.seats_per_row
        return {
            str(row + 1): self.states[row * width : (row + 1) * width].count(SeatState.AVAILABLE)
            for row in range(self.shape.rows)
        }


def restore(facts: HallFacts, old: Mapping[str, Record], *, now_ms: int, drop_holds: bool) -> Restored:
    """Compose the new state from the facts and the old records that could be read."""
    hall = facts.hall
    blocked = [
        SeatState.UNAVAILABLE if seat in hall.blocked else SeatState.AVAILABLE for seat in range(hall.shape.seats)
    ]
    new = Restored(hall.shape, blocked)
    for claim in facts.claims:
        _give(new, claim.id, _booking(hall.shape, claim, old.get(claim.id), now_ms))
    for identifier, record in old.items():
        if identifier not in new.records:
            _carry_over(new, identifier, record, now_ms, drop_holds)
    return new


def _booking(shape: Subsection, claim: ClaimFact, old: Record | None, now_ms: int) -> Record:
    """A booking as the facts have it; what they do not say is taken from its old record."""
    return Record(
        state=ClaimState.SOLD if claim.sold else ClaimState.LIVE,
        kind=Kind.BOOKING,
        owner=claim.owner,
        price=claim.price,
        taken_ms=claim.taken_ms or (old.taken_ms if old else now_ms),
        deadline_ms=0,
        how=Rung(claim.how) if claim.how or not old else old.how,
        note="",
        runs=_runs(shape, claim.seats),
    )


def _carry_over(new: Restored, identifier: str, record: Record, now_ms: int, drop_holds: bool) -> None:
    if record.state is ClaimState.ENDED:
        _end(new, identifier, record, record.note, now_ms)
    elif record.state is not ClaimState.LIVE or record.kind is not Kind.HOLD:
        new.bookings_dropped.append(identifier)
        _end(new, identifier, record, "rebuilt", now_ms)
    elif record.deadline_ms <= now_ms:
        _end(new, identifier, record, "expired", now_ms)
    elif drop_holds or not _fits(new, record):
        new.holds_dropped.append(identifier)
        _end(new, identifier, record, "rebuilt", now_ms)
    else:
        new.holds_kept += 1
        _give(new, identifier, record)
        new.index[identifier] = record.deadline_ms


def _fits(new: Restored, record: Record) -> bool:
    width, seats = new.shape.seats_per_row, record.seats
    for first, length in zip(record.runs[::2], record.runs[1::2], strict=True):
        if length < 1 or first + length > new.shape.seats or first // width != (first + length - 1) // width:
            return False
    return len(set(seats)) == len(seats) and all(new.states[seat] is SeatState.AVAILABLE for seat in seats)


def _give(new: Restored, identifier: str, record: Record) -> None:
    state = SeatState.SOLD if record.state is ClaimState.SOLD else SeatState.RESERVED
    for seat in record.seats:
        new.states[seat] = state
        new.owners[new.shape.name(seat)] = identifier
    new.records[identifier] = record


def _end(new: Restored, identifier: str, record: Record, note: str, now_ms: int) -> None:
    new.records[identifier] = msgspec.structs.replace(record, state=ClaimState.ENDED, note=note)
    new.index[identifier] = now_ms + KEEP_ENDED_MS


def _runs(shape: Subsection, seats: tuple[int, ...]) -> tuple[int, ...]:
    """Runs of ascending seats, none of which crosses into the next row."""
    runs: list[int] = []
    for seat in seats:
        if runs and runs[-2] + runs[-1] == seat and seat % shape.seats_per_row:
            runs[-1] += 1
        else:
            runs += seat, 1
    return tuple(runs)
