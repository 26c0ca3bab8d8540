"""What the sales slice is given to know: events from the catalogue, counts from the hot store."""

from collections import defaultdict
from collections.abc import Mapping

import structlog

from aisle.bridges import counts_of, pool_counts_of
from aisle.errors import Problem, StoreScriptFailed
from aisle.reservation.pools import Pools
from aisle.sales.desk import SalesDesk, Sold
from aisle.services import Parts

log = structlog.get_logger()


def sales_desk(parts: Parts) -> SalesDesk:
    catalogue, pools = parts.catalogue, Pools(parts.store)

    async def find_event(event_id: int) -> Sold:
        listing = await catalogue.find(event_id)
        sections = {hall.place: hall.section for hall in listing.halls}
        sections |= {pool.place: pool.pool for pool in listing.pools}
        widths = {(hall.section, hall.subsection): hall.seats_per_row for hall in listing.halls}
        return Sold(listing.event.seller, listing.event.currency, sections, widths)

    async def taken(event_id: int) -> Mapping[str, int]:
        found: dict[str, int] = defaultdict(int)
        try:
            listing = await catalogue.find(event_id)
            for counts in (*await counts_of(parts.store, event_id), *await pool_counts_of(pools, listing)):
                found[counts.section] += counts.reserved + counts.sold
        except (Problem, StoreScriptFailed) as error:
            log.warning("carts_not_counted", event_id=event_id, reason=str(error))
        return found

    return SalesDesk(parts.database, find_event, taken)
