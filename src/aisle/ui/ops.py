"""The operator's pages: the report of `/api/v1/ops`, looked at again every few seconds, and the store inspector.

They change nothing.
"""

from collections.abc import Sequence

from litestar import Response, Router, get
from litestar.response import Redirect

from aisle.accounts.account import Role
from aisle.ui.frame import AnyRequest, Recognise, frame_of, log_in_first
from aisle.ui.pages import page


def ops_pages(recognise: Recognise, kinds: Sequence[str]) -> Router:
    """`kinds` are the names of keys that the inspector knows."""

    @get("/ops")
    async def ops_page(request: AnyRequest) -> Response[str] | Redirect:
        frame = await frame_of(request, recognise)
        return page("ops.html", {"frame": frame}) if frame.role == Role.OPERATOR else log_in_first(frame)

    @get("/ops/store")
    async def store_page(request: AnyRequest) -> Response[str] | Redirect:
        frame = await frame_of(request, recognise)
        if frame.role != Role.OPERATOR:
            return log_in_first(frame)
        return page("store.html", {"frame": frame, "kinds": kinds})

    return Router("/", route_handlers=[ops_page, store_page], include_in_schema=False)
