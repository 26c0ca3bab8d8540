"""What the pages are given to show: events and prices from the ticketing slice, who is looking from accounts.

Used by the composition root only; nothing here decides.
"""

from functools import partial

from aisle.accounts.access import Access
from aisle.accounts.desk import Desk
from aisle.ticketing.api import EventDesk, EventView, browse, public_listing, view_of
from aisle.ui.buyer import PageDesk


def pages_from(desk: Desk, events: EventDesk) -> PageDesk:
    async def event(event_id: int) -> EventView:
        return view_of((await public_listing(events, event_id)).event)

    async def prices(event_id: int) -> tuple[int, int]:
        listing = await public_listing(events, event_id)
        asked = [section.price for section in listing.sections] + [pool.price for pool in listing.pools]
        return min(asked), max(asked)

    return PageDesk(Access(desk).recognise, partial(browse, events), event, prices)
