"""What is durably known of an event's seats: the store is rebuilt from it and verified against it.

Plain values that check themselves. PostgreSQL rows will fill them; until then a JSON file does, such as `aisle inspect
facts` writes. Holds are no facts: they live in the store alone.

    {"event": 1, "subsections": [{"place": "1:A-1", "rank": 0, "epoch": 3, "rows": 25, "seats_per_row": 20,
      "price": 3000, "limit": 10, "blocked": ["1-1"], "accessible": ["25-1"], "claims": [{"id": "b-1",
      "owner": "buyer-7", "state": "sold", "price": 3000, "taken_ms": 1760000000000, "how": 1,
      "seats": ["5-10", "5-11"]}]}], "pools": [{"place": "1:GA", "epoch": 3, "capacity": 500, "price": 1000,
      "limit": 10, "one_per_buyer": false, "claims": [{"id": "b-2", "owner": "buyer-8", "state": "reserved",
      "price": 1000, "quantity": 2}]}]}
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from aisle.reservation.inventory import Hall
from aisle.reservation.keys import IDENTIFIER, BadName, Place
from aisle.reservation.pool import CAPACITY_MAX, LIMIT_MAX, Pool, PoolPlace
from aisle.reservation.pool_facts import BadPoolFacts, PoolClaimFact, PoolFacts
from aisle.reservation.subsection import BadSeat, BadSubsection, Subsection

PRICE_MAX = 10**12


class BadFacts(ValueError):
    """Facts that contradict themselves; nothing can be rebuilt from them."""


@dataclass(frozen=True, slots=True)
class ClaimFact:
    """A booking that has seats: reserved (waiting for payment) or sold. `seats` are indexes, ascending."""

    id: str
    owner: str
    sold: bool
    price: int
    seats: tuple[int, ...]
    taken_ms: int = 0
    how: int = 0


@dataclass(frozen=True, slots=True)
class HallFacts:
    """A subsection with the bookings in it. `epoch` is the last one known outside the store, 0 if none is."""

    hall: Hall
    claims: tuple[ClaimFact, ...] = ()
    epoch: int = 0

    def __post_init__(self) -> None:
        _check_hall(self.hall)
        taken: dict[int, str] = dict.fromkeys(self.hall.blocked, "a blocked seat")
        if len({claim.id for claim in self.claims}) != len(self.claims):
            raise BadFacts(f"{self.hall.place}: two bookings have the same id")
        for claim in self.claims:
            if not (IDENTIFIER.fullmatch(claim.id) and IDENTIFIER.fullmatch(claim.owner) and claim.seats):
                raise BadFacts(f"{self.hall.place}: booking {claim.id[:40]!r} lacks a proper id, owner or seat")
            for seat in claim.seats:
                if not 0 <= seat < self.hall.shape.seats:
                    raise BadFacts(f"{self.hall.place}: booking {claim.id} has seat {seat}, which does not exist")
                if seat in taken:
                    name = self.hall.shape.name(seat)
                    raise BadFacts(f"{self.hall.place}: seat {name} of booking {claim.id} is also {taken[seat]}")
                taken[seat] = f"of booking {claim.id}"


@dataclass(frozen=True, slots=True)
class EventFacts:
    event: int
    halls: tuple[HallFacts, ...]
    pools: tuple[PoolFacts, ...] = ()

    def __post_init__(self) -> None:
        places = [facts.hall.place for facts in self.halls]
        if any(place.event != self.event for place in places) or len(set(places)) != len(places):
            raise BadFacts(f"a subsection is named twice, or is not one of event {self.event}")
        pools = [facts.pool.place for facts in self.pools]
        if any(place.event != self.event for place in pools) or len(set(pools)) != len(pools):
            raise BadFacts(f"a pool is named twice, or is not one of event {self.event}")

    def of_any_epoch(self) -> "EventFacts":
        """The same for a comparison in which the store may be ahead."""
        return EventFacts(
            self.event,
            tuple(dataclasses.replace(known, epoch=0) for known in self.halls),
            tuple(dataclasses.replace(known, epoch=0) for known in self.pools),
        )


def facts_from_json(text: bytes) -> EventFacts:
    """Raises BadFacts with one sentence."""
    try:
        file = msgspec.json.decode(text, type=_File)
        halls = tuple(_hall_facts(subsection) for subsection in file.subsections)
        return EventFacts(file.event, halls, tuple(_pool_facts(pool) for pool in file.pools))
    except (msgspec.DecodeError, BadName, BadSeat, BadSubsection, BadPoolFacts) as error:
        raise BadFacts(str(error)) from None


def facts_to_json(facts: EventFacts) -> bytes:
    file = _File(facts.event, [_subsection(known) for known in facts.halls], [_pool(known) for known in facts.pools])
    return msgspec.json.encode(file)


Count = Annotated[int, Meta(ge=0, lt=10**15)]


class _Claim(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    owner: str
    state: Literal["reserved", "sold"]
    price: Annotated[int, Meta(ge=0, lt=PRICE_MAX)]
    seats: list[str]
    taken_ms: Count = 0
    how: Annotated[int, Meta(ge=0, le=4)] = 0


class _Subsection(msgspec.Struct, forbid_unknown_fields=True):
    place: str
    rows: int
    seats_per_row: int
    price: int
    limit: int
    rank: int = 0
    epoch: Count = 0
    blocked: list[str] = []
    accessible: list[str] = []
    claims: list[_Claim] = []


class _PoolClaim(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    owner: str
    state: Literal["reserved", "sold"]
    price: Annotated[int, Meta(ge=0, lt=PRICE_MAX)]
    quantity: Annotated[int, Meta(ge=1, le=CAPACITY_MAX)]
    taken_ms: Count = 0


class _Pool(msgspec.Struct, forbid_unknown_fields=True):
    place: str
    capacity: Annotated[int, Meta(ge=1, le=CAPACITY_MAX)]
    price: Annotated[int, Meta(ge=0, lt=PRICE_MAX)]
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX)]
    one_per_buyer: bool = False
    epoch: Count = 0
    claims: list[_PoolClaim] = []


class _File(msgspec.Struct, forbid_unknown_fields=True):
    event: int
    subsections: list[_Subsection]
    pools: list[_Pool] = []


def _check_hall(hall: Hall) -> None:
    for seat in hall.blocked:
        if not 0 <= seat < hall.shape.seats:
            raise BadFacts(f"{hall.place}: blocked seat {seat} does not exist")
    if not 1 <= hall.limit <= hall.shape.seats:
        raise BadFacts(f"{hall.place}: a claim may take 1 to {hall.shape.seats} seats, not {hall.limit}")
    if not 0 <= hall.price < PRICE_MAX:
        raise BadFacts(f"{hall.place}: the price is a whole number of minor units, not {hall.price}")


def _hall_facts(found: _Subsection) -> HallFacts:
    bare = Subsection(found.rows, found.seats_per_row)
    shape = Subsection(found.rows, found.seats_per_row, frozenset(map(bare.named, found.accessible)))
    blocked = frozenset(map(bare.named, found.blocked))
    hall = Hall(Place.parse(found.place), shape, found.price, found.limit, found.rank, blocked)
    claims = tuple(
        ClaimFact(
            claim.id, claim.owner, claim.state == "sold", claim.price, tuple(sorted(map(bare.named, claim.seats))),
            claim.taken_ms, claim.how,
        )
        for claim in found.claims
    )  # fmt: skip
    return HallFacts(hall, claims, found.epoch)


def _subsection(facts: HallFacts) -> _Subsection:
    hall, name = facts.hall, facts.hall.shape.name
    return _Subsection(
        place=str(hall.place),
        rows=hall.shape.rows,
        seats_per_row=hall.shape.seats_per_row,
        price=hall.price,
        limit=hall.limit,
        rank=hall.rank,
        epoch=facts.epoch,
        blocked=[name(seat) for seat in sorted(hall.blocked)],
        accessible=[name(seat) for seat in sorted(hall.shape.accessible)],
        claims=[
            _Claim(
                id=claim.id,
                owner=claim.owner,
                state="sold" if claim.sold else "reserved",
                price=claim.price,
                seats=[name(seat) for seat in claim.seats],
                taken_ms=claim.taken_ms,
                how=claim.how,
            )
            for claim in facts.claims
        ],
    )


def _pool_facts(found: _Pool) -> PoolFacts:
    claims = tuple(
        PoolClaimFact(c.id, c.owner, c.state == "sold", c.price, c.quantity, c.taken_ms) for c in found.claims
    )
    place = PoolPlace.parse(found.place)
    return PoolFacts(Pool(place, found.capacity, found.price, found.limit, found.one_per_buyer), claims, found.epoch)


def _pool(facts: PoolFacts) -> _Pool:
    pool = facts.pool
    claims = [
        _PoolClaim(c.id, c.owner, "sold" if c.sold else "reserved", c.price, c.quantity, c.taken_ms)
        for c in facts.claims
    ]
    return _Pool(str(pool.place), pool.capacity, pool.price, pool.limit, pool.one_per_buyer, facts.epoch, claims)
