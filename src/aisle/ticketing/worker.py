"""The event-ticketing service: ticket rows follow what the store and the bookings say, and are the last word on both.

A seat that the store gave away but PostgreSQL does not have free fails the booking and sends the seats back: whatever
the store believed, no second buyer gets a ticket. Safe to repeat; order across topics does not matter: seats that
arrive for a booking that has ended meanwhile go back instead of staying with nobody.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from uuid import UUID

import asyncpg
import msgspec

from aisle.crash_points import crash_point
from aisle.ids import as_id
from aisle.messages import (
    POOL,
    BookingExpired,
    BookingPaid,
    Message,
    Part,
    PlacesReserved,
    PlacesTicketed,
    SeatsFinalized,
    SeatsReleased,
    SeatsReserved,
    TicketsRefused,
    route_of,
)
from aisle.ticketing import store
from aisle.ticketing.event import TicketState
from aisle.ticketing.pool_store import Wanted, number_places
from aisle.ticketing.store import SeatRef

HELD = (TicketState.RESERVED,)

# Those of the bookings that have ended, seen by the caller's transaction.
Ended = Callable[[asyncpg.Connection, Sequence[UUID]], Awaitable[Collection[UUID]]]


async def _nobody(connection: asyncpg.Connection, bookings: Sequence[UUID]) -> Collection[UUID]:
    return ()


class TicketingWorker:
    def __init__(self, database: asyncpg.Pool, *, ended: Ended, paid: Ended = _nobody) -> None:
        self._database = database
        self._ended = ended
        self._paid = paid
        self._places: dict[int, Mapping[tuple[str, int], int]] = {}

    async def handle(self, messages: Sequence[Message]) -> list[Message]:
        expired = [m for m in messages if isinstance(m, BookingExpired)]
        reserved = [m for m in messages if isinstance(m, SeatsReserved | PlacesReserved)]
        paid = [m for m in messages if isinstance(m, BookingPaid)]
        async with self._database.acquire() as connection:
            events = {m.event for m in (*expired, *reserved, *paid)}
            await self._learn_places(connection, events)
            # Settling goes by the epoch that holds now: the booking may be older than the last rebuild of the store.
            epochs = await store.epochs_of(connection, list(events))
            answers = [*await self._release(connection, expired), *await self._reserve(connection, reserved)]
            # The payment has sold these tickets already; the store hears of it from here, as of every other change.
            answers += [_finalized(m) for m in paid]
        crash_point("after_tickets")
        return [msgspec.structs.replace(answer, epoch=epochs[answer.event]) for answer in answers]

    async def _reserve(
        self, connection: asyncpg.Connection, messages: Sequence[SeatsReserved | PlacesReserved]
    ) -> list[Message]:
        if not messages:
            return []
        async with connection.transaction():
            parts = await self._number_places(connection, [m for m in messages if isinstance(m, PlacesReserved)])
            parts |= {m.booking: m.parts for m in messages if isinstance(m, SeatsReserved)}
            wanted = {m.booking: self._seats(m.event, m.booking, parts[m.booking]) for m in messages}
            counts = await store.reserve(connection, [seat for seats in wanted.values() for seat in seats])
            # Asked after the rows are ours: a release that came before this saw nothing to give back, and one that
            # comes later waits for these rows and finds them.
            ids = {m.booking: as_id(m.booking) for m in messages}
            ended = await self._ended(connection, list(ids.values()))
            refused = [m for m in messages if counts.get(ids[m.booking], 0) != _asked(m) or ids[m.booking] in ended]
            # A message that comes again after its booking was paid: all tickets that count are SOLD, and one that is
            # merely RESERVED now was refunded in the meantime.
            paid = await self._paid(connection, list(ids.values()))
            refused = [m for m in refused if ids[m.booking] not in paid]
            not_theirs = {*(m.booking for m in refused), *map(str, paid)}
            if not_theirs:
                partial = [seat for booking in not_theirs for seat in wanted[booking]]
                await store.release(connection, partial, from_states=HELD)
        answers: list[Message] = []
        for m in refused:
            shared = {**route_of(m), "booking": m.booking}
            back = {"buyer": m.buyer, "why": "not-in-postgresql", **shared}
            answers.append(TicketsRefused(id=f"{m.booking}.refused", reason="taken", **shared))
            answers.append(SeatsReleased(id=f"{m.booking}.repair", parts=parts[m.booking], **back))
        answers += [
            PlacesTicketed(id=f"{m.booking}.ticketed", booking=m.booking, parts=parts[m.booking], **route_of(m))
            for m in messages
            if isinstance(m, PlacesReserved) and m not in refused
        ]
        return answers

    async def _number_places(
        self, connection: asyncpg.Connection, messages: Sequence[PlacesReserved]
    ) -> dict[str, tuple[Part, ...]]:
        """The store counts the places of a pool; each gets a ticket of its own here."""
        wanted = {
            m.booking: Wanted(m.event, self._places[m.event][m.pool, POOL], as_id(m.booking), m.quantity)
            for m in messages
        }
        given = await number_places(connection, list(wanted.values())) if wanted else {}
        return {m.booking: (Part(m.pool, POOL, given[wanted[m.booking]], m.price),) for m in messages}

    async def _release(self, connection: asyncpg.Connection, messages: Sequence[BookingExpired]) -> list[Message]:
        if not messages:
            return []
        seats = [seat for m in messages for seat in self._seats(m.event, m.booking, m.parts)]
        async with connection.transaction():
            await store.lock(connection, seats)
            await store.release(connection, seats, from_states=HELD)
        # The store offers the seats again only now that they can be sold; a repeat of the message says it again.
        return [
            SeatsReleased(
                id=f"{m.booking}.released", booking=m.booking, buyer=m.buyer, parts=m.parts, why=m.why, **route_of(m)
            )
            for m in messages
        ]

    def _seats(self, event: int, booking: str, parts: Sequence[Part]) -> list[SeatRef]:
        places, owner = self._places[event], as_id(booking)
        return [
            SeatRef(event, places[part.section, part.subsection], seat, owner, part.price)
            for part in parts
            for seat in part.seats
        ]

    async def _learn_places(self, connection: asyncpg.Connection, events: set[int]) -> None:
        """Numbers of subsections never change, so each event is looked up once a process."""
        unknown = [event for event in events if event not in self._places]
        if unknown:
            found = await store.places_of(connection, unknown)
            self._places.update({event: found.get(event, {}) for event in unknown})


def _asked(message: SeatsReserved | PlacesReserved) -> int:
    if isinstance(message, PlacesReserved):
        return message.quantity
    return sum(len(part.seats) for part in message.parts)


def _finalized(message: BookingPaid) -> SeatsFinalized:
    return SeatsFinalized(
        id=f"{message.booking}.finalized",
        booking=message.booking,
        buyer=message.buyer,
        parts=message.parts,
        **route_of(message),
    )
