"""What the store has of one pool at one moment, and whether it agrees with itself. Pure; it never repairs anything.

`aisle verify` and the tests call `findings`: held is the sum of the live records, sold that of the sold ones, the index
names exactly the live holds and the ended records, and a buyer's pointer names a live hold of that buyer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

COUNTERS = ("capacity", "held", "sold", "price", "limit", "version", "updated_at")


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """One line of pool_holds: `state|kind|owner|price|taken|deadline|how|note|quantity`."""

    state: str
    kind: str
    owner: str
    price: int
    taken_ms: int
    deadline_ms: int
    note: str
    quantity: int

    @classmethod
    def parse(cls, text: str) -> "PoolRecord":
        state, kind, owner, price, taken, deadline, _, note, quantity = text.split("|")
        if state not in "LSE" or kind not in "bh":
            raise ValueError(f"{text!r} has no known state or kind")
        return cls(state, kind, owner, int(price), int(taken), int(deadline), note, int(quantity))

    def line(self) -> str:
        times = f"{self.taken_ms}|{self.deadline_ms}"
        return f"{self.state}|{self.kind}|{self.owner}|{self.price}|{times}|0|{self.note}|{self.quantity}"


@dataclass(frozen=True, slots=True)
class PoolPicture:
    now_ms: int
    pool: dict[str, str]
    records: dict[str, str]
    pointers: dict[str, str]
    index: dict[str, int]


def picture_of(now_ms: int, pool: Sequence[bytes], holds: Sequence[bytes], index: Sequence[bytes]) -> PoolPicture:
    """From the flat lists of pool_snapshot.lua."""
    fields = _pairs(holds)
    return PoolPicture(
        now_ms,
        dict(_pairs(pool)),
        {field: value for field, value in fields if not field.startswith("@")},
        {field[1:]: value for field, value in fields if field.startswith("@")},
        {member: int(float(score)) for member, score in _pairs(index)},
    )


def findings(picture: PoolPicture) -> list[str]:
    """One line for each disagreement; empty when all is well."""
    records, unreadable = _readable(picture)
    return [
        *unreadable,
        *_wrong_counters(picture, records),
        *_wrong_index(picture, records),
        *_wrong_pointers(picture, records),
    ]


def _readable(picture: PoolPicture) -> tuple[dict[str, PoolRecord], list[str]]:
    records, unreadable = {}, []
    for claim, text in picture.records.items():
        try:
            records[claim] = PoolRecord.parse(text)
        except ValueError:
            unreadable.append(f"the record of {claim} cannot be read: {text!r}")
    return records, unreadable


def _wrong_counters(picture: PoolPicture, records: dict[str, PoolRecord]) -> Iterator[str]:
    wrong = [name for name in COUNTERS if not picture.pool.get(name, "").isdecimal()]
    yield from (f"{name} is {picture.pool.get(name)!r}, not a whole number" for name in wrong)
    if wrong:
        return
    capacity, held, sold = (int(picture.pool[name]) for name in ("capacity", "held", "sold"))
    for name, count, state in (("held", held, "L"), ("sold", sold, "S")):
        total = sum(record.quantity for record in records.values() if record.state == state)
        if count != total:
            yield f"{name} is {count}, but the records have {total}"
    if held + sold > capacity:
        yield f"{held} held and {sold} sold are more than the capacity {capacity}"


def _wrong_index(picture: PoolPicture, records: dict[str, PoolRecord]) -> Iterator[str]:
    for claim, record in records.items():
        is_hold = record.state == "L" and record.kind == "h"
        if is_hold and picture.index.get(claim) != record.deadline_ms:
            yield f"the hold {claim} ends at {record.deadline_ms}, the index says {picture.index.get(claim)}"
        if record.state == "E" and claim not in picture.index:
            yield f"{claim} has ended and nothing will forget it"
        if not is_hold and record.state != "E" and claim in picture.index:
            yield f"{claim} has no deadline here and is in the index"
    yield from (f"the index names {claim}, which has no record" for claim in picture.index.keys() - picture.records)


def _wrong_pointers(picture: PoolPicture, records: dict[str, PoolRecord]) -> Iterator[str]:
    one_per_buyer = picture.pool.get("one_per_buyer") == "1"
    if picture.pointers and not one_per_buyer:
        yield "buyers have pointers, though the pool does not ask for one hold a buyer"
    for owner, claim in picture.pointers.items():
        record = records.get(claim)
        if record is None or (record.state, record.kind, record.owner) != ("L", "h", owner):
            yield f"{owner} is said to have the hold {claim}, which is not a live hold of theirs"
    for claim, record in records.items():
        # A buyer may hold again once the deadline has passed; the old hold then waits for a sweep without a pointer.
        is_running = record.state == "L" and record.kind == "h" and picture.now_ms < record.deadline_ms
        if one_per_buyer and is_running and picture.pointers.get(record.owner) != claim:
            yield f"{record.owner} has the live hold {claim}, but no pointer says so"


def _pairs(flat: Sequence[bytes]) -> list[tuple[str, str]]:
    texts = [item.decode() for item in flat]
    return list(zip(texts[::2], texts[1::2], strict=True))
