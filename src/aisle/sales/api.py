"""HTTP routes of sales figures, for the seller of the event only. The live stream of them is in the live slice."""

from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from litestar import Response, Router, get
from litestar.params import FromPath, FromQuery, QueryParameter

from aisle.accounts.access import CurrentActor
from aisle.limits import PAGE_ROWS_MAX
from aisle.sales.desk import SalesDesk
from aisle.sales.figures import Figures, minutes_csv, sections_csv
from aisle.sales.recent import RecentPage

MINUTES_MAX = 1440


def sales_routes(desk: SalesDesk) -> Router:
    @get("/events/{event_id:int}/sales", summary="What my event has sold: revenue, seats by section, sales per minute")
    async def show_sales(
        event_id: FromPath[int],
        actor: CurrentActor,
        minutes: Annotated[int, QueryParameter(ge=0, le=MINUTES_MAX)] = 60,
    ) -> Figures:
        return last_minutes(await desk.figures(event_id, actor.account_id), minutes)

    @get(
        "/events/{event_id:int}/sales.csv",
        summary="The same as a table: a row a section, or a row for every minute of the sale",
        media_type="text/csv",
    )
    async def download_sales(
        event_id: FromPath[int], actor: CurrentActor, by: FromQuery[Literal["section", "minute"]] = "section"
    ) -> Response[str]:
        figures = await desk.figures(event_id, actor.account_id)
        await desk.note_export(event_id, actor.account_id, by)
        return Response(
            sections_csv(figures) if by == "section" else minutes_csv(figures),
            media_type="text/csv",
            headers={"content-disposition": f'attachment; filename="sales-{event_id}-by-{by}.csv"'},
        )

    @get("/events/{event_id:int}/sales/bookings", summary="The bookings of my event, newest first")
    async def list_event_bookings(
        event_id: FromPath[int],
        actor: CurrentActor,
        before: FromQuery[UUID | None] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=PAGE_ROWS_MAX)] = 20,
    ) -> RecentPage:
        return await desk.bookings(event_id, actor.account_id, before=before, limit=limit)

    routes: list[Any] = [show_sales, download_sales, list_event_bookings]
    return Router("/api/v1", route_handlers=routes, tags=["sales"])


def last_minutes(figures: Figures, minutes: int) -> Figures:
    since = figures.at - timedelta(minutes=minutes)
    return msgspec.structs.replace(figures, minutes=[m for m in figures.minutes if m.minute > since])
