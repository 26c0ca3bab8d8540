"""Bookings in PostgreSQL: the SQL of this slice. Every statement takes a batch and compares the state it expects.

Limits and idempotency are constraints inside the statement that writes the booking, so that no two requests, in
whatever processes, can both pass a check that only one of them may.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from aisle.booking.booking import Booking, Request, State, sources_of
from aisle.messages import Message, Part, encode

_json = msgspec.json.Encoder().encode
request_of = msgspec.json.Decoder(Request).decode
parts_of = msgspec.json.Decoder(tuple[Part, ...]).decode

COLUMNS = "id, event_id, state, quantity, parts, total, reason, placed_at, deadline, ended_at"

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

TO_PENDING_PAYMENT = """
    update booking.bookings b
    set state = 'PENDING_PAYMENT', parts = o.parts, total = o.total, deadline = $4
    from unnest($1::uuid[], $2::jsonb[], $3::bigint[]) as o(id, parts, total)
    where b.id = o.id and b.state = 'PROCESSING'
    returning b.id, b.buyer
"""

TO_ENDED = """
    update booking.bookings b set state = $2, reason = o.reason, ended_at = $3
    from unnest($1::uuid[], $4::text[]) as o(id, reason)
    where b.id = o.id and b.state = any($5::text[])
    returning b.id, b.event_id, b.lane, b.partition, b.epoch, b.buyer, b.quantity, b.parts,
              b.request
"""


LOCK = """
    select id, event_id, lane, partition, epoch, buyer, state, quantity, parts, total, reason, deadline, request
    from booking.bookings where id = any($1::uuid[]) order by id for update
"""

# A notification carries less than 8,000 bytes; "<buyer>:<booking>," is 74.
NOTIFY_PAIRS_MAX = 100

CURRENT = f"""
    select b.buyer, {COLUMNS} from unnest($1::uuid[]) as asked(buyer) cross join lateral (
        select * from booking.bookings
        where buyer = asked.buyer and (ended_at is null or ended_at > $2) order by id desc limit $3
    ) b
"""


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


# What says that a batch was not placed and may be tried again: it stood in somebody's way, or met a twin.
NOT_PLACED = (asyncpg.DeadlockDetectedError, asyncpg.UniqueViolationError)


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


class Count(NamedTuple):
    """What a booking counts against one limit of its buyer: seats of the hall, or places of a pool."""

    event_id: int
    buyer: UUID
    pool: str
    seats: int


async def known_keys(connection: asyncpg.Connection, keys: Sequence[tuple[UUID, str]]) -> set[tuple[UUID, str]]:
    """Those of the buyers' idempotency keys that belong to a booking."""
    rows = await connection.fetch(
        """select buyer, idempotency_key from booking.bookings
           join unnest($1::uuid[], $2::text[]) as a(buyer, idempotency_key) using (buyer, idempotency_key)""",
        [buyer for buyer, _ in keys],
        [key for _, key in keys],
    )
    return {(row["buyer"], row["idempotency_key"]) for row in rows}


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


async def bookings_of(connection: asyncpg.Connection, ids: Sequence[UUID]) -> list[Booking]:
    rows = await connection.fetch(f"select {COLUMNS} from booking.bookings where id = any($1::uuid[])", list(ids))
    return [_booking(row) for row in rows]


def _booking(row: Mapping[str, Any]) -> Booking:
    values = dict(row)
    return Booking(**{**values, "state": State(values["state"]), "parts": parts_of(values["parts"])})


async def to_pending_payment(
    connection: asyncpg.Connection, given: Sequence[tuple[UUID, tuple[Part, ...]]], *, deadline: datetime
) -> set[UUID]:
    """PROCESSING -> PENDING_PAYMENT with the seats that were found; returns which. Others stay as they are."""
    rows = await connection.fetch(
        TO_PENDING_PAYMENT,
        [id for id, _ in given],
        [_json(parts).decode() for _, parts in given],
        [sum(part.price * len(part.seats) for part in parts) for _, parts in given],
        deadline,
    )
    await tell_watchers(connection, rows)
    return {row["id"] for row in rows}


async def lock(connection: asyncpg.Connection, ids: Sequence[UUID]) -> dict[UUID, asyncpg.Record]:
    """Bookings as they are and stay until the transaction ends; always taken in the same order."""
    return {row["id"]: row for row in await connection.fetch(LOCK, list(ids))}


async def move(connection: asyncpg.Connection, ids: Sequence[UUID], target: State) -> set[UUID]:
    """Move bookings to a state that is no end, where the table of moves allows it; returns those that moved."""
    rows = await connection.fetch(
        """update booking.bookings set state = $2 where id = any($1::uuid[]) and state = any($3::text[])
           returning id, buyer""",
        list(ids),
        target.value,
        sources_of(target),
    )
    await tell_watchers(connection, rows)
    return {row["id"] for row in rows}


async def say_why(connection: asyncpg.Connection, reasons: Sequence[tuple[UUID, str]]) -> None:
    """Tell the buyers more about what became of their bookings; no state changes."""
    rows = await connection.fetch(
        """update booking.bookings b set reason = o.reason from unnest($1::uuid[], $2::text[]) as o(id, reason)
           where b.id = o.id returning b.id, b.buyer""",
        [id for id, _ in reasons],
        [why for _, why in reasons],
    )
    await tell_watchers(connection, rows)


async def keep_only(connection: asyncpg.Connection, row: asyncpg.Record, parts: tuple[Part, ...]) -> None:
    """A booking goes on with fewer seats: those that left it count no more for its buyer."""
    kept = _json(parts).decode()
    left = sum(len(part.seats) for part in parts)
    await connection.execute(
        "update booking.bookings set parts = $2, total = $3, quantity = $4 where id = $1",
        row["id"],
        kept,
        sum(part.price * len(part.seats) for part in parts),
        left,
    )
    counted = {count.pool: count.seats for count in counts_of({**row, "parts": kept, "quantity": left})}
    gone = [count._replace(seats=count.seats - counted.get(count.pool, 0)) for count in counts_of(row)]
    await uncount(connection, gone)
    await tell_watchers(connection, [row])


async def end(
    connection: asyncpg.Connection,
    reasons: Sequence[tuple[UUID, str]],
    state: State,
    *,
    now: datetime,
    sources: Sequence[State] = (),
) -> list[asyncpg.Record]:
    """Move bookings to an end state where the table of moves allows it; their seats stop counting for their buyers.

    `sources` narrows the table: what a buyer or a deadline may end is less than what a payment may.
    """
    if not reasons:
        return []
    allowed = [state.value for state in sources] or sources_of(state)
    rows = await connection.fetch(
        TO_ENDED, [id for id, _ in reasons], state.value, now, [why for _, why in reasons], allowed
    )
    if rows:
        await uncount(connection, [count for row in rows for count in counts_of(row)])
        await tell_watchers(connection, rows)
    return list(rows)


async def tell_watchers(connection: asyncpg.Connection, moved: Sequence[asyncpg.Record]) -> None:
    """Whoever listens hears of these bookings when, and only if, the transaction that moved them commits."""
    pairs = [f"{row['buyer']}:{row['id']}" for row in moved]
    if pairs:
        payloads = [",".join(pairs[n : n + NOTIFY_PAIRS_MAX]) for n in range(0, len(pairs), NOTIFY_PAIRS_MAX)]
        await connection.execute("select pg_notify('bookings', p) from unnest($1::text[]) p", payloads)


async def ended_bookings(connection: asyncpg.Connection, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Those of the bookings that have ended, with their buyers."""
    rows = await connection.fetch(
        """select id, buyer from booking.bookings
           where id = any($1::uuid[]) and state in ('CANCELLED', 'FAILED', 'REFUNDED')""",
        list(ids),
    )
    return {row["id"]: row["buyer"] for row in rows}


async def paid_bookings(connection: asyncpg.Connection, ids: Sequence[UUID]) -> set[UUID]:
    rows = await connection.fetch(
        "select id from booking.bookings where id = any($1::uuid[]) and state = 'PAID'", list(ids)
    )
    return {row["id"] for row in rows}


async def write_outbox(connection: asyncpg.Connection, messages: Sequence[Message], *, now: datetime) -> None:
    if messages:
        await connection.execute(
            "insert into booking.outbox (message, written_at) select m, $2 from unnest($1::bytea[]) as m",
            [encode(message) for message in messages],
            now,
        )


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


async def count_bought(connection: asyncpg.Connection, event: int, buyer: UUID, pool: str) -> int:
    """How many seats of an event's hall, or places of a pool, a buyer has live."""
    found = await connection.fetchval(
        "select seats from booking.purchases where event_id = $1 and buyer = $2 and pool = $3", event, buyer, pool
    )
    return found or 0


async def booking_of(connection: asyncpg.Connection, id: UUID, buyer: UUID) -> Booking | None:
    """A buyer's own booking; somebody else's is not found."""
    row = await connection.fetchrow(
        f"select {COLUMNS} from booking.bookings where id = $1 and buyer = $2",
        id,
        buyer,
    )
    return _booking(row) if row else None


async def owned(connection: asyncpg.Connection, ids: Sequence[UUID]) -> list[tuple[UUID, Booking]]:
    """Bookings with their buyers."""
    rows = await connection.fetch(f"select buyer, {COLUMNS} from booking.bookings where id = any($1)", list(ids))
    return [_owned(row) for row in rows]


async def current_of(
    connection: asyncpg.Connection, buyers: Sequence[UUID], *, ended_after: datetime, each: int
) -> list[tuple[UUID, Booking]]:
    """What each of the buyers has, newest first: everything live, and what ended after a moment."""
    return [_owned(row) for row in await connection.fetch(CURRENT, list(buyers), ended_after, each)]


def _owned(row: asyncpg.Record) -> tuple[UUID, Booking]:
    values = dict(row)
    return values.pop("buyer"), _booking(values)


async def history(connection: asyncpg.Connection, buyer: UUID, *, before: UUID | None, limit: int) -> list[Booking]:
    """A buyer's bookings, newest first; `before` is the last one of the page before."""
    rows = await connection.fetch(
        f"""select {COLUMNS} from booking.bookings where buyer = $1 and ($2::uuid is null or id < $2)
            order by id desc limit $3""",
        buyer,
        before,
        limit,
    )
    return [_booking(row) for row in rows]
