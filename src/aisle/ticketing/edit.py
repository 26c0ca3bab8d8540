"""Change what may be changed of an event: its words and its prices. Seats and places stay as they were described.

A new price is for claims made from now on: whoever holds or has booked keeps the price they were given. The store is
told through the outbox, in the transaction of the change; revisions make the order of the messages irrelevant.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import asyncpg
import msgspec
from msgspec import Meta

from aisle.audit import Deed, note
from aisle.errors import Problem
from aisle.messages import PriceChanged
from aisle.once import Asked, recall, remember
from aisle.ticketing import store
from aisle.ticketing.event import POOLS_MAX, SECTIONS_MAX, EventState, Name, Price, SectionName

PRICE_SECTIONS = """
    update ticketing.sections s set price = n.price, price_revision = s.price_revision + 1
    from unnest($2::text[], $3::bigint[]) as n(name, price)
    where s.event_id = $1 and s.section = n.name and s.price <> n.price
    returning s.section as name, s.partition, s.price, s.price_revision
"""

PRICE_POOLS = """
    update ticketing.pools p set price = n.price, price_revision = p.price_revision + 1
    from unnest($2::text[], $3::bigint[]) as n(name, price)
    where p.event_id = $1 and p.pool = n.name and p.price <> n.price
    returning p.pool as name, p.partition, p.price, p.price_revision
"""

NAMES = """
    select section as name from ticketing.sections where event_id = $1
    union all select pool from ticketing.pools where event_id = $1
"""


class EventChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is. `prices` are by the name of a section or pool."""

    name: Name | None = None
    description: Annotated[str, Meta(max_length=5000)] | None = None
    venue: Annotated[str, Meta(max_length=200)] | None = None
    prices: Annotated[dict[SectionName, Price], Meta(max_length=SECTIONS_MAX + POOLS_MAX)] = {}


async def edit_event(
    database: asyncpg.Pool, event_id: int, change: EventChange, request: Asked, *, now: datetime
) -> store.Event:
    """The event as it is now. Refused as a whole if it is not the caller's, not ready yet, or has no such section."""
    async with database.acquire() as connection, connection.transaction():
        earlier = await recall(connection, request, store.Event, now=now)
        if earlier is not None:
            return earlier
        event = await store.change_event(
            connection, event_id, request.account, change.name, change.description, change.venue, now=now
        )
        if event is None:
            raise Problem(404, "not_found", "no such event")
        if event.state == EventState.CREATING:
            raise Problem(409, "event_not_ready", "its seats are still being written")
        await _require_names(connection, event_id, change.prices)
        told = await _price(connection, event, change.prices)
        await store.write_outbox(connection, told, now=now)
        await remember(connection, request, event)
        if told:
            prices = {one.section: one.price for one in told}
            await note(connection, Deed.PRICES_CHANGED, actor=request.account, subject=event_id, detail=prices)
    return event


async def _require_names(connection: asyncpg.Connection, event_id: int, prices: Mapping[str, int]) -> None:
    known = {row["name"] for row in await connection.fetch(NAMES, event_id)} if prices else set()
    for name in prices.keys() - known:
        raise Problem(404, "unknown_section", f"there is no section or pool {name!r}")


async def _price(connection: asyncpg.Connection, event: store.Event, prices: Mapping[str, int]) -> list[PriceChanged]:
    """New prices in the rows, and what the store is to hear of those that differ."""
    arguments = event.id, list(prices), list(prices.values())
    changed = [*await connection.fetch(PRICE_SECTIONS, *arguments), *await connection.fetch(PRICE_POOLS, *arguments)]
    numbers: dict[str, list[int]] = defaultdict(list)
    for section, number in (await store.places_of(connection, [event.id])).get(event.id, {}):
        numbers[section].append(number)
    return [
        PriceChanged(
            id=f"{event.id}.{row['name']}.price.{row['price_revision']}",
            lane=event.lane,
            event=event.id,
            section=row["name"],
            partition=row["partition"],
            epoch=event.epoch,
            subsections=tuple(numbers[row["name"]]),
            price=row["price"],
            revision=row["price_revision"],
        )
        for row in changed
    ]
