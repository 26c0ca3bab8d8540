"""Compare the store with itself, and with the facts where they are known. Reads only: what is wrong is reported.

`aisle verify`, the rebuild and the tests call it. It may run while seats are sold: each subsection is read as one
consistent picture, and a key that looks like an orphan is looked at twice, because subsections are created key by key.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aisle.errors import StoreScriptFailed
from aisle.reservation.audit import Fault, Finding, audit, read_records
from aisle.reservation.facts import EventFacts, HallFacts
from aisle.reservation.keys import BadName, Place, event_sections, holding, subsection_keys
from aisle.reservation.keyspace import NAMES, FoundKey, classify, in_round_trips, scan, types_of
from aisle.reservation.pool import PoolPlace
from aisle.reservation.pool_facts import PoolFacts, differences, readable_records
from aisle.reservation.pool_picture import findings as pool_findings
from aisle.reservation.pools import Pools
from aisle.reservation.record import ClaimState, Record
from aisle.reservation.snapshot import SNAPSHOTS_PER_ROUND_TRIP, BadConfiguration, Snapshot, read_snapshots
from aisle.store import Store
from respline import ServerError


@dataclass(slots=True)
class Report:
    events: int = 0
    places: int = 0
    seats: int = 0
    pools: int = 0
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        return not self.findings


async def verify(store: Store, event: int | None = None, facts: EventFacts | None = None) -> Report:
    """Verify one event or all there are. Raises LookupError for an event of which neither store nor facts know."""
    assert facts is None or facts.event == event, "facts are compared with their own event"
    started = time.perf_counter()
    report = Report()
    found = [key async for keys in scan(store) for raw in keys if (key := classify(raw, store.prefix))]
    found = [key for key in set(found) if event is None or key.event == event]
    pools = {PoolPlace.parse(key.pool) for key in found if key.name == "pool" and key.pool}
    events = sorted({key.event for key in found if key.event is not None})
    if event is not None and not events and facts is None:
        raise LookupError(f"event {event} is not in the store")
    known = {facts.hall.place: facts for facts in facts.halls} if facts else {}
    known_pools = {facts.pool.place: facts for facts in facts.pools} if facts else {}
    listed = await places_listed(store, events, report.findings)
    places = sorted({*listed, *known})
    report.events, report.places = len(events), len(places)
    await _audit_places(store, places, known, compare=facts is not None, report=report)
    await _audit_pools(store, sorted(pools | set(known_pools)), known_pools, compare=facts is not None, report=report)
    report.findings += await find_orphans(store, found)
    report.seconds = time.perf_counter() - started
    return report


async def verify_places(store: Store, facts: Sequence[HallFacts], pools: Sequence[PoolFacts] = ()) -> Report:
    """Verify some subsections and pools against their facts and look at nothing else."""
    started = time.perf_counter()
    known = {hall_facts.hall.place: hall_facts for hall_facts in facts}
    report = Report(events=len({place.event for place in known}), places=len(known))
    await _audit_places(store, list(known), known, compare=True, report=report)
    known_pools = {pool_facts.pool.place: pool_facts for pool_facts in pools}
    await _audit_pools(store, list(known_pools), known_pools, compare=True, report=report)
    report.seconds = time.perf_counter() - started
    return report


async def places_listed(store: Store, events: Iterable[int], findings: list[Finding]) -> list[Place]:
    """The subsections that `event_sections` names; what cannot be read is added to the findings."""
    keys = [event_sections(store.prefix, event) for event in events]
    places = []
    for key, reply in zip(
        keys, await in_round_trips(store, [("ZRANGEBYSCORE", key, "-inf", "+inf") for key in keys]), strict=True
    ):
        if isinstance(reply, ServerError):
            findings.append(Finding(Fault.TYPE, key.removeprefix(store.prefix), f"cannot be read: {reply}"))
            continue
        for member in reply:
            try:
                place = Place.parse(member.decode(errors="backslashreplace"))
            except BadName as error:
                findings.append(Finding(Fault.ORPHAN, key.removeprefix(store.prefix), f"names no subsection: {error}"))
            else:
                places.append(place)
    return places


async def find_orphans(store: Store, found: Sequence[FoundKey]) -> list[Finding]:
    """Keys that belong to nothing, and keys of a wrong type. They are reported and never deleted."""
    types = await types_of(store, [key.raw for key in found])
    wrong = [
        Finding(Fault.TYPE, str(key), f"is a {kind}, not a {NAMES[key.name][0]}")
        for key, kind in zip(found, types, strict=True)
        if kind not in ("none", NAMES[key.name][0])
    ]
    # Read after the keys were found: what has been created since is listed by now, what has gone is looked for again.
    listed = set(await places_listed(store, {key.event for key in found if key.event}, []))
    configured = await _configured(store, {key.place for key in found if key.place})
    pools = {key.pool for key in found if key.name == "pool"}
    suspects = [(key, fault) for key in found if (fault := _orphan_fault(key, listed, configured, pools))]
    present = await types_of(store, [key.raw for key, _ in suspects])
    orphans = [
        Finding(Fault.ORPHAN, str(key), fault)
        for (key, fault), kind in zip(suspects, present, strict=True)
        if kind != "none"
    ]
    return sorted(wrong + orphans, key=str)


async def _audit_places(
    store: Store, places: Sequence[Place], known: dict[Place, HallFacts], *, compare: bool, report: Report
) -> None:
    unswept = []
    for start in range(0, len(places), SNAPSHOTS_PER_ROUND_TRIP):
        some = places[start : start + SNAPSHOTS_PER_ROUND_TRIP]
        for place, snapshot in zip(some, await read_snapshots(store, some), strict=True):
            if isinstance(snapshot, StoreScriptFailed):
                report.findings.append(Finding(Fault.TYPE, str(place), f"cannot be read: {snapshot}"))
                continue
            report.findings += audit(place, snapshot, known.get(place))
            if compare and place not in known:
                report.findings.append(Finding(Fault.FACTS, str(place), "is in the store and not in the facts"))
            report.seats += _seats_of(snapshot)
            if any(record.state is ClaimState.LIVE and record.deadline_ms for record in _records(snapshot)):
                unswept.append(place)
    report.findings += await _not_announced(store, unswept)


async def _audit_pools(
    store: Store, places: Sequence[PoolPlace], known: dict[PoolPlace, PoolFacts], *, compare: bool, report: Report
) -> None:
    pools = Pools(store)
    unswept = []
    for place in places:
        try:
            picture = await pools.picture(place)
        except (StoreScriptFailed, UnicodeDecodeError) as error:
            report.findings.append(Finding(Fault.TYPE, str(place), f"cannot be read: {error}"))
            continue
        report.pools += 1
        facts = known.get(place)
        if picture is None:
            report.findings += [Finding(Fault.FACTS, str(place), "is not in the store")] if facts else []
            continue
        report.findings += [Finding(Fault.POOL, str(place), fault) for fault in pool_findings(picture)]
        if facts is not None:
            report.findings += [Finding(Fault.FACTS, str(place), fault) for fault in differences(picture, facts)]
        elif compare:
            report.findings.append(Finding(Fault.FACTS, str(place), "is in the store and not in the facts"))
        if any(r.state == "L" and r.deadline_ms for _, r in readable_records(picture)):
            unswept.append(place)
    report.findings += await _not_announced(store, unswept)


async def pools_there(store: Store, event: int) -> set[PoolPlace]:
    """The pools of an event that the store has."""
    keys = [key async for portion in scan(store) for raw in portion if (key := classify(raw, store.prefix))]
    return {PoolPlace.parse(key.pool) for key in keys if key.name == "pool" and key.pool and key.event == event}


async def _not_announced(store: Store, places: Sequence[Place] | Sequence[PoolPlace]) -> list[Finding]:
    """Live holds in a place that is not in `holding` would stay for ever: no sweeper visits it."""
    replies = await in_round_trips(store, [("ZSCORE", holding(store.prefix), str(place)) for place in places])
    return [
        Finding(Fault.INDEX, str(place), "has live holds and is not in `holding`: no sweeper will come")
        for place, score in zip(places, replies, strict=True)
        if score is None
    ]


async def _configured(store: Store, places: Iterable[Place]) -> set[Place]:
    places = list(places)
    keys = [subsection_keys(store.prefix, place)[1] for place in places]
    found = await in_round_trips(store, [("EXISTS", key) for key in keys])
    return {place for place, exists in zip(places, found, strict=True) if exists == 1}


def _orphan_fault(key: FoundKey, listed: set[Place], configured: set[Place], pools: set[str]) -> str:
    if key.fault:
        return key.fault
    if key.place and key.place not in configured:
        return f"belongs to {key.place}, which has no section_config"
    if key.place and key.place not in listed:
        return f"belongs to {key.place}, which event_sections:{key.place.event} does not name"
    if key.pool and key.pool not in pools:
        return f"belongs to {key.pool}, and there is no such pool"
    return ""


def _records(snapshot: Snapshot) -> Iterable[Record]:
    return read_records(snapshot)[0].values()


def _seats_of(snapshot: Snapshot) -> int:
    try:
        return snapshot.configuration().shape.seats
    except BadConfiguration:
        return 0
