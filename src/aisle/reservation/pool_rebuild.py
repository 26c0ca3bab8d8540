"""Recreate one pool in the store from what is durably known: fence, replace. `rebuild` verifies and reopens it.

As for a subsection: killed anywhere, the pool is the old one off sale or the new one off sale.
"""

from collections.abc import Mapping

import msgspec

from aisle.reservation.pool import pool_keys
from aisle.reservation.pool_facts import PoolFacts, readable_records
from aisle.reservation.pool_picture import picture_of
from aisle.reservation.pool_restored import RestoredPool, restore_pool
from aisle.reservation.rebuilt import RebuildRaced, Rebuilt
from aisle.reservation.sweeper import announce, note_lapsed
from aisle.scripts import load_script
from aisle.store import Store
from respline import ServerError

# The fence reads epoch and state of a hash and moves both: for a pool the same as for a subsection.
FENCE, REBUILD = (load_script("aisle.reservation", name) for name in ("fence", "pool_rebuild"))

_pack = msgspec.msgpack.Encoder().encode


async def rebuild_pool(store: Store, facts: PoolFacts, *, drop_holds: bool) -> Rebuilt:
    place = facts.pool.place
    keys = pool_keys(store.prefix, place)
    fenced, state = await store.run(FENCE, keys[:1], (facts.epoch,))
    epoch = int(fenced) if fenced else facts.epoch + 1
    seconds, microseconds = await store.call("TIME")
    now_ms = int(seconds) * 1000 + int(microseconds) // 1000
    picture = picture_of(now_ms, (), await _old_fields(store, keys[1]), ())
    old = dict(readable_records(picture))
    new = restore_pool(facts, old, now_ms=now_ms, drop_holds=drop_holds)
    overdue = [(id, r) for id, r in old.items() if r.state == "L" and 0 < r.deadline_ms <= now_ms]
    await note_lapsed(store, place, [(id, r.owner, r.deadline_ms) for id, r in overdue])
    if new.holds_kept:
        await announce(store, [place])
    packed = _packed(facts, new, epoch=epoch, state=state.decode() or "closed")
    if await store.run(REBUILD, keys, (fenced, packed)) != 1:
        raise RebuildRaced(f"{place} is being rebuilt by somebody else; nothing was written")
    return Rebuilt(
        place, epoch, facts.pool.capacity, len(facts.claims), new.holds_kept, tuple(new.holds_dropped),
        tuple(new.bookings_dropped), len(picture.records) - len(old), on_sale=state == b"rebuilding",
    )  # fmt: skip


async def _old_fields(store: Store, key: str) -> list[bytes]:
    """Records and pointers as they are; a key of another type has none."""
    try:
        found: list[bytes] = await store.call("HGETALL", key)
    except ServerError as error:
        if error.code != "WRONGTYPE":
            raise
        return []
    return found


def _packed(facts: PoolFacts, new: RestoredPool, *, epoch: int, state: str) -> bytes:
    pool = facts.pool
    fields = {
        "epoch": epoch, "state": state, "capacity": pool.capacity, "held": new.held, "sold": new.sold,
        "price": pool.price, "limit": pool.limit, "one_per_buyer": int(pool.one_per_buyer),
    }  # fmt: skip
    records = {identifier: record.line() for identifier, record in new.records.items()}
    records |= {f"@{owner}": identifier for owner, identifier in new.pointers.items()}
    index = [str(item) for identifier, at in new.index.items() for item in (at, identifier)]
    return _pack([_flat(fields), _flat(records), index])


def _flat(fields: Mapping[str, object]) -> list[str]:
    return [str(item) for pair in fields.items() for item in pair]
