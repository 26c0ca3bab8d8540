"""The pages of a buyer: browse, choose seats, the cart, paying, the bookings. Also how to get an account.

What can be read is rendered here; everything that changes something goes from the browser to the API, which decides.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Protocol
from uuid import UUID

from litestar import Response, Router, get
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Redirect

from aisle.accounts.account import Role
from aisle.ui.frame import AnyRequest, Recognise, frame_of, log_in_first
from aisle.ui.pages import page

EVENTS_PER_PAGE = 24


class Browse(Protocol):
    async def __call__(self, *, search: str, after: str, limit: int) -> Any: ...


@dataclass(frozen=True, slots=True)
class PageDesk:
    """What the pages are given to show. `prices` are the lowest and the highest of an event."""

    recognise: Recognise
    browse: Browse
    event: Callable[[int], Awaitable[Any]]
    prices: Callable[[int], Awaitable[tuple[int, int]]]


def buyer_pages(desk: PageDesk) -> Router:
    return Router(
        "/",
        route_handlers=[*_browse_pages(desk), *_account_pages(desk), *_purchase_pages(desk)],
        include_in_schema=False,
    )


def _browse_pages(desk: PageDesk) -> list[Any]:
    @get("/")
    async def home(
        request: AnyRequest,
        search: Annotated[str, QueryParameter(max_length=100)] = "",
        after: Annotated[str, QueryParameter(max_length=100)] = "",
    ) -> Response[str]:
        found = await desk.browse(search=search.strip(), after=after, limit=EVENTS_PER_PAGE)
        prices = {event.id: await desk.prices(event.id) for event in found.items}
        frame = await frame_of(request, desk.recognise)
        return page("home.html", {"frame": frame, "found": found, "prices": prices, "search": search.strip()})

    @get("/events/{event_id:int}")
    async def event_page(request: AnyRequest, event_id: FromPath[int]) -> Response[str]:
        event = await desk.event(event_id)
        low, high = await desk.prices(event_id)
        frame = await frame_of(request, desk.recognise)
        return page("event.html", {"frame": frame, "event": event, "low": low, "high": high})

    return [home, event_page]


def _account_pages(desk: PageDesk) -> list[Any]:
    @get("/login")
    async def login_page(request: AnyRequest, next: FromQuery[str] = "/") -> Response[str]:
        return page("login.html", {"frame": await frame_of(request, desk.recognise), "next": _own_path(next)})

    @get("/register")
    async def register_page(request: AnyRequest, next: FromQuery[str] = "/") -> Response[str]:
        return page("register.html", {"frame": await frame_of(request, desk.recognise), "next": _own_path(next)})

    return [login_page, register_page]


def _purchase_pages(desk: PageDesk) -> list[Any]:
    async def shown(request: AnyRequest, template: str, **values: object) -> Response[str] | Redirect:
        frame = await frame_of(request, desk.recognise)
        if frame.role != Role.BUYER:
            return log_in_first(frame)
        return page(template, {"frame": frame, **values})

    @get("/cart")
    async def cart_page(request: AnyRequest) -> Response[str] | Redirect:
        return await shown(request, "cart.html")

    @get("/bookings")
    async def bookings_page(request: AnyRequest) -> Response[str] | Redirect:
        return await shown(request, "bookings.html")

    @get("/bookings/{booking_id:uuid}")
    async def booking_page(request: AnyRequest, booking_id: FromPath[UUID]) -> Response[str] | Redirect:
        return await shown(request, "booking.html", booking_id=booking_id)

    @get("/account")
    async def account_page(request: AnyRequest) -> Response[str] | Redirect:
        return await shown(request, "account.html")

    return [cart_page, bookings_page, booking_page, account_page]


def _own_path(path: str) -> str:
    """Where to go after logging in: a path of this site, never another one."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and len(path) <= 200
    return path if is_own else "/"
