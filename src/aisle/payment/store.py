"""Payments, refunds and notices in PostgreSQL. Every move compares the state it expects; the table of moves decides.

Whoever needs more than one lock takes bookings first, then payments, then tickets: nobody waits in a circle.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
import msgspec

from aisle.messages import Part
from aisle.payment.payment import MOVES, OPEN, Payment, PaymentState, Refund
from aisle.payment.provider import Notice

COLUMNS = ", ".join(Payment.__struct_fields__)
REFUND_COLUMNS = ", ".join(Refund.__struct_fields__)

_parts = msgspec.json.Decoder(tuple[Part, ...]).decode

INSERT = """
    insert into payment.payments
        (id, booking, buyer, event_id, provider, method, amount, currency, idempotency_key, request_hash, started_at,
         look_at)
    select p.*, $11, $12 from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[],
                                     $7::bigint[], $8::text[], $9::text[], $10::bytea[]) as p
    on conflict do nothing returning id
"""

# Taken for a while, so that of many resolvers one asks; whoever dies with it leaves it to the next after `$2`.
DUE = f"""
    update payment.payments set look_at = $2, looks = looks + 1 where id in (
        select id from payment.payments where look_at <= $1 and state = any($3::text[])
        order by look_at limit $4 for update skip locked
    ) returning {COLUMNS}
"""
DUE_REFUNDS = f"""
    update payment.refunds set look_at = $2, looks = looks + 1 where id in (
        select id from payment.refunds where look_at <= $1 and state = 'ASKED'
        order by look_at limit $3 for update skip locked
    ) returning {REFUND_COLUMNS}
"""


class NewPayment(msgspec.Struct, frozen=True):
    id: UUID
    booking: UUID
    buyer: UUID
    event_id: int
    provider: str
    method: str
    amount: int
    currency: str
    idempotency_key: str
    request_hash: bytes


async def earlier(
    connection: asyncpg.Connection, keys: Sequence[tuple[UUID, str]]
) -> dict[tuple[UUID, str], tuple[Payment, bytes]]:
    """Payments that were begun with these keys of their buyers, with the hash of what was asked."""
    rows = await connection.fetch(
        f"""select {COLUMNS}, idempotency_key, request_hash from payment.payments
            where (buyer, idempotency_key) in (select * from unnest($1::uuid[], $2::text[]))""",
        [buyer for buyer, _ in keys],
        [key for _, key in keys],
    )
    return {(row["buyer"], row["idempotency_key"]): (payment_of(row), bytes(row["request_hash"])) for row in rows}


async def insert(
    connection: asyncpg.Connection, payments: Sequence[NewPayment], *, now: datetime, look_at: datetime
) -> set[UUID]:
    """Begin payments; returns those that were. Where a key or the booking's one payment is in the way, none is."""
    columns = [[getattr(payment, name) for payment in payments] for name in NewPayment.__struct_fields__]
    return {row["id"] for row in await connection.fetch(INSERT, *columns, now, look_at)}


async def lock(connection: asyncpg.Connection, ids: Sequence[UUID]) -> dict[UUID, Payment]:
    rows = await connection.fetch(
        f"select {COLUMNS} from payment.payments where id = any($1::uuid[]) order by id for update", list(ids)
    )
    return {row["id"]: payment_of(row) for row in rows}


async def find(connection: asyncpg.Connection, id: UUID) -> Payment | None:
    row = await connection.fetchrow(f"select {COLUMNS} from payment.payments where id = $1", id)
    return payment_of(row) if row else None


async def of_booking(connection: asyncpg.Connection, booking: UUID, buyer: UUID) -> list[Payment]:
    """A buyer's payments for a booking, the latest first."""
    rows = await connection.fetch(
        f"select {COLUMNS} from payment.payments where booking = $1 and buyer = $2 order by id desc", booking, buyer
    )
    return [payment_of(row) for row in rows]


async def kept_for(connection: asyncpg.Connection, booking: UUID) -> Payment | None:
    """The payment that bought this booking, locked."""
    row = await connection.fetchrow(
        f"select {COLUMNS} from payment.payments where booking = $1 and state = 'CAPTURED' for update", booking
    )
    return payment_of(row) if row else None


async def in_review(connection: asyncpg.Connection, events: Sequence[int] | None, limit: int) -> list[Payment]:
    """Payments that wait for a person's decision, the oldest first; for these events, or for all."""
    rows = await connection.fetch(
        f"""select {COLUMNS} from payment.payments
            where state = 'REVIEW' and ($1::bigint[] is null or event_id = any($1)) order by id limit $2""",
        events,
        limit,
    )
    return [payment_of(row) for row in rows]


async def note_held(connection: asyncpg.Connection, id: UUID, amount: int, currency: str) -> None:
    """Write down what the provider has, where it is not what was asked for."""
    await connection.execute(
        """update payment.payments
           set held = case when ($2, $3) = (amount, currency::text) then null else $2 end,
               held_currency = case when ($2, $3) = (amount, currency::text) then null else $3 end
           where id = $1""",
        id,
        amount,
        currency,
    )


async def note_decision(connection: asyncpg.Connection, id: UUID, decision: str) -> None:
    await connection.execute("update payment.payments set decision = $2 where id = $1", id, decision)


async def move(
    connection: asyncpg.Connection,
    moves: Sequence[tuple[UUID, str]],
    target: PaymentState,
    *,
    now: datetime,
    reason: str = "",
    action: str = "",
    taken: bool = False,
) -> set[UUID]:
    """Move payments (id, the provider's reference) to a state that the table allows; returns those that moved."""
    rows = await connection.fetch(
        """update payment.payments p
           set state = $3, reference = case when m.reference = '' then p.reference else m.reference end,
               reason = $4, action = $5, taken = p.taken or $6,
               ended_at = case when $7 then $8::timestamptz else null end, look_at = $9,
               late_at = case when $3 = 'LATE' then $8::timestamptz else p.late_at end
           from unnest($1::uuid[], $2::text[]) as m(id, reference)
           where p.id = m.id and p.state = any($10::text[]) returning p.id""",
        [id for id, _ in moves],
        [reference for _, reference in moves],
        target.value,
        reason[:200],
        action,
        taken,
        target not in OPEN,
        now,
        now + timedelta(seconds=0 if target is PaymentState.LATE else 10),
        [state.value for state in PaymentState if target in MOVES[state]],
    )
    return {row["id"] for row in rows}


async def due(connection: asyncpg.Connection, *, now: datetime, lease: timedelta, limit: int) -> list[Payment]:
    """Payments that want to be gone on with, taken for `lease`."""
    rows = await connection.fetch(DUE, now, now + lease, [state.value for state in OPEN], limit)
    return [payment_of(row) for row in rows]


async def postpone(connection: asyncpg.Connection, id: UUID, look_at: datetime) -> None:
    await connection.execute("update payment.payments set look_at = $2 where id = $1", id, look_at)


async def ask_refund(
    connection: asyncpg.Connection, refund: Refund, *, key: str, seats: Collection[Part], now: datetime
) -> None:
    """Owe money back. The amount counts against its payment at once, so it can never be owed twice.

    What cost nothing is done at once, and written down for whoever asks again.
    """
    await connection.execute(
        """insert into payment.refunds
               (id, payment, booking, amount, currency, why, seats, idempotency_key, asked_at, look_at, state, done_at)
           values ($1, $2, $3, $4::bigint, $5, $6, $7, $8, $9, $9,
                   case when $4::bigint = 0 then 'DONE' else 'ASKED' end,
                   case when $4::bigint = 0 then $9::timestamptz end)""",
        refund.id, refund.payment, refund.booking, refund.amount, refund.currency, refund.why,
        msgspec.json.encode(tuple(seats)).decode(), key, now,
    )  # fmt: skip
    await connection.execute(
        "update payment.payments set refunded = refunded + $2 where id = $1", refund.payment, refund.amount
    )


async def refund_with_key(connection: asyncpg.Connection, booking: UUID, key: str) -> tuple[Refund, bytes] | None:
    """An earlier refund of the booking with this key, and the seats it was for."""
    row = await connection.fetchrow(
        f"select {REFUND_COLUMNS}, seats from payment.refunds where booking = $1 and idempotency_key = $2", booking, key
    )
    return (refund_of(row), row["seats"].encode()) if row else None


async def refunds_of(connection: asyncpg.Connection, payments: Sequence[UUID]) -> list[Refund]:
    rows = await connection.fetch(
        f"select {REFUND_COLUMNS} from payment.refunds where payment = any($1::uuid[]) order by id", list(payments)
    )
    return [refund_of(row) for row in rows]


async def due_refunds(connection: asyncpg.Connection, *, now: datetime, lease: timedelta, limit: int) -> list[Refund]:
    return [refund_of(row) for row in await connection.fetch(DUE_REFUNDS, now, now + lease, limit)]


async def refund_done(connection: asyncpg.Connection, id: UUID, *, now: datetime) -> bool:
    moved = await connection.fetchval(
        "update payment.refunds set state = 'DONE', done_at = $2 where id = $1 and state = 'ASKED' returning id",
        id,
        now,
    )
    return moved is not None


async def postpone_refund(connection: asyncpg.Connection, id: UUID, look_at: datetime) -> None:
    await connection.execute("update payment.refunds set look_at = $2 where id = $1", id, look_at)


async def plan_seats_again(connection: asyncpg.Connection, id: UUID, tries: int, parts: Sequence[Part] | None) -> bool:
    """Write down which seats the next try takes, before it takes them; false if another process has gone on."""
    moved = await connection.fetchval(
        """update payment.payments set tries = $2, seats_again = $3
           where id = $1 and tries = $2 - 1 and state = 'LATE' returning id""",
        id,
        tries,
        None if parts is None else msgspec.json.encode(tuple(parts)).decode(),
    )
    return moved is not None


async def end_try(connection: asyncpg.Connection, id: UUID, tries: int) -> None:
    """The seats of this try were gone; the next one looks for others."""
    await connection.execute(
        "update payment.payments set seats_again = null where id = $1 and tries = $2 and state = 'LATE'", id, tries
    )


async def seat_again(connection: asyncpg.Connection, id: UUID, booking: UUID) -> None:
    """The payment buys this booking now."""
    await connection.execute("update payment.payments set booking = $2 where id = $1", id, booking)


async def note_heard(connection: asyncpg.Connection, provider: str, notice: Notice, *, now: datetime) -> bool:
    """Write a webhook down; false if it was heard before."""
    new = await connection.fetchval(
        """insert into payment.notices (provider, id, payment, kind, heard_at) values ($1, $2, $3, $4, $5)
           on conflict do nothing returning id""",
        provider,
        notice.id,
        notice.payment,
        notice.kind,
        now,
    )
    return new is not None


def payment_of(row: asyncpg.Record) -> Payment:
    values = {name: row[name] for name in Payment.__struct_fields__}
    again = values["seats_again"]
    return Payment(
        **{**values, "state": PaymentState(values["state"]), "seats_again": None if again is None else _parts(again)}
    )


def refund_of(row: asyncpg.Record) -> Refund:
    return Refund(**{name: row[name] for name in Refund.__struct_fields__})
