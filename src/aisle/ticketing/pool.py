"""Pools of an event as a seller describes them: places that are counted, not numbered. Pure.

General admission, a parking deck, a session with capacity. A pool has its own price and its own limit a buyer. In
PostgreSQL each of its places is a ticket row all the same, numbered after the subsections: one row, one owner.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

PLACES_PER_BUYER_MAX = 1_000

PoolName = Annotated[str, Meta(pattern="^[A-Za-z0-9_]{1,32}$")]


class PoolPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`one_hold_per_buyer`: whoever holds places of this pool holds no more of it until the hold has ended."""

    name: PoolName
    price: Annotated[int, Meta(ge=0, lt=10**10, description="Minor units of the event's currency.")]
    capacity: Annotated[int, Meta(ge=1, le=1_000_000)]
    places_per_buyer: Annotated[int, Meta(ge=1, le=PLACES_PER_BUYER_MAX)] = 10
    one_hold_per_buyer: bool = False


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool of an event. `place` is its number among the event's subsections and pools."""

    pool: str
    place: int
    partition: int
    price: int
    capacity: int
    places_per_buyer: int
    one_hold_per_buyer: bool
