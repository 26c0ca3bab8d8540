"""What a pool is to look like after a rebuild: the facts, and what the store alone knows and may keep. Pure.

Bookings come from the facts. Live holds stay, oldest first, as long as there are places for them. Every other record of
the old state ends here or has ended: it is kept for a day, so that a repeated claim is told `expired`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aisle.reservation.pool_facts import PoolFacts
from aisle.reservation.pool_picture import PoolRecord
from aisle.reservation.restored import KEEP_ENDED_MS


@dataclass(slots=True)
class RestoredPool:
    records: dict[str, PoolRecord] = field(default_factory=dict)
    pointers: dict[str, str] = field(default_factory=dict)
    index: dict[str, int] = field(default_factory=dict)
    held: int = 0
    sold: int = 0
    holds_kept: int = 0
    holds_dropped: list[str] = field(default_factory=list)
    bookings_dropped: list[str] = field(default_factory=list)

    def give(self, identifier: str, record: PoolRecord) -> None:
        self.records[identifier] = record
        if record.state == "S":
            self.sold += record.quantity
        else:
            self.held += record.quantity


def restore_pool(facts: PoolFacts, old: Mapping[str, PoolRecord], *, now_ms: int, drop_holds: bool) -> RestoredPool:
    new = RestoredPool()
    for claim in facts.claims:
        known = old.get(claim.id)
        record = PoolRecord(
            state="S" if claim.sold else "L",
            kind="b",
            owner=claim.owner,
            price=claim.price,
            taken_ms=claim.taken_ms or (known.taken_ms if known else now_ms),
            deadline_ms=0,
            # A sold booking's note lists its part refunds, which may be asked for again.
            note=known.note if known and known.state == "S" and claim.sold else "",
            quantity=claim.quantity,
        )
        new.give(claim.id, record)
    for identifier, record in sorted(old.items(), key=lambda item: item[1].taken_ms):
        if identifier not in new.records:
            _keep_or_end(new, facts, identifier, record, now_ms=now_ms, drop_holds=drop_holds)
    return new


def _keep_or_end(
    new: RestoredPool, facts: PoolFacts, identifier: str, record: PoolRecord, *, now_ms: int, drop_holds: bool
) -> None:
    if record.state == "E":
        _end(new, identifier, record, record.note, now_ms)
    elif record.state == "S" or record.kind == "b":
        new.bookings_dropped.append(identifier)
        _end(new, identifier, record, "rebuilt", now_ms)
    elif record.deadline_ms <= now_ms:
        _end(new, identifier, record, "expired", now_ms)
    elif drop_holds or not _fits(new, facts, record):
        new.holds_dropped.append(identifier)
        _end(new, identifier, record, "rebuilt", now_ms)
    else:
        new.holds_kept += 1
        new.give(identifier, record)
        new.index[identifier] = record.deadline_ms
        if facts.pool.one_per_buyer:
            new.pointers[record.owner] = identifier


def _fits(new: RestoredPool, facts: PoolFacts, record: PoolRecord) -> bool:
    if facts.pool.one_per_buyer and record.owner in new.pointers:
        return False
    return record.quantity > 0 and new.held + new.sold + record.quantity <= facts.pool.capacity


def _end(new: RestoredPool, identifier: str, record: PoolRecord, note: str, now_ms: int) -> None:
    new.records[identifier] = replace(record, state="E", note=note)
    new.index[identifier] = now_ms + KEEP_ENDED_MS
