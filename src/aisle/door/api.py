"""HTTP routes of tickets: a buyer's own on screen and on paper, a new code for one, the keys that verify them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Response, Router, get, post
from litestar.datastructures import ResponseHeader
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from aisle.accounts.access import CurrentActor
from aisle.door.issue import REISSUES_MAX, TicketDesk
from aisle.door.key_ring import KeyRing
from aisle.door.keys import as_jwk
from aisle.door.ticket import Ticket
from aisle.door.ticket_pdf import tickets_pdf
from aisle.limits import PDFS_AT_ONCE_MAX

# What a ticket says of its holder.
HolderName = Callable[[UUID], Awaitable[str]]


class TicketsView(msgspec.Struct, frozen=True, kw_only=True):
    booking_id: UUID
    event_id: int
    event_name: str
    venue: str
    starts_at: datetime
    time_zone: str
    currency: str
    tickets: list[Ticket]


class Reissue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Annotated[int, Meta(ge=1, le=2 * REISSUES_MAX, description="The code to void: the one you have.")]


class Jwk(msgspec.Struct, frozen=True):
    kty: str
    crv: str
    use: str
    kid: str
    x: str


class KeySet(msgspec.Struct, frozen=True):
    keys: list[Jwk]


def ticket_routes(desk: TicketDesk, keys: KeyRing, holder_name: HolderName) -> Router:
    drawing = asyncio.Semaphore(PDFS_AT_ONCE_MAX)

    @get("/bookings/{booking_id:uuid}/tickets", summary="Tickets of a paid booking, each with the text of its QR code")
    async def show_tickets(booking_id: FromPath[UUID], actor: CurrentActor) -> TicketsView:
        bought = await desk.bought(booking_id, actor.account_id)
        show = bought.show
        return TicketsView(
            booking_id=booking_id,
            event_id=show.id,
            event_name=show.name,
            venue=show.venue,
            starts_at=show.starts_at,
            time_zone=show.time_zone,
            currency=show.currency,
            tickets=await desk.tickets(bought),
        )

    @get(
        "/bookings/{booking_id:uuid}/tickets.pdf",
        summary="Tickets of a paid booking to print: a page a seat",
        media_type="application/pdf",
        response_headers=[ResponseHeader(name="Content-Disposition", documentation_only=True)],
    )
    async def print_tickets(booking_id: FromPath[UUID], actor: CurrentActor) -> Response[bytes]:
        bought = await desk.bought(booking_id, actor.account_id)
        tickets, holder = await desk.tickets(bought), await holder_name(actor.account_id)
        # A page takes some milliseconds: not on the loop, and never so many at once that others wait for a core.
        async with drawing:
            data = await asyncio.to_thread(tickets_pdf, bought.show, tickets, holder)
        return Response(
            data,
            media_type="application/pdf",
            headers={
                "content-disposition": f'attachment; filename="tickets-{booking_id}.pdf"',
                "cache-control": "private, no-store",
            },
        )

    @post(
        "/bookings/{booking_id:uuid}/tickets/{ticket_id:str}/reissue",
        status_code=200,
        summary="Void the code of one ticket and get a new one",
    )
    async def reissue_ticket(
        booking_id: FromPath[UUID], ticket_id: FromPath[str], data: JSONBody[Reissue], actor: CurrentActor
    ) -> Ticket:
        bought = await desk.bought(booking_id, actor.account_id)
        return await desk.reissue(bought, ticket_id, data.version)

    @get("/ticket-keys", summary="Public keys that verify ticket codes, as a JSON Web Key Set")
    async def show_keys() -> KeySet:
        return KeySet([Jwk(**as_jwk(key)) for key in await keys.published()])

    routes: list[Any] = [show_tickets, print_tickets, reissue_ticket, show_keys]
    return Router("/api/v1", route_handlers=routes, tags=["tickets"])
