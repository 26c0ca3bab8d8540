"""Is a subsection in the store consistent with itself, and with the facts? Pure; repairs nothing.

What must hold, for each of the seven keys:
    section_config  every field there and sane                 seats_bf   as long as the shape says, padding zero
    section_stats   counts of the map's states                 row_avail  available seats of the map, row by row
    seat_meta       the id of the one record that has the seat; nothing for a seat nobody has
    holds           readable; a live record's seats are reserved, a sold one's sold, no seat in two of them
    locks:exp       each live hold at its deadline, each ended record, nothing else
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from aisle.reservation.claims import Kind
from aisle.reservation.facts import ClaimFact, HallFacts
from aisle.reservation.keys import IDENTIFIER, Place
from aisle.reservation.record import ClaimState, Record
from aisle.reservation.snapshot import BadConfiguration, Configuration, Snapshot
from aisle.reservation.subsection import BadStates, SeatState, Subsection

FINDINGS_PER_PLACE_MAX = 100

HAS_SEATS = {ClaimState.LIVE: SeatState.RESERVED, ClaimState.SOLD: SeatState.SOLD}


class Fault(StrEnum):
    CONFIG = "config"
    MAP = "map"
    STATS = "stats"
    ROWS = "rows"
    OWNER = "owner"
    RECORD = "record"
    INDEX = "index"
    POOL = "pool"
    FACTS = "facts"  # the store and what is durably known differ
    TYPE = "type"  # a key of the wrong type
    ORPHAN = "orphan"  # a key that belongs to nothing
    MORE = "more"  # further findings of this place were left out


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Fault
    place: str
    detail: str

    def __str__(self) -> str:
        return f"{self.place}  {self.kind}  {self.detail}"


Found = tuple[Fault, str]
Records = Mapping[str, Record]


def audit(place: Place, snapshot: Snapshot, facts: HallFacts | None = None) -> list[Finding]:
    """What is wrong with this subsection, one line each; past FINDINGS_PER_PLACE_MAX they are only counted."""
    found = list(_judge(snapshot, facts))
    if len(found) > FINDINGS_PER_PLACE_MAX:
        rest = len(found) - FINDINGS_PER_PLACE_MAX
        found[FINDINGS_PER_PLACE_MAX:] = [(Fault.MORE, f"{rest} more findings in this subsection")]
    return [Finding(kind, str(place), detail) for kind, detail in found]


def read_records(snapshot: Snapshot) -> tuple[dict[str, Record], list[str]]:
    """The records, and what is wrong with those that cannot be read."""
    records, faults = {}, []
    for identifier, line in snapshot.records.items():
        try:
            records[identifier] = Record.parse(line)
        except ValueError as error:
            faults.append(f"record {identifier}: {error}")
    return records, faults


def _judge(snapshot: Snapshot, facts: HallFacts | None) -> Iterator[Found]:
    if not snapshot.config:
        yield Fault.CONFIG, "section_config is missing"
        return
    try:
        config = snapshot.configuration()
    except BadConfiguration as error:
        yield Fault.CONFIG, f"section_config: {error}"
        return
    records, faults = read_records(snapshot)
    for fault in faults:
        yield Fault.RECORD, fault
    for identifier, record in records.items():
        for fault in _record_faults(config.shape, identifier, record):
            yield Fault.RECORD, f"record {identifier}: {fault}"
    yield from _check_index(snapshot.index, records)
    try:
        states = snapshot.states(config.shape)
    except BadStates as error:
        yield Fault.MAP, "seats_bf is missing" if snapshot.map is None else f"seats_bf: {error}"
    else:
        yield from _check_counts(snapshot, config.shape, states)
        yield from _check_seats(snapshot.owners, config.shape, states, records)
        if facts is not None:
            yield from _compare(config, states, records, facts)


def _record_faults(shape: Subsection, identifier: str, record: Record) -> Iterator[str]:
    if not (IDENTIFIER.fullmatch(identifier) and IDENTIFIER.fullmatch(record.owner)):
        yield "its id or owner has characters that no caller may send"
    if not record.taken_ms:
        yield "it has no time at which it was taken"
    if record.state is ClaimState.ENDED:
        return
    owns_deadline = record.state is ClaimState.LIVE and record.kind is Kind.HOLD
    if owns_deadline != (record.deadline_ms > 0):
        yield "a live hold has a deadline and nothing else has one"
    if not record.runs:
        yield "it has no seats and has not ended"
    after = 0
    for first, length in zip(record.runs[::2], record.runs[1::2], strict=True):
        if length < 1 or first < after or first + length > shape.seats:
            yield f"its run {first}+{length} is out of order or outside of {shape.seats} seats"
            return
        if first // shape.seats_per_row != (first + length - 1) // shape.seats_per_row:
            yield f"its run {first}+{length} goes on into the next row"
        after = first + length


def _check_index(index: Mapping[str, str], records: Records) -> Iterator[Found]:
    for identifier, score in index.items():
        record = records.get(identifier)
        if record is None:
            yield Fault.INDEX, f"locks:exp has {identifier}, which has no readable record"
        elif record.state is not ClaimState.ENDED and _as_ms(score) != record.deadline_ms:
            said = str(record.deadline_ms) if record.deadline_ms else "none"
            yield Fault.INDEX, f"locks:exp has {identifier} at {score}; its deadline is {said}"
    for identifier, record in records.items():
        if identifier not in index and (record.state is ClaimState.ENDED or record.deadline_ms):
            what = "ended" if record.state is ClaimState.ENDED else f"due at {record.deadline_ms}"
            yield Fault.INDEX, f"locks:exp lacks {identifier}, {what}: no sweep will find it"


def _check_counts(snapshot: Snapshot, shape: Subsection, states: Sequence[SeatState]) -> Iterator[Found]:
    counted = Counter(states)
    expected = {state.name.lower(): counted[state] for state in SeatState} | {"total": shape.seats}
    for name, number in expected.items():
        if snapshot.stats.get(name) != str(number):
            yield Fault.STATS, f"section_stats says {snapshot.stats.get(name)} {name}, the map has {number}"
    if not snapshot.stats.get("version", "").isdigit():
        yield Fault.STATS, "section_stats has no version"
    for row in range(1, shape.rows + 1):
        seats = states[(row - 1) * shape.seats_per_row : row * shape.seats_per_row]
        free = seats.count(SeatState.AVAILABLE)
        if snapshot.rows.get(str(row)) != str(free):
            yield Fault.ROWS, f"row_avail says {snapshot.rows.get(str(row))} in row {row}, the map has {free}"
    for row_name in snapshot.rows.keys() - {str(row) for row in range(1, shape.rows + 1)}:
        yield Fault.ROWS, f"row_avail has row {row_name[:20]!r}, which does not exist"


def _check_seats(
    owners: Mapping[str, str], shape: Subsection, states: Sequence[SeatState], records: Records
) -> Iterator[Found]:
    holder: dict[int, str] = {}
    for identifier, record in records.items():
        if record.state is ClaimState.ENDED:
            continue
        for seat in record.seats:
            if seat in holder:
                yield Fault.RECORD, f"{holder[seat]} and {identifier} both have {_seat(shape, seat)}"
            holder[seat] = identifier
    names = [shape.name(seat) for seat in range(shape.seats)]
    for seat, state in enumerate(states):
        identifier, owner = holder.get(seat, ""), owners.get(names[seat], "")
        expected = HAS_SEATS[records[identifier].state] if identifier else None
        if expected is None and state in HAS_SEATS.values():
            yield Fault.RECORD, f"seat {names[seat]} is {state.name.lower()} and no record has it"
        elif expected is not None and expected is not state:
            said = f"{expected.name.lower()} by record {identifier}"
            yield Fault.MAP, f"seat {names[seat]} is {state.name.lower()} in the map and {said}"
        if owner != identifier:
            yield (
                Fault.OWNER,
                f"seat {names[seat]} is {owner or 'nobody'}'s in seat_meta and {identifier or 'nobody'}'s",
            )
    for name in owners.keys() - set(names):
        yield Fault.OWNER, f"seat_meta has {name[:20]!r}, which is no seat"


def _compare(config: Configuration, states: Sequence[SeatState], records: Records, facts: HallFacts) -> Iterator[Found]:
    hall, shape = facts.hall, config.shape
    for name, stored, known in (
        ("rows and seats per row", (shape.rows, shape.seats_per_row), (hall.shape.rows, hall.shape.seats_per_row)),
        # Facts that no epoch is known of, such as a file's, have 0.
        ("epoch", config.epoch, facts.epoch or config.epoch),
        ("price", config.price, hall.price),
        ("limit", config.limit, hall.limit),
        ("accessible seats", sorted(shape.accessible), sorted(hall.shape.accessible)),
        (
            "blocked seats",
            [s for s, state in enumerate(states) if state is SeatState.UNAVAILABLE],
            sorted(hall.blocked),
        ),
    ):
        if stored != known:
            yield Fault.FACTS, f"{name}: {stored} in the store, {known} in fact"[:300]
    known_claims = {claim.id: claim for claim in facts.claims}
    for identifier, claim in known_claims.items():
        fault = _claim_fault(claim, records.get(identifier))
        if fault:
            yield Fault.FACTS, f"booking {identifier} is {'sold' if claim.sold else 'reserved'} in fact and {fault}"
    for identifier, record in records.items():
        is_hold = record.state is ClaimState.LIVE and record.kind is Kind.HOLD
        if not is_hold and record.state is not ClaimState.ENDED and identifier not in known_claims:
            yield Fault.FACTS, f"booking {identifier} has {len(record.seats)} seats in the store and none in fact"


def _claim_fault(claim: ClaimFact, record: Record | None) -> str:
    if record is None:
        return "unknown in the store"
    if record.state is not (ClaimState.SOLD if claim.sold else ClaimState.LIVE):
        return f"{record.state.name.lower()} in the store"
    if record.seats != claim.seats:
        return "has other seats in the store"
    # A record keeps the price of its first seat; once it is sold, that seat may have been refunded alone.
    if record.owner != claim.owner or (record.price != claim.price and not claim.sold):
        return f"is {record.owner}'s at {record.price} in the store, not {claim.owner}'s at {claim.price}"
    return ""


def _seat(shape: Subsection, seat: int) -> str:
    return f"seat {shape.name(seat)}" if seat < shape.seats else f"seat index {seat}"


def _as_ms(score: str) -> int:
    try:
        return int(float(score))
    except (ValueError, OverflowError):
        return -1
