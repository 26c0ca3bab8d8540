"""HTTP route of the operator's report. Reads only."""

from litestar import Router, get

from aisle.ops.desk import OpsDesk
from aisle.ops.report import Report


def ops_routes(desk: OpsDesk) -> Router:
    @get("/ops", summary="How this installation is: parts, queues, holds, dead letters, alarms")
    async def show_ops() -> Report:
        return await desk.report()

    return Router("/api/v1", route_handlers=[show_ops], tags=["operation"])
