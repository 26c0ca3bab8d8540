"""One pool as plain Python: what the scripts must do, and what the store must then hold. The oracle of the pool tests.

Nothing here shares code with the Lua. Counters are sums over the entries, and who holds already is found by looking at
all of them. Time is what the test writes: a hold is overdue, or an ended entry forgettable, once it has a `due` number.
"""

from dataclasses import dataclass, field

from aisle.reservation.claims import Code, Kind, Verb
from aisle.reservation.pool import PoolSettlement, Take

Answer = tuple[Code, int]


@dataclass
class Entry:
    state: str
    kind: Kind
    owner: str
    price: int
    quantity: int
    taken_ms: int = 0
    deadline_ms: int = 0
    note: str = ""
    refunds: dict[str, int] = field(default_factory=dict)
    due: int | None = None

    @property
    def is_live_hold(self) -> bool:
        return self.state == "L" and self.kind is Kind.HOLD

    @property
    def is_running(self) -> bool:
        return self.is_live_hold and self.due is None

    @property
    def is_overdue(self) -> bool:
        return self.is_live_hold and self.due is not None

    @property
    def written_note(self) -> str:
        return self.note + "".join(f" {operation}+{quantity}" for operation, quantity in self.refunds.items())

    def end(self, why: str) -> None:
        self.state, self.note, self.due = "E", why, None


@dataclass
class PoolModel:
    capacity: int
    price: int
    limit: int
    one_per_buyer: bool
    on_sale: bool = False
    entries: dict[str, Entry] = field(default_factory=dict)

    @property
    def held(self) -> int:
        return sum(entry.quantity for entry in self.entries.values() if entry.state == "L")

    @property
    def sold(self) -> int:
        return sum(entry.quantity for entry in self.entries.values() if entry.state == "S")

    @property
    def running(self) -> dict[str, str]:
        """Where the pool grants one hold a buyer: who has which."""
        if not self.one_per_buyer:
            return {}
        return {entry.owner: claim for claim, entry in self.entries.items() if entry.is_running}

    def take(self, take: Take) -> Answer:
        known = self.entries.get(take.id)
        if known is not None:
            if known.owner != take.owner:
                return Code.NOT_OWNER, 0
            return (Code.EXPIRED, 0) if known.state == "E" or known.is_overdue else (Code.OK, known.quantity)
        free = self.capacity - self.held - self.sold
        if not self.on_sale:
            return Code.CLOSED, 0
        if take.quantity > self.limit:
            return Code.LIMIT, 0
        if take.kind is Kind.HOLD and take.owner in self.running:
            return Code.ALREADY_HOLDING, 0
        if free == 0:
            return Code.FULL, 0
        if free < take.quantity and not take.allow_partial:
            return Code.NO_BLOCK, 0
        quantity = min(free, take.quantity)
        self.entries[take.id] = Entry("L", take.kind, take.owner, self.price, quantity)
        return Code.OK, quantity

    def settle(self, settlement: PoolSettlement) -> Answer:
        entry = self.entries.get(settlement.id)
        if entry is None:
            return Code.UNKNOWN, 0
        if entry.owner != settlement.owner:
            return Code.NOT_OWNER, 0
        match settlement.verb:
            case Verb.RELEASE:
                return self._release(entry, settlement.why)
            case Verb.CONFIRM:
                return self._confirm(entry)
            case Verb.REOPEN if settlement.quantity is None:
                return self._reopen(entry, settlement.why)
            case Verb.REOPEN:
                return self._reopen_part(entry, settlement)

    def _release(self, entry: Entry, why: str) -> Answer:
        if entry.state == "S":
            return Code.SOLD, 0
        if entry.state == "E":
            return Code.OK, 0 if entry.note.startswith("converted ") else entry.quantity
        entry.end(why)
        return Code.OK, entry.quantity

    def _confirm(self, entry: Entry) -> Answer:
        if entry.state == "E" or entry.is_overdue:
            return Code.EXPIRED, 0
        if entry.state == "L":
            entry.state, entry.deadline_ms, entry.note = "S", 0, ""
        return Code.OK, entry.quantity

    def _reopen(self, entry: Entry, why: str) -> Answer:
        if entry.state == "E":
            return (Code.OK, entry.quantity) if entry.note == why else (Code.EXPIRED, 0)
        if entry.state == "L":
            return Code.NOT_SOLD, 0
        entry.end(why)
        return Code.OK, entry.quantity

    def _reopen_part(self, entry: Entry, settlement: PoolSettlement) -> Answer:
        part = settlement.quantity
        assert part is not None
        if settlement.operation in entry.refunds:
            return Code.OK, entry.refunds[settlement.operation]
        if entry.state == "E":
            return Code.EXPIRED, 0
        if entry.state == "L" or part > entry.quantity:
            return Code.NOT_SOLD, 0
        entry.refunds[settlement.operation] = part
        if part == entry.quantity:
            entry.end(settlement.why)
        else:
            entry.quantity -= part
        return Code.OK, part

    def convert(self, holds: list[str], booking: str, owner: str) -> Answer:
        named = [self.entries.get(hold) for hold in holds]
        done = self.entries.get(booking)
        if done is not None:
            if done.owner != owner:
                return Code.NOT_OWNER, 0
            if done.kind is Kind.HOLD or any(entry is not None and entry.state == "L" for entry in named):
                return Code.TAKEN, 0
            return (Code.EXPIRED, 0) if done.state == "E" else (Code.OK, done.quantity)
        for entry in named:
            if entry is None or entry.kind is Kind.BOOKING:
                return Code.UNKNOWN, 0
            if entry.owner != owner:
                return Code.NOT_OWNER, 0
            if not entry.is_running:
                return Code.EXPIRED, 0
        converted = [entry for entry in named if entry is not None]
        total = sum(entry.quantity for entry in converted)
        for entry in converted:
            entry.end(f"converted {booking}")
        self.entries[booking] = Entry("L", Kind.BOOKING, owner, converted[-1].price, total)
        return Code.OK, total

    def extend(self, hold: str, owner: str, operation: str, cap_ms: int) -> tuple[Code, int]:
        """For an extension that asks for more than the cap grants: the deadline it ends at."""
        entry = self.entries.get(hold)
        if entry is None:
            return Code.UNKNOWN, 0
        if entry.owner != owner:
            return Code.NOT_OWNER, 0
        if not entry.is_running:
            return Code.EXPIRED, 0
        if entry.note == operation:
            return Code.OK, entry.deadline_ms
        if entry.taken_ms + cap_ms <= entry.deadline_ms:
            return Code.LIMIT, entry.deadline_ms
        entry.deadline_ms, entry.note = entry.taken_ms + cap_ms, operation
        return Code.OK, entry.deadline_ms

    def resize(self, was: int, capacity: int) -> tuple[Code, int]:
        if self.capacity == capacity:
            return Code.OK, capacity
        if self.capacity != was:
            return Code.FENCED, self.capacity
        if self.held + self.sold > capacity:
            return Code.TAKEN, self.capacity
        self.capacity = capacity
        return Code.OK, capacity

    def sweep(self, at_most: int) -> tuple[list[tuple[str, str, int]], int]:
        """What is released, in the order it became due, and how many entries are forgotten."""
        due = sorted((entry.due, claim) for claim, entry in self.entries.items() if entry.due is not None)[:at_most]
        released, forgotten = [], 0
        for _, claim in due:
            entry = self.entries[claim]
            if entry.state == "E":
                del self.entries[claim]
                forgotten += 1
            else:
                entry.end("expired")
                released.append((claim, entry.owner, entry.quantity))
        return released, forgotten
