"""Cancel the bookings whose payment window has closed, and those whose buyers want no more.

Run by every booking process, any number at once. Rows are taken with SKIP LOCKED, so expirers share the work instead of
queueing, and a booking in PAYING is never touched: the payment decides.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import structlog

from aisle.booking import order_store, store
from aisle.booking.booking import State
from aisle.crash_points import crash_point
from aisle.errors import Problem
from aisle.limits import EXPIRE_ROWS_MAX
from aisle.messages import BookingExpired, Part
from aisle.once import Asked, recall, remember
from aisle.relay import Relay

OVERDUE = """
    select id from booking.bookings where state = 'PENDING_PAYMENT' and deadline <= $1
    order by deadline limit $2 for update skip locked
"""

# Neither a deadline nor a buyer ends a booking that is PAYING: the payment decides.
UNPAID = (State.PENDING_PAYMENT,)

UNANSWERED = """
    select id from booking.bookings where state = 'PROCESSING' and placed_at <= $1
    order by placed_at limit $2 for update skip locked
"""

log = structlog.get_logger()


async def expire_overdue(database: asyncpg.Pool, *, now: datetime) -> int:
    """Cancel up to EXPIRE_ROWS_MAX overdue bookings and announce them; returns how many.

    The announcement is in the outbox in the same transaction: a crash delays the seats' return, it cannot lose it.
    """
    async with database.acquire() as connection, connection.transaction():
        ids = [row["id"] for row in await connection.fetch(OVERDUE, now, EXPIRE_ROWS_MAX)]
        expired = await cancel_rows(connection, ids, "expired", UNPAID, now=now)
    if expired:
        crash_point("after_cancelled")
    return expired


async def give_up_unanswered(database: asyncpg.Pool, *, placed_before: datetime, now: datetime) -> int:
    """FAILED for bookings that nobody could answer in time; seats found for them later go back by themselves.

    A checkout may have turned its holds into the booking's claim before it died: that is given back as well.
    """
    async with database.acquire() as connection, connection.transaction():
        ids = [row["id"] for row in await connection.fetch(UNANSWERED, placed_before, EXPIRE_ROWS_MAX)]
        ended = await store.end(connection, [(id, "timeout") for id in ids], State.FAILED, now=now)
        held = [(row, order_store.request_of(row["request"]).held_parts) for row in ended]
        messages = [_give_back(row, parts, "timeout") for row, parts in held if parts]
        await store.write_outbox(connection, messages, now=now)
        return len(ended)


async def cancel(database: asyncpg.Pool, booking: UUID, request: Asked, *, now: datetime) -> None:
    """The buyer lets go. A booking that is not theirs is not found; one that is past cancelling is refused."""
    async with database.acquire() as connection, connection.transaction():
        if await recall(connection, request, str, now=now) is not None:
            return
        await remember(connection, request, State.CANCELLED)
        row = await connection.fetchrow(
            "select state from booking.bookings where id = $1 and buyer = $2 for update", booking, request.account
        )
        if row is None:
            raise Problem(404, "not_found", "no such booking")
        if row["state"] == State.CANCELLED:
            return
        if await cancel_rows(connection, [booking], "cancelled", UNPAID, now=now) == 0:
            raise Problem(409, "not_cancellable", f"a booking that is {row['state']} cannot be cancelled")
    crash_point("after_cancelled")


async def expire_for_ever(
    database: asyncpg.Pool, relay: Relay, *, clock: Callable[[], datetime], interval_s: float
) -> None:
    while True:
        try:
            while True:
                expired = await expire_overdue(database, now=clock())
                if expired:
                    relay.wake()
                if expired < EXPIRE_ROWS_MAX:
                    break
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("expiry_waits", reason=str(error))
        await asyncio.sleep(interval_s)


async def cancel_rows(
    connection: asyncpg.Connection, ids: Sequence[UUID], why: str, sources: Sequence[State], *, now: datetime
) -> int:
    """End bookings that have seats and are in one of `sources`, and send their seats back; returns how many."""
    ended = await store.end(connection, [(id, why) for id in ids], State.CANCELLED, now=now, sources=sources)
    messages = [give_back(row, why) for row in ended]
    await store.write_outbox(connection, messages, now=now)
    return len(ended)


def give_back(row: asyncpg.Record, why: str) -> BookingExpired:
    """What has the tickets of a booking that ended made available, and then its seats in the store."""
    return _give_back(row, order_store.parts_of(row["parts"]), why)


def _give_back(row: asyncpg.Record, parts: tuple[Part, ...], why: str) -> BookingExpired:
    return BookingExpired(
        id=f"{row['id']}.expired",
        lane=row["lane"],
        event=row["event_id"],
        section=parts[0].section,
        partition=row["partition"],
        epoch=row["epoch"],
        booking=str(row["id"]),
        buyer=str(row["buyer"]),
        parts=parts,
        why=why,
    )
