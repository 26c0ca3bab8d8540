"""The page of whoever stands at a door: choose the event, scan, see at once who may come in."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from litestar import Response, Router, get
from litestar.response import Redirect

from aisle.accounts.account import Role
from aisle.ui.frame import AnyRequest, Recognise, frame_of, log_in_first
from aisle.ui.pages import page


@dataclass(frozen=True, slots=True)
class DoorDesk:
    """`events` are those whose sellers let this account scan."""

    recognise: Recognise
    events: Callable[[UUID], Awaitable[Sequence[Any]]]


def door_pages(desk: DoorDesk) -> Router:
    @get("/door")
    async def door_page(request: AnyRequest) -> Response[str] | Redirect:
        frame = await frame_of(request, desk.recognise)
        if frame.actor is None or frame.role != Role.DOOR:
            return log_in_first(frame)
        return page("door.html", {"frame": frame, "events": await desk.events(frame.actor.account_id)})

    return Router("/", route_handlers=[door_page], include_in_schema=False)
