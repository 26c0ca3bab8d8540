"""HTTP routes of the operator's report and of the audit trail. Reads only."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Router, get
from litestar.params import QueryParameter

from aisle.audit import Row
from aisle.limits import PAGE_ROWS_MAX
from aisle.ops.desk import OpsDesk
from aisle.ops.report import Report


class DeedView(msgspec.Struct, frozen=True, kw_only=True):
    """`digest` seals this row and, through the one before it, every earlier row."""

    number: int
    at: datetime
    what: str
    actor: UUID | None
    subject: str
    detail: str
    digest: str


class DeedPage(msgspec.Struct, frozen=True):
    items: list[DeedView]
    next: int | None = None


def ops_routes(desk: OpsDesk) -> Router:
    @get("/ops", summary="How this installation is: parts, queues, holds, dead letters, alarms")
    async def show_ops() -> Report:
        return await desk.report()

    @get("/ops/audit", summary="Who did what that matters for safety, newest first")
    async def show_audit(
        before: Annotated[int | None, QueryParameter(ge=1, le=2**63 - 1)] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=PAGE_ROWS_MAX)] = 50,
    ) -> DeedPage:
        rows = await desk.deeds(before=before, limit=limit)
        return DeedPage([_shown(row) for row in rows], rows[-1].number if len(rows) == limit else None)

    return Router("/api/v1", route_handlers=[show_ops, show_audit], tags=["operation"])


def _shown(row: Row) -> DeedView:
    return DeedView(
        number=row.number,
        at=row.at,
        what=row.what,
        actor=row.actor,
        subject=row.subject,
        detail=row.detail,
        digest=row.digest.hex(),
    )
