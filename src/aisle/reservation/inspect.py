"""What an operator wants to see of the store: subsections, seats, holds, keys. Reads only, never with KEYS.

Each `look_at_...` answers with plain data: `--json` prints it as it is, `inspect_text` draws it for people.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from aisle.errors import StoreScriptFailed
from aisle.reservation.audit import Finding, audit, read_records
from aisle.reservation.facts import ClaimFact, EventFacts, HallFacts
from aisle.reservation.inventory import Hall
from aisle.reservation.keys import Place, event_sections
from aisle.reservation.keyspace import NAMES, classify, in_round_trips, scan, types_of
from aisle.reservation.pool import Pool
from aisle.reservation.pool_facts import PoolClaimFact, PoolFacts, readable_records
from aisle.reservation.pool_picture import findings as pool_findings
from aisle.reservation.pools import Pools
from aisle.reservation.record import ClaimState
from aisle.reservation.snapshot import BadConfiguration, Snapshot, read_snapshots
from aisle.reservation.subsection import BadStates, SeatState
from aisle.reservation.verify import find_orphans, places_listed, pools_there
from aisle.store import Store
from respline import ServerError

SIGNS = {SeatState.AVAILABLE: ".", SeatState.RESERVED: "o", SeatState.SOLD: "#", SeatState.UNAVAILABLE: "x"}
ACCESSIBLE_SIGN = "a"


class Unreadable(ValueError):
    """What is in the store cannot be shown; the message says why and `aisle verify` says more."""


class SectionView(msgspec.Struct):
    place: str
    state: str
    epoch: int
    price: int
    available: int
    reserved: int
    sold: int
    blocked: int
    total: int
    version: int


class SeatsView(msgspec.Struct):
    """`rows` has a sign a seat, row 1 first: . available  a available and accessible  o reserved  # sold  x blocked"""

    place: str
    version: int
    rows: list[str]


class HoldView(msgspec.Struct):
    """A booking or hold that has seats, or places of a pool. Bookings have no deadline here: PostgreSQL keeps it."""

    place: str
    id: str
    kind: str
    state: str
    owner: str
    price: int
    seats: list[str]
    places: int
    taken_ms: int
    deadline_ms: int | None
    left_ms: int | None


class KeyKind(msgspec.Struct):
    """`bytes` is what MEMORY USAGE says, None where the server does not know that command."""

    name: str
    type: str
    keys: int
    bytes: int | None


class KeysView(msgspec.Struct):
    kinds: list[KeyKind]
    other_keys: int
    orphans: list[str]


async def places_of_event(store: Store, event: int) -> list[Place]:
    """Best first. Raises LookupError if the store knows no such event."""
    faults: list[Finding] = []
    places = await places_listed(store, [event], faults)
    if faults:
        raise Unreadable(str(faults[0]))
    if not places:
        raise LookupError(f"event {event} is not in the store")
    return places


async def look_at_sections(store: Store, places: Sequence[Place]) -> list[SectionView]:
    return [_section(place, snapshot) for place, snapshot in await _snapshots(store, places)]


async def look_at_seats(store: Store, place: Place) -> SeatsView:
    [(_, snapshot)] = await _snapshots(store, [place])
    shape = snapshot.configuration().shape
    try:
        states = snapshot.states(shape)
    except BadStates as error:
        raise Unreadable(f"{place}: {error}") from None
    signs = [
        ACCESSIBLE_SIGN if state is SeatState.AVAILABLE and seat in shape.accessible else SIGNS[state]
        for seat, state in enumerate(states)
    ]
    width = shape.seats_per_row
    rows = ["".join(signs[row * width : (row + 1) * width]) for row in range(shape.rows)]
    return SeatsView(str(place), _count(snapshot, "version"), rows)


async def look_at_holds(store: Store, places: Sequence[Place]) -> list[HoldView]:
    """Soonest deadline first, then what has none."""
    seconds, microseconds = await store.call("TIME")
    now_ms = int(seconds) * 1000 + int(microseconds) // 1000
    views = []
    for place, snapshot in await _snapshots(store, places):
        shape = snapshot.configuration().shape
        for identifier, record in read_records(snapshot)[0].items():
            if record.state is ClaimState.ENDED:
                continue
            seats = [shape.name(seat) if seat < shape.seats else f"index {seat}" for seat in record.seats]
            deadline = record.deadline_ms or None
            views.append(
                HoldView(
                    str(place), identifier, record.kind.name.lower(), record.state.name.lower(), record.owner,
                    record.price, seats, len(seats), record.taken_ms, deadline, deadline - now_ms if deadline else None,
                )
            )  # fmt: skip
    return sorted(views, key=lambda view: (view.deadline_ms is None, view.deadline_ms or 0, view.place, view.id))


async def look_at_keys(store: Store, event: int | None = None) -> KeysView:
    """Counts and bytes of each kind of key, and the orphans among them."""
    keys = {raw for portion in [portion async for portion in scan(store)] for raw in portion}
    named = {raw: classify(raw, store.prefix) for raw in keys}
    found = [key for key in named.values() if key and (event is None or key.event == event)]
    types = Counter(zip((key.name for key in found), await types_of(store, [key.raw for key in found]), strict=True))
    weights: dict[str, int] = Counter()
    is_weighed = True
    for key, reply in zip(found, await in_round_trips(store, [("MEMORY", "USAGE", k.raw) for k in found]), strict=True):
        if isinstance(reply, ServerError):
            is_weighed = False
        else:
            weights[key.name] += reply or 0
    kinds = [
        KeyKind(name, kind, count, weights[name] if is_weighed and kind == NAMES[name][0] else None)
        for (name, kind), count in sorted(types.items())
        if kind != "none"
    ]
    other = sum(key is None for key in named.values()) if event is None else 0
    return KeysView(kinds, other, [str(finding) for finding in await find_orphans(store, found)])


async def look_at_facts(store: Store, event: int) -> EventFacts:
    """The event's bookings as facts, for a rebuild. Refused if the store contradicts itself."""
    pools = await _pool_facts(store, event)
    places = await places_of_event(store, event) if not pools else await places_listed(store, [event], [])
    flat: list[Any] = await store.call(
        "ZRANGEBYSCORE", event_sections(store.prefix, event), "-inf", "+inf", "WITHSCORES"
    )
    ranks = {member.decode(): int(float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)}
    halls = []
    for place, snapshot in await _snapshots(store, places):
        findings = audit(place, snapshot)
        if findings:
            raise Unreadable(f"{findings[0]}; `aisle verify --event {event}` shows all findings")
        halls.append(_hall_facts(place, snapshot, ranks[str(place)]))
    return EventFacts(event, tuple(halls), tuple(pools))


async def _pool_facts(store: Store, event: int) -> list[PoolFacts]:
    pools = Pools(store)
    facts = []
    for place in sorted(await pools_there(store, event)):
        picture = await pools.picture(place)
        wrong = pool_findings(picture) if picture else ["it has gone"]
        if picture is None or wrong:
            raise Unreadable(f"{place}: {wrong[0]}; `aisle verify --event {event}` shows all findings")
        fields = picture.pool
        pool = Pool(
            place, int(fields["capacity"]), int(fields["price"]), int(fields["limit"]), fields["one_per_buyer"] == "1"
        )
        claims = [
            PoolClaimFact(id, record.owner, record.state == "S", record.price, record.quantity, record.taken_ms)
            for id, record in sorted(readable_records(picture))
            if record.state == "S" or (record.state == "L" and record.kind == "b")
        ]
        facts.append(PoolFacts(pool, tuple(claims), int(fields["epoch"])))
    return facts


async def _snapshots(store: Store, places: Sequence[Place]) -> list[tuple[Place, Snapshot]]:
    """Raises LookupError for a place the store does not know and Unreadable for one that cannot be shown."""
    readable = []
    for place, snapshot in zip(places, await read_snapshots(store, places), strict=True):
        if isinstance(snapshot, StoreScriptFailed):
            raise Unreadable(f"{place} cannot be read: {snapshot}")
        if snapshot.is_empty:
            raise LookupError(f"{place} is not in the store")
        try:
            snapshot.configuration()
        except BadConfiguration as error:
            raise Unreadable(f"{place}: section_config: {error}") from None
        readable.append((place, snapshot))
    return readable


def _section(place: Place, snapshot: Snapshot) -> SectionView:
    config = snapshot.configuration()
    available, reserved, sold, blocked, total, version = (
        _count(snapshot, name) for name in ("available", "reserved", "sold", "unavailable", "total", "version")
    )
    return SectionView(
        str(place), config.state, config.epoch, config.price, available, reserved, sold, blocked, total, version
    )


def _count(snapshot: Snapshot, name: str) -> int:
    """A counter that is no number is shown as -1; what is wrong with it is for `aisle verify` to say."""
    value = snapshot.stats.get(name, "")
    return int(value) if value.isdigit() and len(value) < 16 else -1


def _hall_facts(place: Place, snapshot: Snapshot, rank: int) -> HallFacts:
    config = snapshot.configuration()
    states = snapshot.states(config.shape)
    blocked = frozenset(seat for seat, state in enumerate(states) if state is SeatState.UNAVAILABLE)
    hall = Hall(place, config.shape, config.price, config.limit, rank, blocked)
    claims = [
        ClaimFact(
            identifier, record.owner, record.state is ClaimState.SOLD, record.price, record.seats, record.taken_ms,
            int(record.how),
        )
        for identifier, record in sorted(read_records(snapshot)[0].items())
        if record.state is ClaimState.SOLD or (record.state is ClaimState.LIVE and not record.deadline_ms)
    ]  # fmt: skip
    return HallFacts(hall, tuple(claims), config.epoch)
