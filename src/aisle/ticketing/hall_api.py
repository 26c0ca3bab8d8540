"""HTTP route of a hall as it was built: shapes, prices, wheelchair places. What is free is told by the live routes."""

import msgspec
from litestar import Router, get
from litestar.params import FromPath

from aisle.ticketing.api import EventDesk, public_listing


class SubsectionView(msgspec.Struct, frozen=True):
    """`accessible` are seats by index, counted row by row from 0."""

    section: str
    subsection: int
    rows: int
    seats_per_row: int
    price: int
    accessible: list[int]


class HallView(msgspec.Struct, frozen=True):
    event_id: int
    currency: str
    subsections: list[SubsectionView]


def hall_routes(desk: EventDesk) -> Router:
    @get("/events/{event_id:int}/hall", summary="The hall: subsections, prices and wheelchair places")
    async def show_hall(event_id: FromPath[int]) -> HallView:
        listing = await public_listing(desk, event_id)
        prices = {section.section: section.price for section in listing.sections}
        return HallView(
            event_id,
            listing.event.currency,
            [
                SubsectionView(
                    hall.section,
                    hall.subsection,
                    hall.rows,
                    hall.seats_per_row,
                    prices[hall.section],
                    list(hall.accessible),
                )
                for hall in listing.halls
            ],
        )

    return Router("/api/v1", route_handlers=[show_hall], tags=["events"])
