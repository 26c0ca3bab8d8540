"""The pages of a seller: my events, a new one with its hall, and the desk of one: figures, prices, the sale's switch.

What can be read is rendered here; everything that changes something goes from the browser to the API, which decides.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Protocol
from uuid import UUID

from litestar import Response, Router, get
from litestar.params import FromPath, QueryParameter
from litestar.response import Redirect

from aisle.accounts.account import Role
from aisle.ui.frame import AnyRequest, Recognise, frame_of, log_in_first
from aisle.ui.pages import page

EVENTS_PER_PAGE = 50


class Priced(NamedTuple):
    """A section or pool and what one seat of it costs."""

    name: str
    price: int


class OwnEvents(Protocol):
    async def __call__(self, seller: UUID, *, before: int, limit: int) -> Any: ...


@dataclass(frozen=True, slots=True)
class SellerDesk:
    """What the pages are given to show. `event` raises 404 unless it is this seller's."""

    recognise: Recognise
    events: OwnEvents
    event: Callable[[int, UUID], Awaitable[tuple[Any, list[Priced]]]]


def seller_pages(desk: SellerDesk) -> Router:
    @get("/seller")
    async def seller_page(
        request: AnyRequest, before: Annotated[int, QueryParameter(ge=0, le=2**63 - 1)] = 0
    ) -> Response[str] | Redirect:
        frame = await frame_of(request, desk.recognise)
        if frame.actor is None or frame.role != Role.SELLER:
            return log_in_first(frame)
        found = await desk.events(frame.actor.account_id, before=before, limit=EVENTS_PER_PAGE)
        return page("seller.html", {"frame": frame, "found": found})

    @get("/seller/new")
    async def new_event_page(request: AnyRequest) -> Response[str] | Redirect:
        frame = await frame_of(request, desk.recognise)
        return page("editor.html", {"frame": frame}) if frame.role == Role.SELLER else log_in_first(frame)

    @get("/seller/events/{event_id:int}")
    async def desk_page(request: AnyRequest, event_id: FromPath[int]) -> Response[str] | Redirect:
        frame = await frame_of(request, desk.recognise)
        if frame.actor is None or frame.role != Role.SELLER:
            return log_in_first(frame)
        event, prices = await desk.event(event_id, frame.actor.account_id)
        return page("desk.html", {"frame": frame, "event": event, "prices": prices})

    return Router("/", route_handlers=[seller_page, new_event_page, desk_page], include_in_schema=False)
