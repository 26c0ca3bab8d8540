"""What the pages are given to show: events and prices from the ticketing slice, who is looking from accounts.

Used by the composition root only; nothing here decides.
"""

from functools import partial
from uuid import UUID

from aisle.accounts.access import Access
from aisle.accounts.desk import Desk
from aisle.ticketing.api import EventDesk, EventView, browse, own_listing, own_page, public_listing, view_of
from aisle.ui.buyer import PageDesk
from aisle.ui.seller import Priced, SellerDesk


def pages_from(desk: Desk, events: EventDesk) -> PageDesk:
    async def event(event_id: int) -> EventView:
        return view_of((await public_listing(events, event_id)).event)

    async def prices(event_id: int) -> tuple[int, int]:
        listing = await public_listing(events, event_id)
        asked = [section.price for section in listing.sections] + [pool.price for pool in listing.pools]
        return min(asked), max(asked)

    return PageDesk(Access(desk).recognise, partial(browse, events), event, prices)


def seller_pages_from(desk: Desk, events: EventDesk) -> SellerDesk:
    async def event(event_id: int, seller: UUID) -> tuple[EventView, list[Priced]]:
        listing = await own_listing(events, event_id, seller)
        prices = [Priced(section.section, section.price) for section in listing.sections]
        return view_of(listing.event), prices + [Priced(pool.pool, pool.price) for pool in listing.pools]

    return SellerDesk(Access(desk).recognise, partial(own_page, events), event)
