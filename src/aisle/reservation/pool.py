"""Pools: places that are counted, not numbered. General admission, and sessions with capacity.

What is asked of a pool and what it answers: pure values, a refusal has a stable code. `pools` is the edge that sends
them. `Take` and `PoolSettlement` check themselves, so that nothing malformed reaches a script.

    pool:{1:GA}        hash  epoch, state, capacity, held, sold, ...; free places are capacity - held - sold
    pool_holds:{1:GA}  hash  id -> record, @buyer -> id of the one live hold
    locks:exp:{1:GA}   zset  id -> deadline of a live hold, or when an ended record may be forgotten
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from aisle.reservation.claims import Code, Kind, Verb
from aisle.reservation.keys import IDENTIFIER, PART, BadName

CAPACITY_MAX = 1_000_000
LIMIT_MAX = 1_000
HOLD_MS_MAX = 86_400_000

MEMBER = re.compile(r"(\d{1,18}):([A-Za-z0-9_]{1,32})")


@dataclass(frozen=True, slots=True, order=True)
class PoolPlace:
    """A pool of an event. PoolPlace(1, "GA") is written 1:GA; a subsection such as 1:A-1 always has a dash."""

    event: int
    name: str

    def __post_init__(self) -> None:
        if not (isinstance(self.event, int) and 0 < self.event < 10**18):
            raise BadName(f"an event is a positive number, not {self.event!r}")
        if not (isinstance(self.name, str) and PART.fullmatch(self.name)):
            raise BadName(f"a pool is 1 to 32 letters, digits or underscores, not {self.name!r}")

    def __str__(self) -> str:
        return f"{self.event}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "PoolPlace":
        match = MEMBER.fullmatch(text)
        if match is None:
            raise BadName(f"{text[:40]!r} is not a pool such as '1:GA'")
        return cls(int(match[1]), match[2])


@lru_cache(maxsize=50_000)
def pool_keys(prefix: str, place: PoolPlace) -> tuple[str, str, str]:
    """KEYS of every script of a pool, in the order they are declared; one hash tag, so one slot of a cluster."""
    return f"{prefix}pool:{{{place}}}", f"{prefix}pool_holds:{{{place}}}", f"{prefix}locks:exp:{{{place}}}"


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool as it is opened. `limit` is how many places one claim may take."""

    place: PoolPlace
    capacity: int
    price: int
    limit: int
    one_per_buyer: bool = False

    def __post_init__(self) -> None:
        if not is_whole(self.capacity, 1, CAPACITY_MAX):
            raise ValueError(f"{self.place}: a pool has 1 to {CAPACITY_MAX} places, not {self.capacity!r}")
        if not is_whole(self.limit, 1, LIMIT_MAX):
            raise ValueError(f"{self.place}: a claim may take 1 to {LIMIT_MAX} places, not {self.limit!r}")
        check_price(self.place, self.price)


class PoolStatus(msgspec.Struct, frozen=True):
    """Counts of one pool. `version` grows with every change of them."""

    place: PoolPlace
    capacity: int
    held: int
    sold: int
    version: int

    @property
    def available(self) -> int:
        return self.capacity - self.held - self.sold


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """Places for one booking or hold. `id` makes it repeatable; with `allow_partial` fewer than `quantity` will do.

    A hold lasts `hold_ms` from now, or `until_ms` by the store's clock, which several holds can share.
    """

    id: str
    owner: str
    quantity: int
    kind: Kind = Kind.BOOKING
    allow_partial: bool = False
    hold_ms: int = 0
    until_ms: int = 0

    def check(self) -> str:
        if fault := _check_identifiers(self.id, self.owner):
            return fault
        if not is_whole(self.quantity, 1, LIMIT_MAX):
            return f"a claim takes 1 to {LIMIT_MAX} places, not {self.quantity!r}"
        if not is_whole(self.until_ms, 0, 10**14):
            return f"{self.until_ms!r} is not a moment in ms"
        if self.kind is Kind.HOLD and not self.until_ms and not is_whole(self.hold_ms, 1, HOLD_MS_MAX):
            return f"a hold lasts 1 ms to 24 h, not {self.hold_ms!r} ms"
        return ""

    def packed(self) -> list[object]:
        kind, partial = self.kind.value, int(self.allow_partial)
        return [self.id, self.owner, kind, self.quantity, partial, self.hold_ms, self.until_ms]


class Taken(msgspec.Struct, frozen=True, array_like=True):
    """Answer to a take. `quantity` is what the claim has now; a booking's `deadline_ms` is 0, PostgreSQL owns it."""

    code: Code
    quantity: int = 0
    deadline_ms: int = 0
    price: int = 0
    taken_ms: int = 0
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.code is Code.OK


class PoolSettlement(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a claim. A refund may take back a part; its `operation` id then makes it repeatable."""

    verb: Verb
    id: str
    owner: str
    why: str = "released"
    quantity: int | None = None
    operation: str = ""

    def check(self) -> str:
        if fault := _check_identifiers(self.id, self.owner, self.why):
            return fault
        if self.quantity is None:
            return "an operation id belongs to the refund of a part" if self.operation else ""
        if self.verb is not Verb.REOPEN:
            return "only a refund can take back a part of the places"
        if not is_whole(self.quantity, 1, CAPACITY_MAX):
            return f"a part is 1 to {CAPACITY_MAX} places, not {self.quantity!r}"
        return _check_identifiers(self.operation)

    def packed(self) -> list[object]:
        return [self.verb.value, self.id, self.owner, self.why, self.operation, self.quantity]


class PoolSettled(msgspec.Struct, frozen=True, array_like=True):
    """Answer to a settlement or a conversion: how many places it moved, now or when it was first asked."""

    code: Code
    quantity: int = 0
    price: int = 0
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.code is Code.OK


def check_price(place: PoolPlace, price: int) -> None:
    if not is_whole(price, 0, 10**12 - 1):
        raise ValueError(f"{place}: the price is a whole number of minor units, not {price!r}")


def is_whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _check_identifiers(*values: str) -> str:
    for value in values:
        if not (isinstance(value, str) and IDENTIFIER.fullmatch(value)):
            return f"{value!r} is not 1 to 64 letters, digits, '-' or '_'"
    return ""
