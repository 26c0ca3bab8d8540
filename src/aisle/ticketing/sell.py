"""Tickets in a payment: sold, sold late, taken back. Each inside the transaction that moves the booking and the money.

The rows that matched are counted: a booking whose tickets are not all its own is not sold, whatever the store believes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from aisle.messages import Message, Part, SeatsReleased
from aisle.ticketing import store, ticket_store
from aisle.ticketing.event import TicketState
from aisle.ticketing.ticket_store import SeatRef


class Owned(msgspec.Struct, frozen=True, kw_only=True):
    """Seats of one booking, and the lane and partition on which messages about them travel."""

    event: int
    booking: UUID
    buyer: UUID
    parts: tuple[Part, ...]
    lane: str
    partition: int


class TicketSeller:
    def __init__(self) -> None:
        self._places: dict[int, Mapping[tuple[str, int], int]] = {}

    async def sell(self, connection: asyncpg.Connection, owned: Sequence[Owned]) -> set[UUID]:
        """RESERVED -> SOLD; returns the bookings of which every ticket is sold now. The others are as before."""
        wanted = await self._seats(connection, owned)
        counts = await ticket_store.sell(connection, [seat for seats in wanted.values() for seat in seats])
        whole = {booking for booking, seats in wanted.items() if counts.get(booking, 0) == len(seats) > 0}
        if len(whole) < len(wanted):
            partial = [seat for booking, seats in wanted.items() if booking not in whole for seat in seats]
            await ticket_store.unsell(connection, partial)
        return whole

    async def sell_free(self, connection: asyncpg.Connection, owned: Owned, *, epoch: int) -> bool:
        """AVAILABLE -> RESERVED -> SOLD in one go, for late money; false, and nothing changed, if one is not free.

        Nor if the store that gave the seats away has been rebuilt since: `epoch` is the one they were claimed in.
        """
        if await store.epochs_of(connection, [owned.event]) != {owned.event: epoch}:
            return False
        [seats] = (await self._seats(connection, [owned])).values()
        await ticket_store.lock(connection, seats)
        counts = await ticket_store.reserve(connection, seats)
        if counts.get(owned.booking, 0) != len(seats):
            await ticket_store.release(connection, seats, from_states=(TicketState.RESERVED,))
            return False
        return owned.booking in await self.sell(connection, [owned])

    async def take_back(
        self, connection: asyncpg.Connection, owned: Owned, *, id: str, why: str, now: datetime
    ) -> bool:
        """SOLD -> AVAILABLE, the tickets' codes void, and the store told to offer the seats again. All or none."""
        [seats] = (await self._seats(connection, [owned])).values()
        await ticket_store.lock(connection, seats)
        counts = await ticket_store.take_back(connection, seats)
        if counts.get(owned.booking, 0) != len(seats):
            return False
        epochs = await store.epochs_of(connection, [owned.event])
        message: Message = SeatsReleased(
            id=id,
            lane=owned.lane,
            event=owned.event,
            section=owned.parts[0].section,
            partition=owned.partition,
            epoch=epochs[owned.event],
            booking=str(owned.booking),
            buyer=str(owned.buyer),
            parts=owned.parts,
            why=why,
            sold=True,
        )
        await store.write_outbox(connection, [message], now=now)
        return True

    async def _seats(self, connection: asyncpg.Connection, owned: Sequence[Owned]) -> dict[UUID, list[SeatRef]]:
        """By booking. Numbers of subsections never change, so each event is looked up once a process."""
        unknown = {one.event for one in owned} - self._places.keys()
        if unknown:
            self._places.update(await store.places_of(connection, list(unknown)))
        return {
            one.booking: [
                SeatRef(
                    one.event, self._places[one.event][part.section, part.subsection], seat, one.booking, part.price
                )
                for part in one.parts
                for seat in part.seats
            ]
            for one in owned
        }
