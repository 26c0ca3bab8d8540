"""Reading the hall: counts, seats, who has them. Never writes; one round trip however many subsections.

What is read may be old by the time it is used. Decisions are made by the scripts, which look again.
"""

from collections.abc import Sequence

import msgspec

from aisle.errors import StoreScriptFailed
from aisle.reservation.keys import Place, event_sections, subsection_keys
from aisle.reservation.record import Record
from aisle.scripts import load_script
from aisle.store import Store
from respline import ServerError

SEATMAP, WHO = (load_script("aisle.reservation", name) for name in ("seatmap", "who"))

STATUS_FIELDS = ("available", "reserved", "sold", "unavailable", "total", "version", "updated_at")


class Status(msgspec.Struct, frozen=True):
    """Counts of one subsection. `version` grows with every change of a seat."""

    place: Place
    available: int
    reserved: int
    sold: int
    unavailable: int
    total: int
    version: int
    updated_ms: int


class SeatMap(msgspec.Struct, frozen=True):
    """Two bits a seat, as `subsection.unpack` reads them, and the version they had."""

    place: Place
    version: int
    packed: bytes


class HallMap(msgspec.Struct, frozen=True):
    """The seats of a whole event. Its version is the sum of its subsections', so it grows with every change in any."""

    version: int
    maps: tuple[SeatMap, ...]


class Holder(msgspec.Struct, frozen=True):
    claim: str
    record: Record


async def places_of(store: Store, event: int) -> list[Place]:
    """Subsections of an event, best first."""
    members = await store.call("ZRANGEBYSCORE", event_sections(store.prefix, event), "-inf", "+inf")
    return [Place.parse(member.decode()) for member in members]


async def statuses(store: Store, places: Sequence[Place]) -> list[Status | None]:
    """Counts of each place, None where the store knows no such subsection."""
    replies = await store.call_many(
        [("HMGET", subsection_keys(store.prefix, place)[2], *STATUS_FIELDS) for place in places]
    )
    return [_status(place, reply) for place, reply in zip(places, replies, strict=True)]


async def seat_maps(store: Store, places: Sequence[Place]) -> list[SeatMap | None]:
    calls = []
    for place in places:
        seats_bf, _, stats, *_ = subsection_keys(store.prefix, place)
        calls.append(((seats_bf, stats), ()))
    maps: list[SeatMap | None] = []
    for place, reply in zip(places, await store.run_many(SEATMAP, calls), strict=True):
        if isinstance(reply, StoreScriptFailed):
            raise reply
        maps.append(SeatMap(place, int(reply[1]), reply[0]) if reply else None)
    return maps


async def hall_map(store: Store, event: int) -> HallMap:
    maps = tuple(m for m in await seat_maps(store, await places_of(store, event)) if m is not None)
    return HallMap(sum(m.version for m in maps), maps)


async def who_has(store: Store, place: Place, seats: Sequence[str]) -> list[Holder | None]:
    """The claim that has each named seat (`row-seat`), None where nobody has."""
    _, _, _, _, seat_meta, holds, _ = subsection_keys(store.prefix, place)
    found = await store.run(WHO, (seat_meta, holds), tuple(seats))
    return [Holder(pair[0].decode(), Record.parse(pair[1])) if pair else None for pair in found]


def _status(place: Place, reply: list[bytes | None] | ServerError) -> Status | None:
    if isinstance(reply, ServerError):
        raise StoreScriptFailed("status", reply.code, str(reply))
    if any(value is None for value in reply):
        return None
    return Status(place, *(int(value) for value in reply if value is not None))
