"""Pools as an operator wants to see them, beside the subsections of `inspect`: counts, and who has how many places."""

from collections.abc import Sequence

import msgspec

from aisle.errors import StoreScriptFailed
from aisle.reservation.inspect import HoldView, Unreadable
from aisle.reservation.pool import PoolPlace
from aisle.reservation.pool_facts import readable_records
from aisle.reservation.pool_picture import PoolPicture, PoolRecord
from aisle.reservation.pools import Pools
from aisle.store import Store

STATES = {"L": "live", "S": "sold", "E": "ended"}
KINDS = {"b": "booking", "h": "hold"}


class PoolView(msgspec.Struct):
    """A counter that is no number is shown as -1; what is wrong with it is for `aisle verify` to say."""

    place: str
    state: str
    epoch: int
    price: int
    available: int
    held: int
    sold: int
    capacity: int
    version: int


async def look_at_pools(store: Store, places: Sequence[PoolPlace]) -> list[PoolView]:
    return [pool_view(place, picture.pool) for place, picture in await _pictures(store, places)]


async def look_at_pool_holds(store: Store, places: Sequence[PoolPlace]) -> list[HoldView]:
    """Who has places, soonest deadline first, then what has none."""
    views = [
        pool_hold(place, id, record, picture.now_ms)
        for place, picture in await _pictures(store, places)
        for id, record in readable_records(picture)
        if record.state != "E"
    ]
    return sorted(views, key=lambda view: (view.deadline_ms is None, view.deadline_ms or 0, view.place, view.id))


async def _pictures(store: Store, places: Sequence[PoolPlace]) -> list[tuple[PoolPlace, PoolPicture]]:
    """Raises LookupError for a pool the store does not know and Unreadable for one that cannot be shown."""
    pools, found = Pools(store), []
    for place in places:
        try:
            picture = await pools.picture(place)
        except (StoreScriptFailed, UnicodeDecodeError) as error:
            raise Unreadable(f"{place} cannot be read: {error}") from None
        if picture is None:
            raise LookupError(f"{place} is not in the store")
        found.append((place, picture))
    return found


def pool_view(place: PoolPlace, fields: dict[str, str]) -> PoolView:
    def count(name: str) -> int:
        value = fields.get(name, "")
        return int(value) if value.isdecimal() and len(value) < 16 else -1

    capacity, held, sold = count("capacity"), count("held"), count("sold")
    available = capacity - held - sold if min(capacity, held, sold) >= 0 else -1
    return PoolView(
        place=str(place),
        state=fields.get("state", ""),
        epoch=count("epoch"),
        price=count("price"),
        available=available,
        held=held,
        sold=sold,
        capacity=capacity,
        version=count("version"),
    )


def pool_hold(place: PoolPlace, id: str, record: PoolRecord, now_ms: int) -> HoldView:
    deadline = record.deadline_ms or None
    return HoldView(
        str(place), id, KINDS[record.kind], STATES[record.state], record.owner, record.price, [], record.quantity,
        record.taken_ms, deadline, deadline - now_ms if deadline else None,
    )  # fmt: skip
