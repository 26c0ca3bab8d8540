"""Recreate an event's subsections and pools in the store from what is durably known. `aisle rebuild` calls it.

    fence     off sale and into a new epoch: claims, settlements and conversions of the old epoch are refused
    replace   all seven keys in one script, only if the epoch is still the fence's
    verify    against the same facts
    reopen    what was on sale when the rebuild began, if nothing is wrong with it

Whoever has the facts keeps them true until the store has them, and notes the new epoch before anything is reopened:
`aisle.epochs` does, on PostgreSQL. Killed anywhere, a subsection is the old one off sale or the new one off sale, and
running it again finishes the work.
It never invents seats: bookings come from the facts, and of the old state only holds that fit them are kept.
A sweep is not fenced. If it ends a hold between reading and replacing, that hold comes back past its deadline and the
next sweep ends it again.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from aisle.errors import StoreScriptFailed
from aisle.reservation.advance import config_keys, epochs_there
from aisle.reservation.audit import Finding
from aisle.reservation.facts import EventFacts, HallFacts
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place, event_sections, subsection_keys
from aisle.reservation.pool import PoolPlace
from aisle.reservation.pool_rebuild import rebuild_pool
from aisle.reservation.pools import Pools
from aisle.reservation.rebuilt import RebuildRaced, Rebuilt
from aisle.reservation.record import ClaimState, Record
from aisle.reservation.restored import Restored, restore
from aisle.reservation.subsection import SeatState, pack
from aisle.reservation.sweeper import announce, note_lapsed
from aisle.reservation.verify import places_listed, pools_there, verify_places
from aisle.scripts import load_script
from aisle.store import Store
from respline import ServerError

FENCE, REBUILD = (load_script("aisle.reservation", name) for name in ("fence", "rebuild"))

_pack = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Rebuild:
    """`unknown` are places the store has of the event and the facts do not: left alone, for an operator."""

    rebuilt: tuple[Rebuilt, ...]
    findings: tuple[Finding, ...]
    unknown: tuple[Place | PoolPlace, ...]


@dataclass(frozen=True, slots=True)
class Replaced:
    """Places in their new epoch, still off sale. `on_sale` is what they are to be again."""

    event: int
    epoch: int
    places: tuple[Rebuilt, ...]
    findings: tuple[Finding, ...]

    def to_be(self, *, on_sale: bool) -> "Replaced":
        return dataclasses.replace(self, places=tuple(dataclasses.replace(one, on_sale=on_sale) for one in self.places))


async def rebuild(store: Store, facts: EventFacts, *, drop_holds: bool = False) -> Rebuild:
    """Rebuild every subsection and pool the facts name, one after the other, then verify and reopen."""
    return await reopen(store, await replace(store, facts, drop_holds=drop_holds))


async def replace(store: Store, facts: EventFacts, *, drop_holds: bool = False) -> Replaced:
    facts = await _all_after_one_epoch(store, facts)
    done = [await _rebuild_one(store, hall_facts, drop_holds) for hall_facts in facts.halls]
    done += [await rebuild_pool(store, pool_facts, drop_holds=drop_holds) for pool_facts in facts.pools]
    if facts.halls:
        ranked = [item for known in facts.halls for item in (known.hall.rank, str(known.hall.place))]
        await store.call("ZADD", event_sections(store.prefix, facts.event), *ranked)
    epoch = max((one.epoch for one in done), default=1)
    report = await verify_places(
        store,
        [dataclasses.replace(known, epoch=epoch) for known in facts.halls],
        [dataclasses.replace(known, epoch=epoch) for known in facts.pools],
    )
    return Replaced(facts.event, epoch, tuple(done), tuple(report.findings))


async def reopen(store: Store, replaced: Replaced) -> Rebuild:
    faulty = {finding.place for finding in replaced.findings}
    reopened = [one for one in replaced.places if one.on_sale and str(one.place) not in faulty]
    await _reopen(store, reopened)
    there: set[Place | PoolPlace] = {
        *await places_listed(store, [replaced.event], []),
        *await pools_there(store, replaced.event),
    }
    unknown = there - {one.place for one in replaced.places}
    left = [dataclasses.replace(one, on_sale=one in reopened) for one in replaced.places]
    return Rebuild(tuple(left), replaced.findings, tuple(sorted(unknown, key=str)))


async def _all_after_one_epoch(store: Store, facts: EventFacts) -> EventFacts:
    """A rebuild that was killed left some places an epoch ahead: this one takes all of them into the same next one."""
    last = max(await epochs_there(store, config_keys(store, facts)), default=0)
    return EventFacts(
        facts.event,
        tuple(dataclasses.replace(known, epoch=max(known.epoch, last)) for known in facts.halls),
        tuple(dataclasses.replace(known, epoch=max(known.epoch, last)) for known in facts.pools),
    )


async def _rebuild_one(store: Store, facts: HallFacts, drop_holds: bool) -> Rebuilt:
    place = facts.hall.place
    keys = subsection_keys(store.prefix, place)
    fenced, state = await store.run(FENCE, (keys[1],), (facts.epoch,))
    epoch = int(fenced) if fenced else facts.epoch + 1
    old, unreadable = await _old_records(store, keys[5])
    now_ms = await _store_clock(store)
    new = restore(facts, old, now_ms=now_ms, drop_holds=drop_holds)
    overdue = [(id, r) for id, r in old.items() if r.state is ClaimState.LIVE and 0 < r.deadline_ms <= now_ms]
    await note_lapsed(store, place, [(id, r.owner, r.deadline_ms) for id, r in overdue])
    if new.holds_kept:
        await announce(store, [place])
    config = {
        "epoch": epoch,
        "state": state.decode() or "closed",
        "rows": new.shape.rows,
        "seats_per_row": new.shape.seats_per_row,
        "price": facts.hall.price,
        "limit": facts.hall.limit,
    }
    if await store.run(REBUILD, keys, (fenced, new.map, _walls(facts), _packed(config, new))) != 1:
        raise RebuildRaced(f"{place} is being rebuilt by somebody else; nothing was written")
    return Rebuilt(
        place, epoch, new.shape.seats, len(facts.claims), new.holds_kept, tuple(new.holds_dropped),
        tuple(new.bookings_dropped), unreadable, on_sale=state == b"rebuilding",
    )  # fmt: skip


async def _old_records(store: Store, key: str) -> tuple[dict[str, Record], int]:
    """The records that can be read, and how many cannot. A key of another type has none."""
    try:
        flat = await store.call("HGETALL", key)
    except ServerError as error:
        if error.code != "WRONGTYPE":
            raise StoreScriptFailed("rebuild", error.code, str(error)) from None
        return {}, 0
    records: dict[str, Record] = {}
    for identifier, line in zip(flat[::2], flat[1::2], strict=True):
        try:
            records[identifier.decode()] = Record.parse(line)
        except ValueError:
            continue
    return records, len(flat) // 2 - len(records)


async def _store_clock(store: Store) -> int:
    seconds, microseconds = await store.call("TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


async def _reopen(store: Store, rebuilt: Sequence[Rebuilt]) -> None:
    inventory, pools = Inventory(store), Pools(store)
    for epoch in {one.epoch for one in rebuilt}:
        places = [one.place for one in rebuilt if one.epoch == epoch]
        await inventory.switch([p for p in places if isinstance(p, Place)], epoch=epoch, on_sale=True)
        await pools.switch([p for p in places if isinstance(p, PoolPlace)], epoch=epoch, on_sale=True)


def _walls(facts: HallFacts) -> bytes:
    shape = facts.hall.shape
    if not shape.accessible:
        return b""
    return pack(shape, [SeatState.UNAVAILABLE if seat in shape.accessible else 0 for seat in range(shape.seats)])


def _packed(config: dict[str, object], new: Restored) -> bytes:
    records = {identifier: record.line().decode() for identifier, record in new.records.items()}
    index = [str(item) for identifier, at in new.index.items() for item in (at, identifier)]
    return _pack([*(_flat(fields) for fields in (config, new.stats, new.rows, new.owners, records)), index])


def _flat(fields: dict[str, object] | dict[str, int] | dict[str, str]) -> list[str]:
    return [str(item) for pair in fields.items() for item in pair]
