"""Tickets of a paid booking, and a new code for one whose old code got into other hands.

A code is not kept: it is signed anew, from the ticket row, whenever somebody who may have it asks. So a key can be
rotated or revoked without touching a ticket, and a copy of the database holds no code.
"""

from collections.abc import Awaitable, Callable
from uuid import UUID

import asyncpg

from aisle.crash_points import crash_point
from aisle.door import store
from aisle.door.code import Content, write_code
from aisle.door.key_ring import KeyRing, Pen
from aisle.door.ticket import Bought, Seat, Ticket
from aisle.errors import Problem

REISSUES_MAX = 100

# A buyer's own booking; None for somebody else's, or none.
FindBought = Callable[[UUID, UUID], Awaitable[Bought | None]]


class TicketDesk:
    def __init__(self, database: asyncpg.Pool, keys: KeyRing, find_bought: FindBought) -> None:
        self._database = database
        self._keys = keys
        self._find_bought = find_bought

    async def bought(self, booking: UUID, buyer: UUID) -> Bought:
        bought = await self._find_bought(booking, buyer)
        if bought is None:
            raise Problem(404, "not_found", "no such booking")
        if bought.state != "PAID":
            raise Problem(409, "no_tickets", f"a booking that is {bought.state} has no tickets")
        return bought

    async def tickets(self, bought: Bought) -> list[Ticket]:
        """Best seat first. Seats of the booking that were refunded one by one are not among them."""
        pen = await self._keys.pen()
        async with self._database.acquire() as connection:
            rows = await store.sold_tickets(connection, bought.show.id, bought.booking, _keys_of(bought.seats))
        return [_ticket(bought.show.id, seat, rows[key], pen) for key, seat in _by_key(bought).items() if key in rows]

    async def reissue(self, bought: Bought, ticket_id: str, version: int) -> Ticket:
        """Void the code of this version. Voiding it again changes nothing: the version is the operation's id."""
        seat = next((seat for seat in bought.seats if seat.name == ticket_id), None)
        if seat is None:
            raise Problem(404, "not_found", "no such ticket in this booking")
        if version > REISSUES_MAX:
            raise Problem(409, "too_many_reissues", f"a ticket is re-issued at most {REISSUES_MAX} times")
        pen = await self._keys.pen()
        key = (seat.place, seat.seat)
        async with self._database.acquire() as connection:
            await store.void_version(connection, bought.show.id, bought.booking, key, version)
            crash_point("after_reissue")
            row = (await store.sold_tickets(connection, bought.show.id, bought.booking, [key])).get(key)
        if row is None:
            raise Problem(409, "no_tickets", "this ticket was refunded")
        if row["code_version"] <= version:
            if row["admitted_at"] is not None:
                raise Problem(409, "already_in", "somebody has entered with this ticket")
            raise Problem(409, "no_such_version", f"the ticket is at version {row['code_version']}")
        return _ticket(bought.show.id, seat, row, pen)


def _keys_of(seats: tuple[Seat, ...]) -> list[tuple[int, int]]:
    return [(seat.place, seat.seat) for seat in seats]


def _by_key(bought: Bought) -> dict[tuple[int, int], Seat]:
    return {(seat.place, seat.seat): seat for seat in bought.seats}


def _ticket(event: int, seat: Seat, row: asyncpg.Record, pen: Pen) -> Ticket:
    content = Content(event, seat.place, seat.seat, row["code_version"])
    return Ticket(
        id=seat.name,
        section=seat.section,
        subsection=seat.subsection,
        row=seat.row,
        seat=seat.number,
        price=row["price"],
        version=row["code_version"],
        code=write_code(content, pen.key_id, pen.private),
        admitted_at=row["admitted_at"],
    )
