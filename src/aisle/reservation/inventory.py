"""Seats in the hot store: the only code that touches their keys. One call is one round trip, however long its lists.

Each method runs a script that decides and acts in one step, so any number of processes may call it for the same seats.
What a script refuses comes back as a value. A call whose outcome is unknown is repeated under the same ids.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from aisle.errors import StoreScriptFailed
from aisle.reservation.claims import Claim, Code, Outcome, Settled, Settlement
from aisle.reservation.generation import Gate
from aisle.reservation.keys import Place, check_identifier, event_sections, subsection_keys
from aisle.reservation.subsection import SeatState, Subsection, pack, shift
from aisle.scripts import load_script
from aisle.store import Store

OPEN, SWITCH, CLAIM, SETTLE, CONVERT, EXTEND, SWEEP = (
    load_script("aisle.reservation", name)
    for name in ("open", "switch", "claim", "settle", "convert", "extend", "sweep")
)

_pack = msgspec.msgpack.Encoder().encode
_outcomes = msgspec.msgpack.Decoder(list[Outcome]).decode
_settled_list = msgspec.msgpack.Decoder(list[Settled]).decode
_settled = msgspec.msgpack.Decoder(Settled).decode


@dataclass(frozen=True, slots=True)
class Hall:
    """One subsection as it is opened: its shape, what is blocked, its price and how many seats one claim may take."""

    place: Place
    shape: Subsection
    price: int
    limit: int
    rank: int = 0
    blocked: frozenset[int] = frozenset()


class Claims(NamedTuple):
    """A batch for one subsection."""

    place: Place
    epoch: int
    claims: Sequence[Claim]


class Inventory:
    def __init__(self, store: Store, gate: Gate | None = None) -> None:
        self._store = store
        self._gate = gate
        self._prefix = store.prefix

    def keys(self, place: Place) -> tuple[str, ...]:
        return subsection_keys(self._prefix, place)

    async def open(self, halls: Sequence[Hall], *, epoch: int) -> None:
        """Create subsections, closed. Repeating is safe; another configuration under the same name is refused."""
        replies = await self._store.run_many(OPEN, [(self.keys(hall.place), _opening(hall, epoch)) for hall in halls])
        for hall, reply in zip(halls, replies, strict=True):
            if isinstance(reply, StoreScriptFailed):
                raise reply
            if reply == -1:
                raise ValueError(f"{hall.place} exists with another configuration")
        by_event: dict[int, list[Hall]] = {}
        for hall in halls:
            by_event.setdefault(hall.place.event, []).append(hall)
        for event, members in by_event.items():
            ranked = [item for hall in members for item in (hall.rank, str(hall.place))]
            await self._store.call("ZADD", event_sections(self._prefix, event), *ranked)

    async def switch(self, places: Sequence[Place], *, epoch: int, on_sale: bool, price: int | None = None) -> None:
        """Put subsections on sale or take them off; a new price holds for claims made from now on."""
        if price is not None:
            _check_price(price)
        args = (epoch, "open" if on_sale else "closed", "" if price is None else price)
        replies = await self._store.run_many(SWITCH, [((self.keys(place)[1],), args) for place in places])
        for place, reply in zip(places, replies, strict=True):
            if isinstance(reply, StoreScriptFailed):
                raise reply
            if reply != 1:
                raise LookupError(f"{place}: {'no such subsection' if reply == -1 else f'not in epoch {epoch}'}")

    async def may_claim(self) -> bool:
        """False while the store may not be the one that was last verified: claims would raise StoreUnverified."""
        return self._gate is None or await self._gate.is_open()

    async def claim(self, place: Place, claims: Sequence[Claim], *, epoch: int) -> list[Outcome]:
        """Seats for a batch of bookings or holds of one subsection, decided in the order given."""
        [outcomes] = await self.claim_many([Claims(place, epoch, claims)])
        return outcomes

    async def claim_many(self, batches: Sequence[Claims]) -> list[list[Outcome]]:
        """The same for many subsections in one round trip. A script that failed raises after all of them have run."""
        if self._gate is not None:
            await self._gate.require_open()
        faults = [[claim.check() for claim in batch.claims] for batch in batches]
        calls = []
        for batch, unfit in zip(batches, faults, strict=True):
            asked = [claim.packed() for claim, fault in zip(batch.claims, unfit, strict=True) if not fault]
            if asked:
                calls.append((self.keys(batch.place), (batch.epoch, _pack(asked))))
        replies = iter(await self._store.run_many(CLAIM, calls) if calls else [])
        return [_merged(unfit, replies) for unfit in faults]

    async def settle(self, place: Place, settlements: Sequence[Settlement], *, epoch: int) -> list[Settled]:
        """Release, confirm or refund a batch of claims of one subsection, in the order given."""
        faults = [settlement.check() for settlement in settlements]
        asked = [s.packed() for s, fault in zip(settlements, faults, strict=True) if not fault]
        answers = iter(
            _settled_list(await self._store.run(SETTLE, self.keys(place), (epoch, _pack(asked)))) if asked else []
        )
        return [Settled(Code.INVALID, detail=fault) if fault else next(answers) for fault in faults]

    async def convert(self, place: Place, holds: Sequence[str], *, booking: str, owner: str, epoch: int) -> Settled:
        """Turn live holds of one owner into a booking, all or none, without letting go of a seat."""
        if not holds:
            return Settled(Code.INVALID, detail="no hold is named")
        if len(set(holds)) != len(holds):
            return Settled(Code.INVALID, detail="a hold is named twice")
        for value in (*holds, booking, owner):
            check_identifier(value, "an id")
        packed = await self._store.run(CONVERT, self.keys(place), (epoch, booking, owner, _pack(list(holds))))
        return _settled(packed)

    async def extend(
        self, place: Place, hold: str, *, owner: str, operation: str, more_ms: int, cap_ms: int, epoch: int
    ) -> tuple[Code, int]:
        """More time for a hold, up to `cap_ms` after it was taken; returns the deadline that now holds."""
        for value in (hold, owner, operation):
            check_identifier(value, "an id")
        _, config, _, _, _, holds, index = self.keys(place)
        code, deadline = await self._store.run(
            EXTEND, (config, holds, index), (epoch, hold, owner, operation, int(more_ms), int(cap_ms))
        )
        return Code(code.decode()), int(deadline)


def _merged(faults: Sequence[str], replies: Iterator[bytes | StoreScriptFailed]) -> list[Outcome]:
    """The answers of one subsection, with those that never reached the store in their places."""
    if all(faults):
        return [Outcome(Code.INVALID, detail=fault) for fault in faults]
    reply = next(replies)
    if isinstance(reply, StoreScriptFailed):
        raise reply
    answers = iter(_outcomes(reply))
    return [Outcome(Code.INVALID, detail=fault) if fault else next(answers) for fault in faults]


def _opening(hall: Hall, epoch: int) -> tuple[bytes | int, ...]:
    shape = hall.shape
    for seat in hall.blocked:
        shape.check_index(seat)
    if not 1 <= hall.limit <= shape.seats:
        raise ValueError(f"{hall.place}: a claim may take 1 to {shape.seats} seats, not {hall.limit}")
    _check_price(hall.price)
    blocked = [SeatState.UNAVAILABLE if seat in hall.blocked else SeatState.AVAILABLE for seat in range(shape.seats)]
    walls = _walls(shape) if shape.accessible else b""
    return epoch, shape.rows, shape.seats_per_row, hall.price, hall.limit, pack(shape, blocked), walls


def _check_price(price: int) -> None:
    # A record with anything but digits in it could not be read again.
    if not (isinstance(price, int) and not isinstance(price, bool) and 0 <= price < 10**12):
        raise ValueError(f"the price is a whole number of minor units, not {price!r}")


def _walls(shape: Subsection) -> bytes:
    packed = bytearray((shape.seats + 3) // 4)
    for seat in shape.accessible:
        packed[seat // 4] |= 3 << shift(seat)
    return bytes(packed)
