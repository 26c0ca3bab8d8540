"""The page of whoever stands at a door: choose the event, scan, see at once who may come in.

The page comes with a service worker that keeps it on the device, because a door must open without a network too.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from litestar import Response, Router, get
from litestar.response import Redirect

from aisle.accounts.account import Role
from aisle.ui.frame import AnyRequest, Recognise, frame_of, log_in_first
from aisle.ui.pages import page
from aisle.ui.static_files import address, static_files

# What the page is made of, besides the door's own modules. A test reloads it without a network.
SHARED = ("colors.css", "page.css", "door.css", "icon.svg", "frame.js", "ask.js", "elements.js", "words.js", "texts.js")
WORKER = "door/worker.js"
WORKER_POLICY = "default-src 'none'; connect-src 'self'"


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

    @get("/door-worker.js")
    async def door_worker() -> Response[bytes]:
        """Beside the page and not below /static: a worker serves only what lies below its own address."""
        own = [name for name in static_files() if name.startswith("door/") and name != WORKER]
        kept = json.dumps([address(name) for name in (*SHARED, *own)])
        return Response(
            f"const FILES = {kept};\n".encode() + static_files()[WORKER].plain,
            media_type="text/javascript; charset=utf-8",
            headers={"cache-control": "no-cache", "content-security-policy": WORKER_POLICY},
        )

    return Router("/", route_handlers=[door_page, door_worker], include_in_schema=False)
