"""The operator's page: the report of `/api/v1/ops`, looked at again every few seconds. It changes nothing."""

from litestar import Response, Router, get
from litestar.response import Redirect

from aisle.accounts.account import Role
from aisle.ui.frame import AnyRequest, Recognise, frame_of, log_in_first
from aisle.ui.pages import page


def ops_pages(recognise: Recognise) -> Router:
    @get("/ops")
    async def ops_page(request: AnyRequest) -> Response[str] | Redirect:
        frame = await frame_of(request, recognise)
        return page("ops.html", {"frame": frame}) if frame.role == Role.OPERATOR else log_in_first(frame)

    return Router("/", route_handlers=[ops_page], include_in_schema=False)
