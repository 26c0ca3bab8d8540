"""What holds and checkout are given to work with: seats in the store, tickets in PostgreSQL, sales in the catalogue.

Used by the composition root only. Each function turns the booking slice's values into those of another slice and back;
nothing here decides.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from uuid import UUID

import asyncpg

from aisle.booking.cart import Taking
from aisle.booking.carts import Carts
from aisle.booking.checkout import Checkout, Conversion, Seats
from aisle.booking.hold import Holder, Seated, SeatHolds, Wanted
from aisle.booking.place import FindSale
from aisle.booking.store import Placing
from aisle.reservation.claims import Claim, Code, Kind
from aisle.reservation.holds import HoldInventory, Holds, convert_holds
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place
from aisle.services import Parts
from aisle.ticketing import store as tickets
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.event import TicketState


def holder_and_checkout(parts: Parts, find_sale: FindSale, stack: AsyncExitStack) -> tuple[Holder, Checkout]:
    config = parts.config
    carts = Carts(parts.store)
    inventory = HoldInventory(parts.store, parts.gate)
    stack.push_async_callback(inventory.aclose)
    holder = Holder(
        parts.database,
        carts,
        seat_holds(Holds(parts.store, inventory)),
        find_sale,
        hold=timedelta(seconds=config.hold_seconds),
        hold_max=timedelta(seconds=config.hold_seconds_max),
    )
    checkout = Checkout(
        parts.database,
        carts,
        conversion(parts.inventory, parts.catalogue),
        find_sale,
        parts.relays["booking"],
        payment=timedelta(seconds=config.payment_seconds),
        clock=parts.clock,
    )
    stack.push_async_callback(checkout.aclose)
    return holder, checkout


def seat_holds(holds: Holds) -> SeatHolds:
    async def take(wanted: Wanted) -> Seated:
        request = wanted.request
        claim = Claim(
            id=wanted.id,
            owner=wanted.owner,
            kind=Kind.HOLD,
            size=request.quantity,
            accessible=request.accessible,
            allow_partial=request.allow_partial,
            seats=request.seats,
            until_ms=wanted.until_ms,
        )
        seated = await holds.take(
            wanted.event, claim, section=request.section, subsection=request.subsection, epoch=wanted.epoch
        )
        if seated.code is not Code.OK:
            in_the_way = seated.outcomes[0][1].seats if seated.outcomes else ()
            return Seated(seated.code.value, in_the_way=in_the_way)
        takings = tuple(
            Taking(place.section, place.subsection, outcome.seats, outcome.price, outcome.taken_ms)
            for place, outcome in seated.outcomes
        )
        return Seated("ok", takings, min(outcome.deadline_ms for _, outcome in seated.outcomes))

    async def extend(wanted: Wanted, takings: Sequence[Taking]) -> str:
        codes = await asyncio.gather(
            *(
                holds.extend(
                    Place(wanted.event, taking.section, taking.subsection),
                    wanted.id,
                    owner=wanted.owner,
                    taken_ms=taking.taken_ms,
                    until_ms=wanted.until_ms,
                    epoch=wanted.epoch,
                )
                for taking in takings
            )
        )
        return next((code.value for code in codes if code is not Code.OK), "ok")

    async def release(wanted: Wanted, where: Sequence[tuple[str, int]]) -> str:
        places = [Place(wanted.event, section, subsection) for section, subsection in where]
        code = await holds.release(wanted.event, wanted.id, owner=wanted.owner, places=places, epoch=wanted.epoch)
        return code.value

    return SeatHolds(take, extend, release)


def conversion(inventory: Inventory, catalogue: Catalogue) -> Conversion:
    async def convert(placing: Placing) -> str:
        code = await convert_holds(
            inventory,
            placing.event_id,
            placing.request.held,
            booking=str(placing.id),
            owner=str(placing.buyer),
            epoch=placing.epoch,
        )
        return code.value

    async def reserve_tickets(connection: asyncpg.Connection, seats: Seats) -> dict[UUID, int]:
        return await tickets.reserve(connection, await refs_of(seats))

    async def release_tickets(connection: asyncpg.Connection, seats: Seats) -> object:
        return await tickets.release(connection, await refs_of(seats), from_states=[TicketState.RESERVED])

    async def refs_of(seats: Seats) -> list[tickets.SeatRef]:
        refs = []
        for event, booking, parts in seats:
            numbers = {(h.section, h.subsection): h.place for h in (await catalogue.find(event)).halls}
            for part in parts:
                place = numbers[part.section, part.subsection]
                refs += [tickets.SeatRef(event, place, seat, booking, part.price) for seat in part.seats]
        return refs

    return Conversion(convert, reserve_tickets, release_tickets)
