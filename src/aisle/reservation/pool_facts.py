"""What is durably known of a pool: the store is rebuilt from it and verified against it. Pure.

Bookings are facts, with how many places each has; holds live in the store alone. `differences` are what `aisle verify`
reports beside a pool's disagreements with itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aisle.reservation.keys import IDENTIFIER
from aisle.reservation.pool import Pool
from aisle.reservation.pool_picture import PoolPicture, PoolRecord


class BadPoolFacts(ValueError):
    """Facts that contradict themselves; nothing can be rebuilt from them."""


@dataclass(frozen=True, slots=True)
class PoolClaimFact:
    """A booking that has places of a pool: reserved (waiting for payment) or sold."""

    id: str
    owner: str
    sold: bool
    price: int
    quantity: int
    taken_ms: int = 0


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """A pool with the bookings in it. `epoch` is the last one known outside the store, 0 if none is."""

    pool: Pool
    claims: tuple[PoolClaimFact, ...] = ()
    epoch: int = 0

    def __post_init__(self) -> None:
        place = self.pool.place
        if len({claim.id for claim in self.claims}) != len(self.claims):
            raise BadPoolFacts(f"{place}: two bookings have the same id")
        for claim in self.claims:
            if not (IDENTIFIER.fullmatch(claim.id) and IDENTIFIER.fullmatch(claim.owner) and claim.quantity > 0):
                raise BadPoolFacts(f"{place}: booking {claim.id[:40]!r} lacks a proper id, owner or place")
        taken = sum(claim.quantity for claim in self.claims)
        if taken > self.pool.capacity:
            raise BadPoolFacts(f"{place}: bookings have {taken} of {self.pool.capacity} places")


def differences(picture: PoolPicture, facts: PoolFacts) -> Iterator[str]:
    """Where the store and the facts differ, one line each."""
    pool = facts.pool
    for name, known in (
        ("epoch", facts.epoch or picture.pool.get("epoch")),
        ("capacity", pool.capacity),
        ("price", pool.price),
        ("limit", pool.limit),
        ("one_per_buyer", int(pool.one_per_buyer)),
    ):
        if picture.pool.get(name) != str(known):
            yield f"{name}: {picture.pool.get(name)} in the store, {known} in fact"
    records = dict(readable_records(picture))
    claims = {claim.id: claim for claim in facts.claims}
    for identifier, claim in claims.items():
        if fault := _claim_fault(claim, records.get(identifier)):
            yield f"booking {identifier} is {'sold' if claim.sold else 'reserved'} in fact and {fault}"
    for identifier, record in records.items():
        is_hold = record.state == "L" and record.kind == "h"
        if not is_hold and record.state != "E" and identifier not in claims:
            yield f"booking {identifier} has {record.quantity} places in the store and none in fact"


def readable_records(picture: PoolPicture) -> Iterator[tuple[str, PoolRecord]]:
    for identifier, text in picture.records.items():
        try:
            yield identifier, PoolRecord.parse(text)
        except ValueError:
            continue


def _claim_fault(claim: PoolClaimFact, record: PoolRecord | None) -> str:
    if record is None:
        return "unknown in the store"
    if record.state != ("S" if claim.sold else "L"):
        return f"in state {record.state} in the store"
    if (record.owner, record.price, record.quantity) != (claim.owner, claim.price, claim.quantity):
        stored = f"{record.owner}'s, {record.quantity} at {record.price} in the store"
        return f"is {stored}, not {claim.owner}'s, {claim.quantity} at {claim.price}"
    return ""
