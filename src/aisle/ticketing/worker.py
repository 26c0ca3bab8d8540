"""The event-ticketing service: ticket rows follow what the store and the bookings say, and are the last word on both.

A seat that the store gave away but PostgreSQL does not have free fails the booking and sends the seats back: whatever
the store believed, no second buyer gets a ticket. Safe to repeat; order across topics does not matter: seats that
arrive for a booking that has ended meanwhile go back instead of staying with nobody.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
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
from aisle.ticketing import store, ticket_store
from aisle.ticketing.event import TicketState
from aisle.ticketing.pool_store import Wanted, number_places
from aisle.ticketing.ticket_store import SeatRef

HELD = (TicketState.RESERVED,)

# Those of the bookings that have ended, seen by the caller's transaction.
Ended = Callable[[asyncpg.Connection, Sequence[UUID]], Awaitable[Collection[UUID]]]


class Refused(NamedTuple):
    """What the store gave away and PostgreSQL did not have: all parts that may still be the booking's there."""

    message: SeatsReserved | PlacesReserved
    parts: tuple[Part, ...]


async def _nobody(connection: asyncpg.Connection, bookings: Sequence[UUID]) -> Collection[UUID]:
    return ()


class TicketingWorker:
    def __init__(self, database: asyncpg.Pool, *, ended: Ended, paid: Ended = _nobody) -> None:
        self._database = database
        self._ended = ended
        self._paid = paid
        # Seats of living bookings that the store gave away although they were not free here; must stay 0.
        self.given_twice = 0
        self._places: dict[int, Mapping[tuple[str, int], int]] = {}

    async def handle(self, messages: Sequence[Message]) -> list[Message]:
        expired = [m for m in messages if isinstance(m, BookingExpired)]
        reserved = [m for m in messages if isinstance(m, SeatsReserved | PlacesReserved)]
        paid = [m for m in messages if isinstance(m, BookingPaid)]
        async with self._database.acquire() as connection:
            await self._learn_places(connection, {m.event for m in (*expired, *reserved, *paid)})
            answers = [*await self._release(connection, expired), *await self._reserve(connection, reserved)]
            # The payment has sold these tickets already; the store hears of it from here, as of every other change.
            answers += await _in_epoch(connection, [_finalized(m) for m in paid])
        crash_point("after_tickets")
        return answers

    async def _reserve(
        self, connection: asyncpg.Connection, messages: Sequence[SeatsReserved | PlacesReserved]
    ) -> list[Message]:
        if not messages:
            return []
        async with connection.transaction():
            epochs = await store.epochs_of(connection, list({m.event for m in messages}))
            lost = await self._lost(connection, [m for m in messages if m.epoch < epochs[m.event]])
            lost |= await self._ghosts(connection, [m for m in messages if m.booking not in lost])
            refused = [one for one in lost.values() if one is not None]
            # Another answer to the same booking may be in this batch: what it was given then goes back as well.
            over = {one.message.booking for one in refused}
            refused += [Refused(m, _claimed(m)) for m in messages if m.booking in over and m.epoch == epochs[m.event]]
            answers = _refusals(refused)
            answers += await self._reserve_claimed(connection, [m for m in messages if m.booking not in lost])
        return [msgspec.structs.replace(answer, epoch=epochs[answer.event]) for answer in answers]

    async def _lost(
        self, connection: asyncpg.Connection, messages: Sequence[SeatsReserved | PlacesReserved]
    ) -> dict[str, Refused | None]:
        """Claims of an epoch that has ended: the store that was rebuilt has only those that were tickets by then.

        Their seats may be somebody else's by now, and the booking may have got others: it ends, with all it has.
        """
        lost: dict[str, Refused | None] = {}
        ids = [as_id(m.booking) for m in messages]
        paid = await self._paid(connection, ids) if ids else ()
        for event in sorted({m.event for m in messages}):
            rows = await ticket_store.taken_by(connection, event, ids)
            for m in (m for m in messages if m.event == event and as_id(m.booking) not in paid):
                theirs = [row for row in rows if row["booking"] == as_id(m.booking)]
                if not self._is_whole(m, {(row["place"], row["seat"]) for row in theirs}):
                    had = self._parts(event, theirs)
                    await ticket_store.release(connection, self._seats(event, m.booking, had), from_states=HELD)
                    lost[m.booking] = Refused(m, (*_claimed(m), *had))
        return lost

    def _is_whole(self, message: SeatsReserved | PlacesReserved, theirs: set[tuple[int, int]]) -> bool:
        if isinstance(message, PlacesReserved):
            place = self._places[message.event][message.pool, POOL]
            return len([seat for at, seat in theirs if at == place]) == message.quantity
        return theirs == {(ref.place, ref.seat) for ref in self._seats(message.event, message.booking, message.parts)}

    def _parts(self, event: int, rows: Sequence[asyncpg.Record]) -> list[Part]:
        names = {number: name for name, number in self._places[event].items()}
        return [Part(*names[row["place"]], (row["seat"],), row["price"]) for row in rows]

    async def _ghosts(
        self, connection: asyncpg.Connection, messages: Sequence[SeatsReserved | PlacesReserved]
    ) -> dict[str, Refused | None]:
        """If two want the same ticket, one message may be the late copy of a booking that is long over.

        One statement would give the ticket to either, and a living buyer would be refused for a dead one.
        """
        wanted = {m.booking: m for m in messages if isinstance(m, SeatsReserved)}
        seats = [ref for m in wanted.values() for ref in self._seats(m.event, m.booking, m.parts)]
        if len({(ref.event_id, ref.place, ref.seat) for ref in seats}) == len(seats):
            return {}
        ids = [as_id(booking) for booking in wanted]
        ended, paid = await self._ended(connection, ids), await self._paid(connection, ids)
        over = [ref for ref in seats if ref.booking in ended]
        await ticket_store.release(connection, over, from_states=HELD)
        ghosts: dict[str, Refused | None] = {str(id): None for id in paid}
        return ghosts | {str(id): Refused(wanted[str(id)], wanted[str(id)].parts) for id in ended}

    async def _reserve_claimed(
        self, connection: asyncpg.Connection, messages: Sequence[SeatsReserved | PlacesReserved]
    ) -> list[Message]:
        if not messages:
            return []
        parts = await self._number_places(connection, [m for m in messages if isinstance(m, PlacesReserved)])
        parts |= {m.booking: m.parts for m in messages if isinstance(m, SeatsReserved)}
        wanted = {m.booking: self._seats(m.event, m.booking, parts[m.booking]) for m in messages}
        counts = await ticket_store.reserve(connection, [seat for seats in wanted.values() for seat in seats])
        # Asked after the rows are ours: a release that came before this saw nothing to give back, and one that
        # comes later waits for these rows and finds them.
        ids = {m.booking: as_id(m.booking) for m in messages}
        ended = await self._ended(connection, list(ids.values()))
        refused = [m for m in messages if counts.get(ids[m.booking], 0) != _asked(m) or ids[m.booking] in ended]
        # A message that comes again after its booking was paid: all tickets that count are SOLD, and one that is
        # merely RESERVED now was refunded in the meantime.
        paid = await self._paid(connection, list(ids.values()))
        refused = [m for m in refused if ids[m.booking] not in paid]
        self.given_twice += sum(ids[m.booking] not in ended for m in refused)
        not_theirs = {*(m.booking for m in refused), *map(str, paid)}
        if not_theirs:
            partial = [seat for booking in not_theirs for seat in wanted[booking]]
            await ticket_store.release(connection, partial, from_states=HELD)
        answers = _refusals([Refused(m, parts[m.booking]) for m in refused])
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
        # The store offers the seats again only when they can be sold; a repeat of the message says it again.
        answers = [
            SeatsReleased(
                id=f"{m.booking}.released", booking=m.booking, buyer=m.buyer, parts=m.parts, why=m.why, **route_of(m)
            )
            for m in messages
        ]
        async with connection.transaction():
            stamped = await _in_epoch(connection, answers)
            await ticket_store.lock(connection, seats)
            await ticket_store.release(connection, seats, from_states=HELD)
        return stamped

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


def _claimed(message: SeatsReserved | PlacesReserved) -> tuple[Part, ...]:
    if isinstance(message, PlacesReserved):
        return (Part(message.pool, POOL, (), message.price),)
    return message.parts


def _asked(message: SeatsReserved | PlacesReserved) -> int:
    if isinstance(message, PlacesReserved):
        return message.quantity
    return sum(len(part.seats) for part in message.parts)


async def _in_epoch(connection: asyncpg.Connection, answers: Sequence[Message]) -> list[Message]:
    """Settling goes by the epoch that holds now: the booking may be older than the last rebuild of the store."""
    if not answers:
        return []
    epochs = await store.epochs_of(connection, list({answer.event for answer in answers}))
    return [msgspec.structs.replace(answer, epoch=epochs[answer.event]) for answer in answers]


def _refusals(refused: Iterable[Refused]) -> list[Message]:
    answers: list[Message] = []
    for m, parts in refused:
        shared = {**route_of(m), "booking": m.booking}
        back = {"buyer": m.buyer, "why": "not-in-postgresql", **shared}
        answers.append(TicketsRefused(id=f"{m.booking}.refused", reason="taken", **shared))
        answers.append(SeatsReleased(id=f"{m.booking}.repair", parts=parts, **back))
    return answers


def _finalized(message: BookingPaid) -> SeatsFinalized:
    return SeatsFinalized(
        id=f"{message.booking}.finalized",
        booking=message.booking,
        buyer=message.buyer,
        parts=message.parts,
        **route_of(message),
    )
