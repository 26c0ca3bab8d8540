"""Take the places of an event into their next epoch as they are. Whoever calls it has compared them."""

from aisle.errors import StoreScriptFailed
from aisle.reservation.facts import EventFacts
from aisle.reservation.keys import subsection_keys
from aisle.reservation.pool import pool_keys
from aisle.reservation.rebuilt import RebuildRaced
from aisle.scripts import load_script
from aisle.store import Store

ADVANCE = load_script("aisle.reservation", "advance")


async def advance(store: Store, facts: EventFacts) -> int:
    """The epoch in which all places of these facts are now. Raises RebuildRaced if one was rebuilt meanwhile."""
    keys = config_keys(store, facts)
    found = await epochs_there(store, keys)
    known = [hall.epoch for hall in facts.halls] + [pool.epoch for pool in facts.pools]
    new = max(found + known, default=0) + 1
    calls = [((key,), (epoch, new)) for key, epoch in zip(keys, found, strict=True)]
    for key, reply in zip(keys, await store.run_many(ADVANCE, calls) if calls else [], strict=True):
        if isinstance(reply, StoreScriptFailed):
            raise reply
        if reply != 1:
            raise RebuildRaced(f"{key} is being rebuilt by somebody else")
    return new


def config_keys(store: Store, facts: EventFacts) -> list[str]:
    """The key of each place that has its epoch."""
    keys = [subsection_keys(store.prefix, known.hall.place)[1] for known in facts.halls]
    return keys + [pool_keys(store.prefix, known.pool.place)[0] for known in facts.pools]


async def epochs_there(store: Store, keys: list[str]) -> list[int]:
    """By key. One of another type, or without a number, is damage that a rebuild replaces: 0."""
    found = await store.call_many([("HGET", key, "epoch") for key in keys])
    return [int(epoch) if isinstance(epoch, bytes) and epoch.isdigit() else 0 for epoch in found]
