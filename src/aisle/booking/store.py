"""Bookings in PostgreSQL: how they are read and moved. Every statement takes a batch and compares the state it expects.

How they come in, and what they count against their buyers' limits, is in `order_store`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from aisle.booking.booking import Booking, State, sources_of
from aisle.booking.order_store import counts_of, parts_of, uncount
from aisle.messages import Message, Part, encode

_json = msgspec.json.Encoder().encode

COLUMNS = "id, event_id, state, quantity, parts, total, reason, placed_at, deadline, ended_at"


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
