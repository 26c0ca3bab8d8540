"""Create an event: its rows, its ticket rows and the messages that open its seats in the store, in one transaction.

The event cannot be sold yet. It becomes ready when the seats in the store were compared with the tickets here.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby

import asyncpg

from aisle.errors import Problem
from aisle.messages import Message, OpenedPool, SeatsInitialized
from aisle.messages import Subhall as OpenedSubhall
from aisle.once import Asked, recall, remember
from aisle.ticketing import store, ticket_store
from aisle.ticketing.event import BadDescription, Description, Subhall, partition_of, plan_hall, plan_pools
from aisle.ticketing.pool import Pool

SUBSECTIONS_PER_MESSAGE = 50


async def create_event(
    database: asyncpg.Pool, description: Description, request: Asked, *, own_lane_from_seats: int, now: datetime
) -> store.Event:
    """The event of whoever asks; asked again under the same key, the same event."""
    try:
        hall = plan_hall(description)
    except BadDescription as error:
        raise Problem(422, "bad_event", str(error)) from None
    pools = plan_pools(description, hall)
    async with database.acquire() as connection:
        async with connection.transaction():
            earlier = await recall(connection, request, store.Event, now=now)
            if earlier is not None:
                return earlier
            event = await store.insert_event(
                connection, request.account, description, hall, pools, own_lane_from_seats=own_lane_from_seats, now=now
            )
            await store.write_outbox(connection, list(opening_messages(event, hall, pools)), now=now)
            await remember(connection, request, event)
        await ticket_store.analyze_tickets(connection)
    return event


def opening_messages(event: store.Event, hall: Sequence[Subhall], pools: Sequence[Pool] = ()) -> Iterator[Message]:
    for number, (section, group) in enumerate(groupby(hall, key=lambda sub: sub.section)):
        subs = list(group)
        for start in range(0, len(subs), SUBSECTIONS_PER_MESSAGE):
            yield SeatsInitialized(
                id=f"{event.id}.{section}.{start}",
                lane=event.lane,
                event=event.id,
                section=section,
                partition=partition_of(number),
                epoch=event.epoch,
                limit=event.seats_per_booking,
                halls=tuple(_opened(sub) for sub in subs[start : start + SUBSECTIONS_PER_MESSAGE]),
            )
    for pool in pools:
        yield SeatsInitialized(
            id=f"{event.id}.{pool.pool}.0",
            lane=event.lane,
            event=event.id,
            section=pool.pool,
            partition=pool.partition,
            epoch=event.epoch,
            limit=pool.places_per_buyer,
            halls=(),
            pools=(OpenedPool(pool.pool, pool.capacity, pool.price, pool.places_per_buyer, pool.one_hold_per_buyer),),
        )


def _opened(sub: Subhall) -> OpenedSubhall:
    return OpenedSubhall(sub.subsection, sub.rows, sub.seats_per_row, sub.price, sub.place, sub.blocked, sub.accessible)
