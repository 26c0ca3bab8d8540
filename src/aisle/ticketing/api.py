"""HTTP routes of events: create, look, browse, open and close the sale, see how full the hall is.

A seller changes only their own events; somebody else's is not found. Counts come from the hot store, names and prices
from the catalogue.
"""

import base64
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import asyncpg
import msgspec
from litestar import Router, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter

from aisle.accounts.access import CurrentActor
from aisle.audit import Deed, note
from aisle.browsing import Browsing
from aisle.errors import Problem
from aisle.hot_route import hot
from aisle.limits import PAGE_ROWS_MAX
from aisle.once import Asked, Key, asked, recall, remember
from aisle.relay import Relay
from aisle.ticketing import store
from aisle.ticketing.catalogue import Catalogue, Listing, check_event_id
from aisle.ticketing.create import create_event
from aisle.ticketing.edit import EventChange, edit_event
from aisle.ticketing.event import EVENT_MOVES, Description, EventState
from aisle.ticketing.shown import Shown

_encode = msgspec.json.Encoder().encode


class Counts(msgspec.Struct, frozen=True):
    section: str
    subsection: int
    available: int
    reserved: int
    sold: int
    unavailable: int
    total: int
    version: int


class SectionView(msgspec.Struct, frozen=True):
    """A section, or a pool: its places are counted and one buyer may have `places_per_buyer` of them."""

    section: str
    price: int
    available: int
    total: int
    places_per_buyer: int | None = None
    one_hold_per_buyer: bool = False


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    description: str
    venue: str
    starts_at: datetime
    time_zone: str
    currency: str
    state: str
    seats: int
    seats_per_booking: int
    seats_per_buyer: int


class EventPage(msgspec.Struct, frozen=True):
    items: list[EventView]
    next: str | None


@dataclass(frozen=True, slots=True)
class EventDesk:
    database: asyncpg.Pool
    catalogue: Catalogue
    relay: Relay
    clock: Callable[[], datetime]
    own_lane_from_seats: int
    # Counts of an event's subsections in the hot store, best first.
    counts: Callable[[int], Awaitable[Sequence[Counts]]]
    # The same of its pools; their subsection is 0.
    pool_counts: Callable[[Listing], Awaitable[Sequence[Counts]]]
    # Puts every subsection and pool of an event on sale in the hot store, or takes it off.
    switch: Callable[[Listing, bool], Awaitable[None]]
    # Where lists of events are read; everything else is read where it is decided.
    browsing: Browsing


def event_routes(desk: EventDesk) -> Router:
    return Router("/api/v1", route_handlers=[*_seller_routes(desk), *_public_routes(desk)], tags=["events"])


def _seller_routes(desk: EventDesk) -> list[Any]:
    @post("/events", summary="Create an event with its hall")
    async def post_event(data: JSONBody[Description], actor: CurrentActor, idempotency_key: Key = None) -> EventView:
        request = asked(actor.account_id, idempotency_key, "POST /events", data)
        event = await create_event(
            desk.database, data, request, own_lane_from_seats=desk.own_lane_from_seats, now=desk.clock()
        )
        desk.relay.wake()
        return view_of(event)

    @patch("/events/{event_id:int}", summary="Change words and prices; what is held or booked keeps its price")
    async def patch_event(
        event_id: FromPath[int], data: JSONBody[EventChange], actor: CurrentActor, idempotency_key: Key = None
    ) -> EventView:
        check_event_id(event_id)
        request = asked(actor.account_id, idempotency_key, f"PATCH /events/{event_id}", data)
        event = await edit_event(desk.database, event_id, data, request, now=desk.clock())
        desk.relay.wake()
        await desk.catalogue.changed(event_id)
        return view_of(event)

    @post("/events/{event_id:int}/open", status_code=200, summary="Open the sale")
    async def open_sale(event_id: FromPath[int], actor: CurrentActor, idempotency_key: Key = None) -> EventView:
        request = asked(actor.account_id, idempotency_key, f"POST /events/{event_id}/open")
        return await _switch(desk, event_id, request, EventState.ON_SALE)

    @post("/events/{event_id:int}/close", status_code=200, summary="Close the sale")
    async def close_sale(event_id: FromPath[int], actor: CurrentActor, idempotency_key: Key = None) -> EventView:
        request = asked(actor.account_id, idempotency_key, f"POST /events/{event_id}/close")
        return await _switch(desk, event_id, request, EventState.CLOSED)

    @get("/seller/events", summary="My events in every state, newest first")
    async def own_events(
        actor: CurrentActor,
        before: Annotated[int, QueryParameter(ge=0, le=2**63 - 1)] = 0,
        limit: Annotated[int, QueryParameter(ge=1, le=PAGE_ROWS_MAX)] = 20,
    ) -> EventPage:
        return await own_page(desk, actor.account_id, before=before, limit=limit)

    @get("/seller/events/{event_id:int}", summary="My event, in whatever state it is")
    async def own_event(event_id: FromPath[int], actor: CurrentActor) -> EventView:
        return view_of((await own_listing(desk, event_id, actor.account_id)).event)

    return [post_event, patch_event, open_sale, close_sale, own_events, own_event]


def _public_routes(desk: EventDesk) -> list[Any]:
    @get("/events", summary="Browse and search events, soonest first")
    async def browse_events(
        search: Annotated[str, QueryParameter(max_length=100)] = "",
        after: Annotated[str, QueryParameter(max_length=100)] = "",
        limit: Annotated[int, QueryParameter(ge=1, le=PAGE_ROWS_MAX)] = 20,
    ) -> EventPage:
        return await browse(desk, search=search, after=after, limit=limit)

    @get("/events/{event_id:int}", summary="One event")
    async def show_event(event_id: FromPath[int]) -> EventView:
        return view_of((await public_listing(desk, event_id)).event)

    shown = Shown(partial(_sections, desk))

    async def sections(scope: Any, _body: bytes) -> tuple[int, bytes]:
        event_id = scope["path_params"]["event_id"]
        await public_listing(desk, event_id)
        return 200, await shown.answer(event_id)

    @get("/events/{event_id:int}/sections", summary="Prices and free seats by section and by pool", opt=hot(sections))
    async def show_sections(event_id: FromPath[int]) -> list[SectionView]:
        """As the store has them now; while many ask, at most a tenth of a second ago."""
        raise AssertionError("answered by `sections`")

    @get("/events/{event_id:int}/sections/{section:str}", summary="Free seats of a section's subsections, or of a pool")
    async def show_section(event_id: FromPath[int], section: FromPath[str]) -> list[Counts]:
        found = [c for c in await _counts(desk, await public_listing(desk, event_id)) if c.section == section]
        if not found:
            raise Problem(404, "unknown_section", "no such section")
        return found

    return [browse_events, show_event, show_sections, show_section]


async def _sections(desk: EventDesk, event_id: int) -> bytes:
    listing = await public_listing(desk, event_id)
    free: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for c in await _counts(desk, listing):
        free[c.section] += c.available
        total[c.section] += c.total
    sections = [SectionView(s.section, s.price, free[s.section], total[s.section]) for s in listing.sections]
    pools = [
        SectionView(p.pool, p.price, free[p.pool], total[p.pool], p.places_per_buyer, p.one_hold_per_buyer)
        for p in listing.pools
    ]
    return _encode(sections + pools)


async def _counts(desk: EventDesk, listing: Listing) -> list[Counts]:
    pools = await desk.pool_counts(listing) if listing.pools else []
    return [*await desk.counts(listing.event.id), *pools]


async def browse(desk: EventDesk, *, search: str, after: str, limit: int) -> EventPage:
    cursor = _cursor(after)
    found = await desk.browsing.read(lambda c: store.browse(c, search=search, after=cursor, limit=limit))
    last = found[-1] if len(found) == limit else None
    return EventPage([view_of(event) for event in found], _next(last.starts_at, last.id) if last else None)


async def own_page(desk: EventDesk, seller: UUID, *, before: int, limit: int) -> EventPage:
    async with desk.database.acquire() as connection:
        found = await store.events_of(connection, seller, before=before, limit=limit)
    return EventPage([view_of(event) for event in found], str(found[-1].id) if len(found) == limit else None)


async def _switch(desk: EventDesk, event_id: int, request: Asked, target: EventState) -> EventView:
    """Open or close the sale. The store follows before the commit: a crash in between leaves the event as it was, and
    nothing is sold that only one of the two believes to be on sale."""
    listing = await own_listing(desk, event_id, request.account)
    sources = [state.value for state, targets in EVENT_MOVES.items() if target in targets]
    async with desk.database.acquire() as connection, connection.transaction():
        earlier = await recall(connection, request, store.Event, now=desk.clock())
        if earlier is not None:
            return view_of(earlier)
        event = await store.move_event(
            connection, event_id, sources=[*sources, target.value], target=target.value, now=desk.clock()
        )
        if event is None:
            state = listing.event.state
            raise Problem(409, "event_not_ready", f"an event that is {state} cannot become {target.value}")
        # As it is now, and stays until the commit: a rebuild may have begun another epoch since the listing was read.
        await desk.switch(msgspec.structs.replace(listing, event=event), target is EventState.ON_SALE)
        await remember(connection, request, event)
        if listing.event.state != target:
            deed = Deed.SALE_OPENED if target is EventState.ON_SALE else Deed.SALE_CLOSED
            await note(connection, deed, actor=request.account, subject=event_id)
    await desk.catalogue.changed(event_id)
    return view_of(event)


async def own_listing(desk: EventDesk, event_id: int, seller: UUID) -> Listing:
    await desk.catalogue.changed(event_id)
    listing = await desk.catalogue.find(event_id)
    if listing.event.seller != seller:
        raise Problem(404, "not_found", "no such event")
    return listing


async def public_listing(desk: EventDesk, event_id: int) -> Listing:
    """An event that buyers may see; any other is not found."""
    listing = await desk.catalogue.find(event_id)
    if listing.event.state not in (EventState.ON_SALE, EventState.CLOSED):
        raise Problem(404, "not_found", "no such event")
    return listing


def view_of(event: store.Event) -> EventView:
    return EventView(**{name: getattr(event, name) for name in EventView.__struct_fields__})


def _next(starts_at: datetime, event_id: int) -> str:
    return base64.urlsafe_b64encode(f"{starts_at.astimezone(UTC).isoformat()} {event_id}".encode()).decode()


def _cursor(text: str) -> tuple[datetime, int] | None:
    if not text:
        return None
    try:
        moment, _, number = base64.urlsafe_b64decode(text).decode().rpartition(" ")
        after = datetime.fromisoformat(moment).astimezone(UTC), int(number)
    except (ValueError, OverflowError):
        raise Problem(400, "bad_cursor", "`after` is not a cursor that this server gave") from None
    if _next(*after) != text:
        raise Problem(400, "bad_cursor", "`after` is not a cursor that this server gave")
    return after
