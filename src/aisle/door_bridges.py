"""What the door slice is given to know: paid bookings, events, accounts. Used by the composition root only."""

from collections.abc import Callable
from uuid import UUID

import asyncpg
from litestar import Router

from aisle.accounts.access import Access
from aisle.accounts.account import Role, normalise_email
from aisle.accounts.desk import Desk
from aisle.accounts.tokens import keys_from_setting
from aisle.booking import store as bookings
from aisle.door import store as doors
from aisle.door.api import HolderName, ticket_routes
from aisle.door.check_in import Door
from aisle.door.gate_api import FindDoorAccount, GateDesk, RequireSeller, SeatNames, gate_routes
from aisle.door.issue import FindBought, TicketDesk
from aisle.door.key_ring import KeyRing
from aisle.door.keys import Sealer
from aisle.door.ticket import Bought, Show, place_of, seat_of
from aisle.errors import Problem
from aisle.limits import PAGE_ROWS_MAX
from aisle.services import Parts
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.store import Event
from aisle.ui.door import DoorDesk, door_pages


def door_routers(parts: Parts, accounts: Desk) -> list[Router]:
    keys = KeyRing(parts.database, Sealer([key.secret for key in keys_from_setting(parts.config.secret_key)]))
    tickets = TicketDesk(parts.database, keys, bought_from(parts.database, parts.catalogue))
    gate = GateDesk(
        parts.database,
        Door(parts.database, keys, clock=parts.clock),
        parts.clock,
        require_seller=sellers_of(parts.catalogue),
        find_door_account=door_accounts_of(accounts),
        seat_names=seat_names_of(parts.catalogue),
    )
    pages = door_pages(door_pages_from(parts, accounts))
    return [ticket_routes(tickets, keys, holder_names_of(accounts)), gate_routes(gate), pages]


def door_pages_from(parts: Parts, accounts: Desk) -> DoorDesk:
    async def events(account: UUID) -> list[Event]:
        async with parts.database.acquire() as connection:
            found = await doors.events_of(connection, account, limit=PAGE_ROWS_MAX)
        shown = [(await parts.catalogue.find(id)).event for id in found]
        return sorted(shown, key=lambda event: event.starts_at)

    return DoorDesk(Access(accounts).recognise, events)


def bought_from(database: asyncpg.Pool, catalogue: Catalogue) -> FindBought:
    async def find(id: UUID, buyer: UUID) -> Bought | None:
        async with database.acquire() as connection:
            booking = await bookings.booking_of(connection, id, buyer)
        if booking is None:
            return None
        listing = await catalogue.find(booking.event_id)
        event = listing.event
        halls = {(hall.section, hall.subsection): hall for hall in listing.halls}
        seats = []
        pools = {pool.pool: pool.place for pool in listing.pools}
        for part in booking.parts:
            if part.in_pool:
                seats += [place_of(pools[part.section], n, part.section) for n in part.seats]
                continue
            hall = halls[part.section, part.subsection]
            seats += [seat_of(hall.place, n, hall.section, hall.subsection, hall.seats_per_row) for n in part.seats]
        show = Show(event.id, event.name, event.venue, event.starts_at, event.time_zone, event.currency)
        return Bought(id, booking.state.value, show, tuple(seats))

    return find


def sellers_of(catalogue: Catalogue) -> RequireSeller:
    async def require(event_id: int, seller: UUID) -> None:
        if (await catalogue.find(event_id)).event.seller != seller:
            raise Problem(404, "not_found", "no such event")

    return require


def door_accounts_of(accounts: Desk) -> FindDoorAccount:
    async def find(email: str) -> UUID | None:
        normal = normalise_email(email)
        login = await accounts.accounts.find_login(normal) if isinstance(normal, str) else None
        return login.account.id if login is not None and login.account.role is Role.DOOR else None

    return find


def seat_names_of(catalogue: Catalogue) -> SeatNames:
    async def names(event_id: int) -> Callable[[int, int], str]:
        listing = await catalogue.find(event_id)
        pools = {pool.place: pool.pool for pool in listing.pools}

        def name(place: int, seat: int) -> str:
            if place in pools:
                return place_of(place, seat, pools[place]).name
            hall = listing.halls[place]
            return seat_of(place, seat, hall.section, hall.subsection, hall.seats_per_row).name

        return name

    return names


def holder_names_of(accounts: Desk) -> HolderName:
    async def name(account_id: UUID) -> str:
        account = await accounts.accounts.find(account_id)
        return account.email if account is not None else ""

    return name
