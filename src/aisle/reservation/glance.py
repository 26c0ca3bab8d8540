"""The store through a small window, for the operator's page: nothing written, and never more than so much at a time.

`inspect` reads whole subsections for a person at a terminal who can wait; a page is asked for again and again while an
event sells, so each look here is a few plain commands with a limit: SCAN, never KEYS, and no script.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from aisle.reservation.inspect import HoldView, SectionView, Unreadable
from aisle.reservation.inspect_pools import PoolView, pool_hold, pool_view
from aisle.reservation.keys import Place, event_sections, subsection_keys
from aisle.reservation.keyspace import FoundKey, classify, in_round_trips, types_of
from aisle.reservation.pool import PoolPlace, pool_keys
from aisle.reservation.pool_picture import PoolRecord
from aisle.reservation.reads import who_has
from aisle.reservation.record import BadRecord, ClaimState, Record
from aisle.reservation.subsection import SeatState
from aisle.store import Store
from respline import ServerError

PLACES_MAX = 50
HOLDS_MAX = 50
# A store may be shared: what is looked for can lie behind many keys of others.
KEYS_MIN, SCAN_COUNT, SCANS_MAX = 50, 1_000, 100

CONFIG = ("state", "epoch", "price")
STATS = ("available", "reserved", "sold", "unavailable", "total", "version")
POOL = ("state", "epoch", "price", "capacity", "held", "sold", "version")


class EventGlance(msgspec.Struct):
    """Some of an event's subsections, best first; `next` is where to go on. Pools come with the first page."""

    event_id: int
    sections: list[SectionView]
    pools: list[PoolView]
    next: int | None


class SeatGlance(msgspec.Struct):
    place: str
    seat: str
    state: str
    holder: HoldView | None


class KeyGlance(msgspec.Struct):
    """`bytes` is what MEMORY USAGE says, None where the server does not know that command."""

    key: str
    name: str
    type: str
    bytes: int | None


class KeysGlance(msgspec.Struct):
    items: list[KeyGlance]
    next: str | None


async def glance_at_event(store: Store, event: int, pools: Sequence[str], *, after: int) -> EventGlance:
    """`pools` are the names of its pools. Raises LookupError if the store knows nothing of the event."""
    listed = _readable(
        await store.call_many(
            [("ZRANGEBYSCORE", event_sections(store.prefix, event), "-inf", "+inf", "LIMIT", after, PLACES_MAX + 1)]
        ),
        f"event_sections:{event}",
    )[0]
    places = [Place.parse(member.decode(errors="backslashreplace")) for member in listed[:PLACES_MAX]]
    pool_places = [PoolPlace(event, name) for name in pools[:PLACES_MAX]] if after == 0 else []
    if not places and not pool_places:
        raise LookupError(f"event {event} is not in the store" if after == 0 else f"event {event} has no more")
    more = after + PLACES_MAX if len(listed) > PLACES_MAX else None
    return EventGlance(event, await _sections(store, places), await _pools(store, pool_places), more)


async def glance_at_holds(store: Store, place: Place | PoolPlace) -> list[HoldView]:
    """Who holds what until when, soonest deadline first. Bookings have no deadline here: a seat names its own."""
    holds, index = (
        subsection_keys(store.prefix, place)[5:] if isinstance(place, Place) else pool_keys(store.prefix, place)[1:]
    )
    ids = await store.call("ZRANGEBYSCORE", index, "-inf", "+inf", "LIMIT", 0, HOLDS_MAX)
    if not ids:
        await _require_there(store, place)
        return []
    lines, width, now_ms = await store.call("HMGET", holds, *ids), await _width(store, place), await _now_ms(store)
    found = [(id.decode(), line) for id, line in zip(ids, lines, strict=True) if line is not None]
    return [view for id, line in found if (view := _hold(place, id, line, width, now_ms))]


async def glance_at_seat(store: Store, place: Place, row: int, seat: int) -> SeatGlance:
    """The state of a seat and who has it. Raises LookupError for a seat that is not there."""
    seats_bf, config, *_ = subsection_keys(store.prefix, place)
    rows, width = await _shape(store, place, config)
    if not (1 <= row <= rows and 1 <= seat <= width):
        raise LookupError(f"{place} has {rows} rows of {width} seats")
    index, name = (row - 1) * width + seat - 1, f"{row}-{seat}"
    byte = await store.call("GETRANGE", seats_bf, index // 4, index // 4)
    if not byte:
        raise Unreadable(f"{place}: the map ends before seat {name}")
    state = SeatState(byte[0] >> (6 - 2 * (index % 4)) & 3)
    [holder] = await who_has(store, place, [name])
    shown = _claim(place, holder.claim, holder.record, width, await _now_ms(store)) if holder else None
    return SeatGlance(str(place), name, state.name.lower(), shown)


async def glance_at_keys(store: Store, *, name: str, event: int | None, start: str) -> KeysGlance:
    """Keys of one kind, or of any, from where the last look ended (`node-cursor`). Only what is named as ours."""
    node, cursor = map(int, start.split("-")) if start else (0, 0)
    nodes, found = store.nodes, list[FoundKey]()
    pattern = f"{store.prefix}{name}:*" if name else f"{store.prefix}*"
    for _ in range(SCANS_MAX):
        if node >= len(nodes) or len(found) >= KEYS_MIN:
            break
        reply, keys = await store.call_on(nodes[node], "SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT)
        cursor = int(reply)
        ours = (key for raw in keys if (key := classify(raw, store.prefix)))
        found += [key for key in ours if event is None or key.event == event]
        node += cursor == 0
    types = await types_of(store, [key.raw for key in found])
    weights = await in_round_trips(store, [("MEMORY", "USAGE", key.raw) for key in found])
    items = [
        KeyGlance(str(key), key.name, kind, weight if isinstance(weight, int) else None)
        for key, kind, weight in zip(found, types, weights, strict=True)
        if kind != "none"
    ]
    return KeysGlance(items, f"{node}-{cursor}" if node < len(nodes) else None)


async def _sections(store: Store, places: Sequence[Place]) -> list[SectionView]:
    commands = []
    for place in places:
        _, config, stats, *_ = subsection_keys(store.prefix, place)
        commands += [("HMGET", config, *CONFIG), ("HMGET", stats, *STATS)]
    replies = _readable(await store.call_many(commands), "a subsection")
    views = []
    for place, config, stats in zip(places, replies[::2], replies[1::2], strict=True):
        state, epoch, price = config
        available, reserved, sold, blocked, total, version = map(_number, stats)
        views.append(
            SectionView(
                str(place), _text(state), _number(epoch), _number(price), available, reserved, sold, blocked, total,
                version,
            )
        )  # fmt: skip
    return views


async def _pools(store: Store, places: Sequence[PoolPlace]) -> list[PoolView]:
    commands = [("HMGET", pool_keys(store.prefix, place)[0], *POOL) for place in places]
    replies = _readable(await store.call_many(commands), "a pool")
    return [
        pool_view(place, {name: _text(value) for name, value in zip(POOL, reply, strict=True)})
        for place, reply in zip(places, replies, strict=True)
        if any(value is not None for value in reply)
    ]


async def _require_there(store: Store, place: Place | PoolPlace) -> None:
    key = subsection_keys(store.prefix, place)[1] if isinstance(place, Place) else pool_keys(store.prefix, place)[0]
    if not await store.call("EXISTS", key):
        raise LookupError(f"{place} is not in the store")


async def _width(store: Store, place: Place | PoolPlace) -> int:
    if isinstance(place, PoolPlace):
        return 1
    return (await _shape(store, place, subsection_keys(store.prefix, place)[1]))[1]


async def _shape(store: Store, place: Place, config: str) -> tuple[int, int]:
    rows, width = await store.call("HMGET", config, "rows", "seats_per_row")
    if rows is None and width is None:
        raise LookupError(f"{place} is not in the store")
    if _number(rows) < 1 or _number(width) < 1:
        raise Unreadable(f"{place}: section_config has no rows or no seats")
    return _number(rows), _number(width)


async def _now_ms(store: Store) -> int:
    seconds, microseconds = await store.call("TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


def _hold(place: Place | PoolPlace, id: str, line: bytes, width: int, now_ms: int) -> HoldView | None:
    try:
        if isinstance(place, PoolPlace):
            record = PoolRecord.parse(line.decode())
            return pool_hold(place, id, record, now_ms) if record.state != "E" else None
        claim = Record.parse(line)
    except (BadRecord, ValueError) as error:
        raise Unreadable(f"{place}: {error}") from None
    return _claim(place, id, claim, width, now_ms) if claim.state is not ClaimState.ENDED else None


def _claim(place: Place, id: str, record: Record, width: int, now_ms: int) -> HoldView:
    seats = [f"{seat // width + 1}-{seat % width + 1}" for seat in record.seats]
    deadline = record.deadline_ms or None
    return HoldView(
        str(place), id, record.kind.name.lower(), record.state.name.lower(), record.owner, record.price, seats,
        len(seats), record.taken_ms, deadline, deadline - now_ms if deadline else None,
    )  # fmt: skip


def _readable(replies: list[Any], what: str) -> list[Any]:
    for reply in replies:
        if isinstance(reply, ServerError):
            raise Unreadable(f"{what} cannot be read: {reply}")
    return replies


def _text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode(errors="backslashreplace")


def _number(raw: bytes | None) -> int:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) < 16 else -1
