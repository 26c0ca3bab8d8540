"""Prices in the hot store follow the seller's, for claims made from now on. Repeats and late ones change nothing."""

from collections.abc import Sequence

from aisle.errors import StoreScriptFailed
from aisle.messages import POOL, PriceChanged
from aisle.reservation.keys import Place, subsection_keys
from aisle.reservation.pool import PoolPlace, pool_keys
from aisle.scripts import load_script
from aisle.store import Store

PRICE = load_script("aisle.reservation", "price")


async def set_prices(store: Store, changes: Sequence[PriceChanged]) -> None:
    """Raises LookupError for a subsection or pool that the store does not have."""
    calls = [
        ((_config_key(store.prefix, change, number),), (change.price, change.revision))
        for change in changes
        for number in change.subsections
    ]
    for (keys, _), reply in zip(calls, await store.run_many(PRICE, calls) if calls else [], strict=True):
        if isinstance(reply, StoreScriptFailed):
            raise reply
        if reply == -1:
            raise LookupError(f"{keys[0]} does not exist, so it has no price to change")


def _config_key(prefix: str, change: PriceChanged, number: int) -> str:
    if number == POOL:
        return pool_keys(prefix, PoolPlace(change.event, change.section))[0]
    return subsection_keys(prefix, Place(change.event, change.section, number))[1]
