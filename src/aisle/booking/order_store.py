"""Orders on their way into PostgreSQL, and what they count against their buyers' limits: the SQL of placing.

Limits and idempotency are constraints inside the statement that writes the booking, so that no two requests, in
whatever processes, can both pass a check that only one of them may. What becomes of a booking is in `store`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from aisle.booking.booking import Request
from aisle.messages import Part

_json = msgspec.json.Encoder().encode
request_of = msgspec.json.Decoder(Request).decode
parts_of = msgspec.json.Decoder(tuple[Part, ...]).decode

# One statement: find earlier bookings with the same key, count the rest against the buyer's limit, write what passes.
# A twin in another process that came between the look and the write breaks the key's constraint: then nothing of the
# batch was written or counted, and the next try finds the twin.
PLACE = """
    with asked as (
        select * from unnest($1::uuid[], $2::bigint[], $3::text[], $4::uuid[], $5::jsonb[], $6::int[], $7::text[],
                             $8::bytea[], $9::int[], $11::smallint[], $12::int[], $13::text[])
            as a(id, event_id, lane, buyer, request, quantity, idempotency_key, request_hash, seats_max,
                 partition, epoch, pool)
    ), earlier as (
        select b.id, b.buyer, b.idempotency_key, b.request_hash
        from booking.bookings b join asked a using (buyer, idempotency_key)
    ), counted as (
        insert into booking.purchases as p (event_id, buyer, pool, seats, seats_max)
        select event_id, buyer, pool, quantity, seats_max from asked
        where (buyer, idempotency_key) not in (select buyer, idempotency_key from earlier)
        on conflict (event_id, buyer, pool) do update
            set seats = p.seats + excluded.seats, seats_max = excluded.seats_max
            where p.seats + excluded.seats <= excluded.seats_max
        returning event_id, buyer, pool
    ), placed as (
        insert into booking.bookings
            (id, event_id, lane, partition, epoch, buyer, request, quantity, idempotency_key, request_hash, placed_at)
        select a.id, a.event_id, a.lane, a.partition, a.epoch, a.buyer, a.request, a.quantity, a.idempotency_key,
               a.request_hash, $10
        from asked a join counted c using (event_id, buyer, pool)
        returning id
    )
    select a.id, e.id as earlier_id, e.request_hash as earlier_hash, p.id is not null as placed
    from asked a
    left join earlier e using (buyer, idempotency_key)
    left join placed p on p.id = a.id
"""

# In the order in which `place` takes these rows, so that the two cannot wait for each other.
LOCK_PURCHASES = """
    select 1 from booking.purchases
    where (event_id, buyer, pool) in (select * from unnest($1::bigint[], $2::uuid[], $3::text[]))
    order by event_id, buyer, pool for update
"""

UNCOUNT = """
    update booking.purchases p set seats = p.seats - u.seats
    from (select event_id, buyer, pool, sum(seats) as seats
          from unnest($1::bigint[], $2::uuid[], $3::text[], $4::int[]) as u(event_id, buyer, pool, seats)
          group by 1, 2, 3) u
    where (p.event_id, p.buyer, p.pool) = (u.event_id, u.buyer, u.pool)
"""

# What says that a batch was not placed and may be tried again: it stood in somebody's way, or met a twin.
NOT_PLACED = (asyncpg.DeadlockDetectedError, asyncpg.UniqueViolationError)


class Placing(msgspec.Struct, frozen=True):
    """One request on its way into the database."""

    id: UUID
    event_id: int
    lane: str
    buyer: UUID
    request: Request
    idempotency_key: str
    request_hash: bytes
    seats_max: int
    partition: int = 0
    epoch: int = 1


class Placed(msgspec.Struct, frozen=True):
    """What became of it: a new booking, an earlier one with the same key, or a refusal."""

    id: UUID
    new: bool = False
    over_limit: bool = False
    other_request: bool = False


async def place(connection: asyncpg.Connection, placings: Sequence[Placing], *, now: datetime) -> list[Placed]:
    """Write a batch in which no buyer occurs twice; it is a transaction by itself.

    Raises UniqueViolationError, and has done nothing, if a twin of one was written meanwhile: to be tried again.
    """
    # Every process takes the buyers' rows in the same order, so that two batches cannot wait for each other.
    asked, placings = placings, sorted(placings, key=lambda p: (p.event_id, p.buyer))
    rows = await connection.fetch(
        PLACE,
        [p.id for p in placings],
        [p.event_id for p in placings],
        [p.lane for p in placings],
        [p.buyer for p in placings],
        [_json(p.request).decode() for p in placings],
        [p.request.quantity for p in placings],
        [p.idempotency_key for p in placings],
        [p.request_hash for p in placings],
        [p.seats_max for p in placings],
        now,
        [p.partition for p in placings],
        [p.epoch for p in placings],
        [p.request.pool or "" for p in placings],
    )
    found = {row["id"]: row for row in rows}
    answers = [_placed(p, found[p.id]) for p in asked]
    if any(answer.over_limit for answer in answers):
        return await _with_earlier(connection, asked, answers)
    return answers


def _placed(placing: Placing, row: asyncpg.Record) -> Placed:
    if row["placed"]:
        return Placed(placing.id, new=True)
    if row["earlier_id"] is not None:
        return Placed(row["earlier_id"], other_request=bytes(row["earlier_hash"]) != placing.request_hash)
    return Placed(placing.id, over_limit=True)


async def _with_earlier(
    connection: asyncpg.Connection, placings: Sequence[Placing], answers: Sequence[Placed]
) -> list[Placed]:
    """A request that did not get through may be the twin of one that did a moment ago: then that one answers."""
    rows = await connection.fetch(
        """select b.id, b.buyer, b.idempotency_key, b.request_hash from booking.bookings b
           join unnest($1::uuid[], $2::text[]) as a(buyer, idempotency_key) using (buyer, idempotency_key)""",
        [p.buyer for p in placings],
        [p.idempotency_key for p in placings],
    )
    standing = {(row["buyer"], row["idempotency_key"]): row for row in rows}
    mended = []
    for placing, answer in zip(placings, answers, strict=True):
        row = standing.get((placing.buyer, placing.idempotency_key))
        if answer.over_limit and row is not None:
            answer = Placed(row["id"], other_request=bytes(row["request_hash"]) != placing.request_hash)
        mended.append(answer)
    return mended


async def known_keys(connection: asyncpg.Connection, keys: Sequence[tuple[UUID, str]]) -> set[tuple[UUID, str]]:
    """Those of the buyers' idempotency keys that belong to a booking."""
    rows = await connection.fetch(
        """select buyer, idempotency_key from booking.bookings
           join unnest($1::uuid[], $2::text[]) as a(buyer, idempotency_key) using (buyer, idempotency_key)""",
        [buyer for buyer, _ in keys],
        [key for _, key in keys],
    )
    return {(row["buyer"], row["idempotency_key"]) for row in rows}


async def placing_of_key(connection: asyncpg.Connection, buyer: UUID, key: str) -> Placing | None:
    """What an earlier request with this key has placed, enough to finish it."""
    row = await connection.fetchrow(
        """select id, event_id, lane, partition, epoch, request, request_hash from booking.bookings
           where buyer = $1 and idempotency_key = $2""",
        buyer,
        key,
    )
    if row is None:
        return None
    return Placing(
        row["id"], row["event_id"], row["lane"], buyer, request_of(row["request"]), key, bytes(row["request_hash"]), 0,
        row["partition"], row["epoch"],
    )  # fmt: skip


async def stale_placings(
    connection: asyncpg.Connection, *, not_asked_since: datetime, limit: int, now: datetime
) -> list[Placing]:
    """Bookings that still wait for the answer of the reservation service, those first that were asked for long ago.

    They count as asked for now; processes that do this at once share them.
    """
    rows = await connection.fetch(
        """update booking.bookings b set asked_at = $3 from (
               select id from booking.bookings
               where state = 'PROCESSING' and placed_at < $1 and (asked_at is null or asked_at < $1)
               order by asked_at nulls first, placed_at limit $2 for update skip locked
           ) as waiting
           where b.id = waiting.id
           returning b.id, b.event_id, b.lane, b.partition, b.epoch, b.buyer, b.request""",
        not_asked_since,
        limit,
        now,
    )
    return [
        Placing(
            row["id"], row["event_id"], row["lane"], row["buyer"], request_of(row["request"]), "", b"", 0,
            row["partition"], row["epoch"],
        )
        for row in rows
    ]  # fmt: skip


class Count(NamedTuple):
    """What a booking counts against one limit of its buyer: seats of the hall, or places of a pool."""

    event_id: int
    buyer: UUID
    pool: str
    seats: int


async def count_bought(connection: asyncpg.Connection, event: int, buyer: UUID, pool: str) -> int:
    """How many seats of an event's hall, or places of a pool, a buyer has live."""
    found = await connection.fetchval(
        "select seats from booking.purchases where event_id = $1 and buyer = $2 and pool = $3", event, buyer, pool
    )
    return found or 0


async def uncount(connection: asyncpg.Connection, counts: Sequence[Count]) -> None:
    """Seats and places that no longer count against their buyers' limits."""
    keys = [c.event_id for c in counts], [c.buyer for c in counts], [c.pool for c in counts]
    await connection.execute(LOCK_PURCHASES, *keys)
    await connection.execute(UNCOUNT, *keys, [c.seats for c in counts])


def counts_of(row: Mapping[str, Any]) -> list[Count]:
    """What a booking was counted for: its request, or by its parts where it was put together from a cart."""
    event_id, buyer, quantity = row["event_id"], row["buyer"], row["quantity"]
    asked_of = request_of(row["request"]).pool
    if asked_of is not None:
        return [Count(event_id, buyer, asked_of, quantity)]
    pools = [Count(event_id, buyer, p.section, len(p.seats)) for p in parts_of(row["parts"]) if p.in_pool]
    seats = quantity - sum(count.seats for count in pools)
    return [*([Count(event_id, buyer, "", seats)] if seats else []), *pools]
