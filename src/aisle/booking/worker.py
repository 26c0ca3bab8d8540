"""The booking service's ear: bookings follow what became of their seats.

A booking that has ended in the meantime (its buyer cancelled, or the answer came too late) does not get its seats: they
are sent back by the same message that an expiry sends. Safe to repeat.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import asyncpg

from aisle.booking import store
from aisle.booking.booking import State
from aisle.booking.expire import give_back
from aisle.ids import as_id
from aisle.messages import (
    BookingExpired,
    BookingFailed,
    BookingPendingPayment,
    Message,
    PlacesTicketed,
    TicketsRefused,
    route_of,
)

# Seats are announced by the store, places of a pool once they have their tickets.
Seated = BookingPendingPayment | PlacesTicketed
SEATED = (BookingPendingPayment, PlacesTicketed)


class BookingWorker:
    def __init__(self, database: asyncpg.Pool, *, payment_seconds: int, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._payment = timedelta(seconds=payment_seconds)
        self._clock = clock

    async def handle(self, messages: Sequence[Message]) -> list[Message]:
        pending = {m.booking: m for m in messages if isinstance(m, SEATED)}
        failed = [m for m in messages if isinstance(m, BookingFailed)]
        refused = [m for m in messages if isinstance(m, TicketsRefused)]
        now = self._clock()
        async with self._database.acquire() as connection, connection.transaction():
            too_late = await self._to_pending(connection, list(pending.values()), now)
            await store.end(connection, [(as_id(m.booking), m.reason) for m in failed], State.FAILED, now=now)
            # The tickets' refusal may come before or after the store's yes.
            refusals = [(as_id(m.booking), m.reason) for m in refused]
            await store.end(connection, refusals, State.FAILED, now=now)
            ended = await store.end(connection, refusals, State.CANCELLED, now=now)
            # It may have been given tickets by another answer than the one that was refused.
            await store.write_outbox(connection, [give_back(row, "not-in-postgresql") for row in ended], now=now)
        return [_give_back(message, buyer) for message, buyer in too_late]

    async def _to_pending(
        self, connection: asyncpg.Connection, messages: Sequence[Seated], now: datetime
    ) -> list[tuple[Seated, str]]:
        if not messages:
            return []
        ids = [as_id(m.booking) for m in messages]
        given = [(id, m.parts) for id, m in zip(ids, messages, strict=True)]
        await store.to_pending_payment(connection, given, deadline=now + self._payment)
        ended = await store.ended_bookings(connection, ids)
        return [(m, str(ended[id])) for id, m in zip(ids, messages, strict=True) if id in ended]


def _give_back(message: Seated, buyer: str) -> BookingExpired:
    return BookingExpired(
        id=f"{message.booking}.expired",
        booking=message.booking,
        buyer=buyer,
        parts=message.parts,
        why="ended-before-seats-came",
        **route_of(message),
    )
