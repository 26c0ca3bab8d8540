"""One subsection as plain Python: what the scripts must do, and what the store must then hold, key by key.

`Model` repeats every operation on ordinary lists and dictionaries; `View` is everything the store has of a subsection
in comparable form. `audit` needs no history: it says in which points a view contradicts itself. Nothing here talks to
a server except `look`, and nothing here shares code with the Lua; the choice of seats is that of `seating.choose`.
"""

from dataclasses import dataclass, replace
from typing import Any

from aisle.reservation.claims import Claim, Code, Kind, Outcome, Rung, Settled, Settlement, Verb, seats_of
from aisle.reservation.inventory import Hall, Inventory
from aisle.reservation.keys import Place
from aisle.reservation.seating import How, Party, Refusal, choose
from aisle.reservation.subsection import SeatState, Subsection, pack, unpack
from aisle.scripts import load_script
from aisle.store import Store

SNAPSHOT = load_script("aisle.reservation", "snapshot")
KEEP_ENDED_MS = 24 * 60 * 60 * 1000
RUNGS = {
    How.ADJACENT: Rung.ADJACENT,
    How.ADJACENT_ORPHAN: Rung.ADJACENT_ORPHAN,
    How.SPLIT: Rung.SPLIT,
    How.PARTIAL: Rung.PARTIAL,
}

Runs = tuple[int, ...]


@dataclass(frozen=True)
class Record:
    """`state|kind|owner|price|taken|deadline|how|note|runs`, as it stands in `holds`."""

    state: str
    kind: str
    owner: str
    price: int
    taken: int
    deadline: int
    how: int
    note: str
    runs: Runs

    @property
    def text(self) -> str:
        runs = ",".join(f"{first}+{length}" for first, length in zip(self.runs[::2], self.runs[1::2], strict=True))
        fields = (self.state, self.kind, self.owner, self.price, self.taken, self.deadline, self.how, self.note, runs)
        return "|".join(map(str, fields))

    @classmethod
    def parse(cls, text: str) -> "Record":
        state, kind, owner, price, taken, deadline, how, note, runs = text.split("|")
        numbers = tuple(int(number) for run in runs.split(",") if run for number in run.split("+"))
        return cls(state, kind, owner, int(price), int(taken), int(deadline), int(how), note, numbers)


@dataclass(frozen=True)
class View:
    """The seven keys of a subsection, decoded."""

    states: list[SeatState]
    config: dict[str, str]
    stats: dict[str, int]
    rows: dict[int, int]
    owners: dict[str, str]
    records: dict[str, Record]
    index: dict[str, int]


async def look(store: Store, place: Place, shape: Subsection) -> View:
    """Read everything in one step of the store, so that the picture is of one moment."""
    packed, *lists = await store.run(SNAPSHOT, Inventory(store).keys(place), ())
    config, stats, rows, owners, records, index = (
        dict(zip(map(_text, flat[::2]), map(_text, flat[1::2]), strict=True)) for flat in lists
    )
    return View(
        states=unpack(shape, packed or b""),
        config=config,
        stats={name: int(value) for name, value in stats.items()},
        rows={int(row): int(count) for row, count in rows.items()},
        owners=owners,
        records={name: Record.parse(text) for name, text in records.items()},
        index={name: int(score) for name, score in index.items()},
    )


def audit(view: View, shape: Subsection) -> list[str]:
    """Every contradiction between bits, counters, rows, owners, records and index."""
    faults = []
    counted = {state.name.lower(): view.states.count(state) for state in SeatState} | {"total": shape.seats}
    stats = {name: view.stats.get(name) for name in counted}
    if stats != counted:
        faults.append(f"counters {stats}, seats {counted}")
    rows = _free_by_row(shape, view.states)
    if view.rows != rows:
        faults.append(f"row counters {view.rows}, seats {rows}")
    claimed: dict[str, tuple[str, SeatState]] = {}
    for name, record in view.records.items():
        if record.state in "LS":
            state = SeatState.RESERVED if record.state == "L" else SeatState.SOLD
            for seat in seats_of(record.runs):
                if shape.name(seat) in claimed:
                    faults.append(f"seat {shape.name(seat)} is in the records of {name} and of another claim")
                claimed[shape.name(seat)] = (name, state)
    if view.owners != {seat: name for seat, (name, _) in claimed.items()}:
        faults.append(f"owners {view.owners}, records {claimed}")
    taken = {
        shape.name(seat): state
        for seat, state in enumerate(view.states)
        if state in (SeatState.RESERVED, SeatState.SOLD)
    }
    if taken != {seat: state for seat, (_, state) in claimed.items()}:
        faults.append(f"seats {taken}, records {claimed}")
    indexed = {name for name, r in view.records.items() if r.state == "E" or (r.state == "L" and r.deadline)}
    if set(view.index) != indexed:
        faults.append(f"index {set(view.index)}, records {indexed}")
    for name, record in view.records.items():
        if record.state == "L" and record.deadline and view.index.get(name) != record.deadline:
            faults.append(f"{name} ends at {record.deadline}, the index says {view.index.get(name)}")
    return faults


class Model:
    """Methods take `now`, the store's clock in ms, and answer what the inventory must answer."""

    def __init__(self, hall: Hall, *, epoch: int, now: int) -> None:
        self.hall = hall
        self.shape = hall.shape
        self.epoch = epoch
        self.on_sale = False
        self.price = hall.price
        self.states = [SeatState.UNAVAILABLE if s in hall.blocked else SeatState.AVAILABLE for s in range(self.seats)]
        self.records: dict[str, Record] = {}
        self.index: dict[str, int] = {}
        self.version = 1
        self.updated_at = now

    @property
    def seats(self) -> int:
        return self.shape.seats

    def view(self) -> View:
        owners = {
            self.shape.name(seat): name
            for name, record in self.records.items()
            if record.state in "LS"
            for seat in seats_of(record.runs)
        }
        walls = [
            SeatState.UNAVAILABLE if s in self.shape.accessible else SeatState.AVAILABLE for s in range(self.seats)
        ]
        config = {
            "epoch": str(self.epoch),
            "state": "open" if self.on_sale else "closed",
            "rows": str(self.shape.rows),
            "seats_per_row": str(self.shape.seats_per_row),
            "price": str(self.price),
            "limit": str(self.hall.limit),
            "accessible": _text(pack(self.shape, walls)) if self.shape.accessible else "",
        }
        stats = {state.name.lower(): self.states.count(state) for state in SeatState}
        stats |= {"total": self.seats, "version": self.version, "updated_at": self.updated_at}
        rows = _free_by_row(self.shape, self.states)
        return View(self.states[:], config, stats, rows, owners, dict(self.records), dict(self.index))

    def claim(self, claims: list[Claim], *, epoch: int, now: int) -> list[Outcome]:
        before = self.states[:]
        answers = [Outcome(Code.INVALID) if claim.check() else self._claim(claim, epoch, now) for claim in claims]
        self._note_change(before, now)
        return answers

    def settle(self, settlements: list[Settlement], *, epoch: int, now: int) -> list[Settled]:
        before = self.states[:]
        answers = [Settled(Code.INVALID) if s.check() else self._settle(s, epoch, now) for s in settlements]
        self._note_change(before, now)
        return answers

    def convert(self, holds: list[str], *, booking: str, owner: str, epoch: int, now: int) -> Settled:
        if len(set(holds)) != len(holds) or not holds:
            return Settled(Code.INVALID)
        if epoch != self.epoch:
            return Settled(Code.FENCED)
        done = self.records.get(booking)
        if done is not None:
            if done.owner != owner or done.kind != Kind.BOOKING:
                return Settled(Code.NOT_OWNER)
            return Settled(Code.EXPIRED) if done.state == "E" else Settled(Code.OK, done.runs, done.price)
        for name in holds:
            record = self.records.get(name)
            if record is None or record.kind != Kind.HOLD:
                return Settled(Code.UNKNOWN)
            if record.owner != owner:
                return Settled(Code.NOT_OWNER)
            if record.state != "L" or 0 < record.deadline <= now:
                return Settled(Code.EXPIRED)
        held = [self.records[name] for name in holds]
        pairs = sorted(pair for r in held for pair in zip(r.runs[::2], r.runs[1::2], strict=True))
        runs = tuple(number for pair in pairs for number in pair)
        for name in holds:
            self._end(name, f"converted {booking}", now)
        price = min(held, key=lambda r: r.runs[0]).price
        self.records[booking] = Record("L", "b", owner, price, now, 0, 0, "", runs)
        return Settled(Code.OK, runs, price)

    def extend(
        self, hold: str, *, owner: str, operation: str, more_ms: int, cap_ms: int, epoch: int, now: int
    ) -> tuple[Code, int]:
        record = self.records.get(hold)
        if epoch != self.epoch:
            return Code.FENCED, 0
        if record is None:
            return Code.UNKNOWN, 0
        if record.owner != owner:
            return Code.NOT_OWNER, 0
        if record.state != "L" or record.deadline <= now:
            return Code.EXPIRED, 0
        if record.note == operation:
            return Code.OK, record.deadline
        wanted = min(now + more_ms, record.taken + cap_ms)
        if wanted <= record.deadline:
            return Code.LIMIT, record.deadline
        self.records[hold] = replace(record, deadline=wanted, note=operation)
        self.index[hold] = wanted
        return Code.OK, wanted

    def sweep(self, most: int, *, now: int) -> list[Any]:
        before = self.states[:]
        due = sorted((score, name) for name, score in self.index.items() if score <= now)[:most]
        released: list[Any] = []
        forgotten = 0
        for _, name in due:
            record = self.records.get(name)
            if record is None:
                self.index[name] = now + KEEP_ENDED_MS
            elif record.state == "E":
                del self.records[name], self.index[name]
                forgotten += 1
            elif record.state == "L" and 0 < record.deadline <= now:
                self._move(record.runs, SeatState.AVAILABLE)
                self._end(name, "expired", now)
                released.append([name, record.owner, list(record.runs)])
            elif record.deadline:
                self.index[name] = record.deadline
            else:
                del self.index[name]
        self._note_change(before, now)
        return [released, forgotten, int(len(due) == most), len(self.index)]

    def _claim(self, claim: Claim, epoch: int, now: int) -> Outcome:
        if epoch != self.epoch:
            return Outcome(Code.FENCED)
        earlier = self.records.get(claim.id)
        if earlier is not None:
            if earlier.owner != claim.owner:
                return Outcome(Code.NOT_OWNER)
            if earlier.state != "E":
                return _answer(earlier)
            # A share of a party that could not be seated as a whole was never anybody's; its claim may come back.
            if earlier.note != "undone":
                return Outcome(Code.EXPIRED)
        if not self.on_sale:
            return Outcome(Code.CLOSED)
        if (claim.size if claim.seats is None else len(claim.seats)) > self.hall.limit:
            return Outcome(Code.LIMIT)
        code, how, runs = self._choose(claim) if claim.seats is None else self._pick(claim)
        if code is not Code.OK:
            return Outcome(code, runs=runs)
        deadline = now + claim.hold_ms if claim.kind is Kind.HOLD else 0
        self._move(runs, SeatState.RESERVED)
        record = Record("L", claim.kind.value, claim.owner, self.price, now, deadline, int(how), "", runs)
        self.records[claim.id] = record
        self.index.pop(claim.id, None)
        if deadline:
            self.index[claim.id] = deadline
        return _answer(record)

    def _choose(self, claim: Claim) -> tuple[Code, Rung, Runs]:
        choice = choose(self.shape, self.states, Party(claim.size, claim.accessible, claim.allow_partial))
        if isinstance(choice, Refusal):
            return Code(choice.value), Rung.NAMED, ()
        rung = RUNGS[choice.how]
        if rung > claim.worst and not (rung is Rung.PARTIAL and claim.worst is Rung.SPLIT):
            return Code.NO_BLOCK, Rung.NAMED, ()
        return Code.OK, rung, self.runs_of(choice.seats)

    def _pick(self, claim: Claim) -> tuple[Code, Rung, Runs]:
        assert claim.seats is not None
        seats = sorted(claim.seats)
        if seats[-1] >= self.seats:
            return Code.UNKNOWN, Rung.NAMED, ()
        if sum(seat in self.shape.accessible for seat in seats) > claim.accessible:
            return Code.KEPT, Rung.NAMED, ()
        free = [seat for seat in seats if self.states[seat] is SeatState.AVAILABLE]
        taken = [seat for seat in seats if self.states[seat] is not SeatState.AVAILABLE]
        if not free or (taken and not claim.allow_partial):
            return Code.TAKEN, Rung.NAMED, self.runs_of(taken)
        return Code.OK, Rung.PARTIAL if taken else Rung.NAMED, self.runs_of(free)

    def _settle(self, s: Settlement, epoch: int, now: int) -> Settled:
        record = self.records.get(s.id)
        if epoch != self.epoch:
            return Settled(Code.FENCED)
        if record is None:
            return Settled(Code.UNKNOWN)
        if record.owner != s.owner:
            return Settled(Code.NOT_OWNER)
        code, moved = {Verb.RELEASE: self._release, Verb.CONFIRM: self._confirm, Verb.REOPEN: self._reopen}[s.verb](
            s, record, now
        )
        return Settled(code, moved if code is Code.OK else (), record.price)

    def _release(self, s: Settlement, record: Record, now: int) -> tuple[Code, Runs]:
        if record.state == "S":
            return Code.SOLD, ()
        if record.state == "L":
            self._move(record.runs, SeatState.AVAILABLE)
            self._end(s.id, s.why, now)
        return Code.OK, record.runs

    def _confirm(self, s: Settlement, record: Record, now: int) -> tuple[Code, Runs]:
        if record.state == "E" or (record.state == "L" and 0 < record.deadline <= now):
            return Code.EXPIRED, ()
        if record.state == "L":
            self._move(record.runs, SeatState.SOLD)
            self.records[s.id] = replace(record, state="S", deadline=0)
            self.index.pop(s.id, None)
        return Code.OK, record.runs

    def _reopen(self, s: Settlement, record: Record, now: int) -> tuple[Code, Runs]:
        if record.state == "E":
            return (Code.OK if record.note == s.why else Code.EXPIRED), record.runs
        if record.state == "L":
            return Code.NOT_SOLD, ()
        asked = set(seats_of(record.runs)) if s.seats is None else set(s.seats)
        going = self.runs_of([seat for seat in seats_of(record.runs) if seat in asked])
        staying = self.runs_of([seat for seat in seats_of(record.runs) if seat not in asked])
        if s.seats is None:
            going = record.runs
        self._move(going, SeatState.AVAILABLE)
        if staying:
            self.records[s.id] = replace(record, runs=staying)
        else:
            self._end(s.id, s.why, now)
        return Code.OK, going

    def _move(self, runs: Runs, state: SeatState) -> None:
        for seat in seats_of(runs):
            self.states[seat] = state

    def _end(self, name: str, why: str, now: int) -> None:
        self.records[name] = replace(self.records[name], state="E", note=why)
        self.index[name] = now + KEEP_ENDED_MS

    def _note_change(self, before: list[SeatState], now: int) -> None:
        if self.states != before:
            self.version += 1
            self.updated_at = now

    def runs_of(self, seats: list[int] | tuple[int, ...]) -> Runs:
        """Neighbours in one row make one run."""
        runs: list[int] = []
        for seat in seats:
            if runs and runs[-2] + runs[-1] == seat and seat % self.shape.seats_per_row:
                runs[-1] += 1
            else:
                runs += [seat, 1]
        return tuple(runs)


def _answer(record: Record) -> Outcome:
    return Outcome(Code.OK, Rung(record.how), record.deadline, record.price, record.taken, record.runs)


def _free_by_row(shape: Subsection, states: list[SeatState]) -> dict[int, int]:
    width = shape.seats_per_row
    return {row: states[(row - 1) * width : row * width].count(SeatState.AVAILABLE) for row in range(1, shape.rows + 1)}


def _text(value: bytes) -> str:
    # Walls are bytes, not text; latin-1 keeps each as one character.
    return value.decode("latin-1")
