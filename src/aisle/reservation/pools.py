"""Pools in the hot store: the only code that touches their keys. One call is one round trip, however long its lists.

Each method runs a script that decides and acts in one step, so any number of processes may call it for the same pool.
What a script refuses comes back as a value. A call whose outcome is unknown is repeated under the same ids.
"""

from collections.abc import Sequence

import msgspec

from aisle.errors import StoreScriptFailed
from aisle.reservation.claims import Code
from aisle.reservation.generation import Gate
from aisle.reservation.keys import check_identifier
from aisle.reservation.pool import (
    CAPACITY_MAX,
    HOLD_MS_MAX,
    Pool,
    PoolPlace,
    PoolSettled,
    PoolSettlement,
    PoolStatus,
    Take,
    Taken,
    check_price,
    is_whole,
    pool_keys,
)
from aisle.reservation.pool_picture import PoolPicture, picture_of
from aisle.reservation.sweeper import Swept, sweep_keys, swept_of
from aisle.scripts import load_script
from aisle.store import Store
from respline import ServerError

OPEN, SWITCH, RESIZE, TAKE, SETTLE, CONVERT, SWEEP, SNAPSHOT = (
    load_script("aisle.reservation", f"pool_{name}")
    for name in ("open", "switch", "resize", "take", "settle", "convert", "sweep", "snapshot")
)
# An extension reads the epoch, moves one record and its index entry: for a pool the same as for a subsection.
EXTEND = load_script("aisle.reservation", "extend")

BATCH_MAX = 1_000

_pack = msgspec.msgpack.Encoder().encode
_taken_list = msgspec.msgpack.Decoder(list[Taken]).decode
_settled_list = msgspec.msgpack.Decoder(list[PoolSettled]).decode
_settled = msgspec.msgpack.Decoder(PoolSettled).decode


class Pools:
    def __init__(self, store: Store, gate: Gate | None = None) -> None:
        self._store = store
        self._gate = gate
        self._prefix = store.prefix

    def keys(self, place: PoolPlace) -> tuple[str, str, str]:
        return pool_keys(self._prefix, place)

    async def open(self, pools: Sequence[Pool], *, epoch: int) -> None:
        """Create pools, closed. Repeating is safe; another configuration under the same name is refused."""
        calls = [(self.keys(p.place), (epoch, p.capacity, p.price, p.limit, int(p.one_per_buyer))) for p in pools]
        for pool, reply in zip(pools, await self._store.run_many(OPEN, calls), strict=True):
            if isinstance(reply, StoreScriptFailed):
                raise reply
            if reply == -1:
                raise ValueError(f"{pool.place} exists with another configuration")

    async def switch(self, places: Sequence[PoolPlace], *, epoch: int, on_sale: bool, price: int | None = None) -> None:
        """Put pools on sale or take them off; a new price holds for claims made from now on."""
        if price is not None and places:
            check_price(places[0], price)
        args = (epoch, "open" if on_sale else "closed", "" if price is None else price)
        replies = await self._store.run_many(SWITCH, [(self.keys(place)[:1], args) for place in places])
        for place, reply in zip(places, replies, strict=True):
            if isinstance(reply, StoreScriptFailed):
                raise reply
            if reply != 1:
                raise LookupError(f"{place}: {'no such pool' if reply == -1 else f'not in epoch {epoch}'}")

    async def resize(self, place: PoolPlace, *, was: int, capacity: int, epoch: int) -> tuple[Code, int]:
        """Another capacity, never fewer places than are held or sold; returns the capacity that now holds."""
        if not (is_whole(was, 1, CAPACITY_MAX) and is_whole(capacity, 1, CAPACITY_MAX)):
            raise ValueError(f"{place}: a pool has 1 to {CAPACITY_MAX} places, not {was!r} or {capacity!r}")
        code, now = await self._store.run(RESIZE, self.keys(place)[:1], (epoch, was, capacity))
        return Code(code.decode()), int(now)

    async def take(self, place: PoolPlace, takes: Sequence[Take], *, epoch: int) -> list[Taken]:
        """Places for a batch of bookings or holds of one pool, decided in the order given."""
        faults = _faults(takes)
        asked = [take.packed() for take, fault in zip(takes, faults, strict=True) if not fault]
        answers = iter(await self._take(place, asked, epoch) if asked else [])
        return [Taken(Code.INVALID, detail=fault) if fault else next(answers) for fault in faults]

    async def _take(self, place: PoolPlace, asked: list[list[object]], epoch: int) -> list[Taken]:
        if self._gate is not None:
            await self._gate.require_open()
        return _taken_list(await self._store.run(TAKE, self.keys(place), (epoch, _pack(asked))))

    async def settle(self, place: PoolPlace, settlements: Sequence[PoolSettlement], *, epoch: int) -> list[PoolSettled]:
        """Release, confirm or refund a batch of claims of one pool, in the order given."""
        faults = _faults(settlements)
        asked = [s.packed() for s, fault in zip(settlements, faults, strict=True) if not fault]
        answers = iter(
            _settled_list(await self._store.run(SETTLE, self.keys(place), (epoch, _pack(asked)))) if asked else []
        )
        return [PoolSettled(Code.INVALID, detail=fault) if fault else next(answers) for fault in faults]

    async def convert(
        self, place: PoolPlace, holds: Sequence[str], *, booking: str, owner: str, epoch: int
    ) -> PoolSettled:
        """Turn live holds of one owner into a booking, all or none, without letting go of a place."""
        for value in (*holds, booking, owner):
            check_identifier(value, "an id")
        if not 1 <= len(holds) <= BATCH_MAX or len({*holds, booking}) != len(holds) + 1:
            return PoolSettled(Code.INVALID, detail=f"1 to {BATCH_MAX} different holds, and another id for the booking")
        return _settled(await self._store.run(CONVERT, self.keys(place), (epoch, booking, owner, _pack(list(holds)))))

    async def extend(
        self, place: PoolPlace, hold: str, *, owner: str, operation: str, more_ms: int, cap_ms: int, epoch: int
    ) -> tuple[Code, int]:
        """More time for a hold, up to `cap_ms` after it was taken; returns the deadline that now holds."""
        for value in (hold, owner, operation):
            check_identifier(value, "an id")
        if not (is_whole(more_ms, 1, HOLD_MS_MAX) and is_whole(cap_ms, 1, HOLD_MS_MAX)):
            raise ValueError(f"an extension and its cap are 1 ms to 24 h, not {more_ms!r} and {cap_ms!r} ms")
        args = (epoch, hold, owner, operation, more_ms, cap_ms)
        code, deadline = await self._store.run(EXTEND, self.keys(place), args)
        return Code(code.decode()), int(deadline)

    async def sweep(self, places: Sequence[PoolPlace], *, at_most: int) -> list[Swept | StoreScriptFailed]:
        """Release what is overdue and forget what ended a day ago: at most so many records of each pool.

        A released hold's runs are (0, quantity). A damaged pool leaves its error in the list and spoils only itself.
        """
        if not is_whole(at_most, 1, BATCH_MAX):
            raise ValueError(f"a sweep takes 1 to {BATCH_MAX} records, not {at_most!r}")
        replies = await self._store.run_many(SWEEP, [(sweep_keys(self._prefix, place), (at_most,)) for place in places])
        return [reply if isinstance(reply, StoreScriptFailed) else swept_of(reply) for reply in replies]

    async def statuses(self, places: Sequence[PoolPlace]) -> list[PoolStatus | None]:
        """Counts of each pool, None where the store knows no such pool. One round trip."""
        fields = ("capacity", "held", "sold", "version")
        replies = await self._store.call_many([("HMGET", self.keys(place)[0], *fields) for place in places])
        found: list[PoolStatus | None] = []
        for place, reply in zip(places, replies, strict=True):
            if isinstance(reply, ServerError):
                raise StoreScriptFailed("pool_status", reply.code, str(reply))
            found.append(None if None in reply else PoolStatus(place, *map(int, reply)))
        return found

    async def picture(self, place: PoolPlace) -> PoolPicture | None:
        """Everything the store has of a pool at one moment, for verification and inspection."""
        now_ms, pool, records, index = await self._store.run(SNAPSHOT, self.keys(place), ())
        return picture_of(now_ms, pool, records, index) if pool else None


def _faults(requests: Sequence[Take] | Sequence[PoolSettlement]) -> list[str]:
    if len(requests) > BATCH_MAX:
        raise ValueError(f"a batch is at most {BATCH_MAX} requests, not {len(requests)}")
    return [request.check() for request in requests]
