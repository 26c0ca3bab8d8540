"""What holds and checkout are given to work with: seats in the store, tickets in PostgreSQL, sales in the catalogue.

Used by the composition root only. Each function turns the booking slice's values into those of another slice and back;
nothing here decides.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from uuid import UUID

import asyncpg

from aisle.booking.cart import Taking
from aisle.booking.carts import Carts
from aisle.booking.checkout import UNDECIDED, Checkout, Conversion, Parts, Reserved
from aisle.booking.hold import Holder, Seated, SeatHolds, Wanted
from aisle.booking.order_store import Placing
from aisle.booking.place import FindSale
from aisle.messages import POOL, Part
from aisle.reservation.claims import Claim, Code, Kind
from aisle.reservation.conversion import Converter
from aisle.reservation.holds import HoldInventory, HoldPools, Holds
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place
from aisle.reservation.pool import PoolPlace, Take
from aisle.reservation.pools import Pools
from aisle.reservation.sweeper import Where
from aisle.services import Parts as ProcessParts
from aisle.ticketing import store as tickets
from aisle.ticketing import ticket_store
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.event import TicketState
from aisle.ticketing.pool_store import Wanted as WantedPlaces
from aisle.ticketing.pool_store import number_places


def holder_and_checkout(parts: ProcessParts, find_sale: FindSale, stack: AsyncExitStack) -> tuple[Holder, Checkout]:
    config = parts.config
    carts = Carts(parts.store)
    inventory, pools = HoldInventory(parts.store, parts.gate), HoldPools(parts.store, parts.gate)
    stack.push_async_callback(inventory.aclose)
    stack.push_async_callback(pools.aclose)
    holder = Holder(
        parts.database,
        carts,
        seat_holds(Holds(parts.store, inventory, pools)),
        find_sale,
        hold=timedelta(seconds=config.hold_seconds),
        hold_max=timedelta(seconds=config.hold_seconds_max),
    )
    checkout = Checkout(
        parts.database,
        carts,
        conversion(parts.inventory, parts.pools, parts.catalogue),
        find_sale,
        parts.relays["booking"],
        payment=timedelta(seconds=config.payment_seconds),
        clock=parts.clock,
    )
    stack.push_async_callback(checkout.aclose)
    return holder, checkout


def seat_holds(holds: Holds) -> SeatHolds:
    return SeatHolds(partial(_take, holds), partial(_extend, holds), partial(_release, holds))


async def _take(holds: Holds, wanted: Wanted) -> Seated:
    request = wanted.request
    if request.pool is not None:
        return await _take_places(holds, wanted, request.pool)
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
        return Seated(seated.code.value, in_the_way=seated.outcomes[0][1].seats if seated.outcomes else ())
    takings = tuple(
        Taking(place.section, place.subsection, outcome.seats, outcome.price, outcome.taken_ms)
        for place, outcome in seated.outcomes
    )
    return Seated("ok", takings, min(outcome.deadline_ms for _, outcome in seated.outcomes))


async def _take_places(holds: Holds, wanted: Wanted, pool: str) -> Seated:
    asked = Take(
        id=wanted.id,
        owner=wanted.owner,
        kind=Kind.HOLD,
        quantity=wanted.request.quantity,
        allow_partial=wanted.request.allow_partial,
        until_ms=wanted.until_ms,
    )
    taken = await holds.take_places(PoolPlace(wanted.event, pool), asked, epoch=wanted.epoch)
    if not taken.ok:
        return Seated(taken.code.value)
    return Seated("ok", (Taking(pool, POOL, (), taken.price, taken.taken_ms, taken.quantity),), taken.deadline_ms)


async def _extend(holds: Holds, wanted: Wanted, takings: Sequence[Taking]) -> str:
    codes = await asyncio.gather(
        *(
            holds.extend(
                _where(wanted.event, taking.section, taking.subsection),
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


async def _release(holds: Holds, wanted: Wanted, where: Sequence[tuple[str, int]]) -> str:
    places = [_where(wanted.event, section, subsection) for section, subsection in where]
    code = await holds.release(wanted.id, owner=wanted.owner, places=places, epoch=wanted.epoch)
    return code.value


def _where(event: int, section: str, subsection: int) -> Where:
    return PoolPlace(event, section) if subsection == POOL else Place(event, section, subsection)


def conversion(inventory: Inventory, pools: Pools, catalogue: Catalogue) -> Conversion:
    converter = Converter(inventory, pools)

    async def convert(placing: Placing) -> str:
        if not await inventory.may_claim():
            return UNDECIDED
        code = await converter.convert(
            placing.event_id,
            placing.request.held,
            booking=str(placing.id),
            owner=str(placing.buyer),
            epoch=placing.epoch,
        )
        # A hold that the store does not know any more is over, like one that it remembers the end of.
        return Code.EXPIRED.value if code is Code.UNKNOWN else code.value

    async def reserve_tickets(connection: asyncpg.Connection, placings: Sequence[Placing]) -> Reserved:
        epochs = await tickets.epochs_of(connection, list({p.event_id for p in placings}))
        # The store that converted the others has been rebuilt since. Whether it still has them is not known here.
        known = [p for p in placings if p.epoch == epochs[p.event_id]]
        parts = await _number_places(connection, known, catalogue)
        refs = await _refs([(p, parts[p.id]) for p in known], catalogue)
        counts = await ticket_store.reserve(connection, refs)
        return {p.id: (parts[p.id], counts.get(p.id, 0)) for p in known}

    async def release_tickets(connection: asyncpg.Connection, back: Sequence[tuple[Placing, Parts]]) -> object:
        return await ticket_store.release(connection, await _refs(back, catalogue), from_states=[TicketState.RESERVED])

    return Conversion(convert, reserve_tickets, release_tickets)


async def _number_places(
    connection: asyncpg.Connection, placings: Sequence[Placing], catalogue: Catalogue
) -> dict[UUID, Parts]:
    """The parts of each booking; where it has places of a pool, with the tickets that it is given."""
    parts = {p.id: p.request.held_parts for p in placings}
    wanted: dict[UUID, WantedPlaces] = {}
    for p in placings:
        if p.request.pool is not None:
            place = (await _numbers(p.event_id, catalogue))[p.request.pool, POOL]
            wanted[p.id] = WantedPlaces(p.event_id, place, p.id, p.request.quantity)
    given = await number_places(connection, list(wanted.values())) if wanted else {}
    for id, asked in wanted.items():
        [part] = parts[id]
        parts[id] = (Part(part.section, POOL, given[asked], part.price),)
    return parts


async def _refs(bookings: Sequence[tuple[Placing, Parts]], catalogue: Catalogue) -> list[ticket_store.SeatRef]:
    refs = []
    for placing, parts in bookings:
        numbers = await _numbers(placing.event_id, catalogue)
        for part in parts:
            place = numbers[part.section, part.subsection]
            refs += [ticket_store.SeatRef(placing.event_id, place, seat, placing.id, part.price) for seat in part.seats]
    return refs


async def _numbers(event: int, catalogue: Catalogue) -> dict[tuple[str, int], int]:
    """The number inside the event of each subsection and pool: the middle of a ticket's key."""
    listing = await catalogue.find(event)
    halls = {(hall.section, hall.subsection): hall.place for hall in listing.halls}
    return halls | {(pool.pool, POOL): pool.place for pool in listing.pools}
