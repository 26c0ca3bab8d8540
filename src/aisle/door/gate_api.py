"""HTTP routes of the door: scan, merge what was scanned without a network, read the log; and who may stand there.

A refused guest is an answer, not an error: the outcome says why. Errors are requests that nothing was recorded of.
"""

import base64
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import asyncpg
import msgspec
from litestar import Router, delete, get, post, put
from litestar.params import FromPath, FromQuery, HeaderParameter, JSONBody, QueryParameter
from msgspec import Meta

from aisle.accounts.access import CurrentActor
from aisle.accounts.account import EMAIL_CHARS_MAX, Actor, Role
from aisle.door import store
from aisle.door.check_in import Checked, Door, Shown
from aisle.door.code import CODE_CHARS_MAX
from aisle.door.scan import Outcome, Scan
from aisle.errors import Problem
from aisle.limits import PAGE_ROWS_MAX, SCANS_PER_MERGE_MAX, STAFF_PER_EVENT_MAX, VOIDED_PAGE_MAX

EventId = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Code = Annotated[str, Meta(min_length=1, max_length=CODE_CHARS_MAX, description="The text of the QR code.")]
Gate = Annotated[str, Meta(max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$", description="Which door, as you call it.")]
ScanId = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{8,64}$", description="Made by the device, new for every scan.")]
Key = Annotated[str, HeaderParameter(name="Idempotency-Key", min_length=8, max_length=64, pattern="^[A-Za-z0-9_-]+$")]


class ScanRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    event_id: EventId
    code: Code
    gate: Gate = ""


class OfflineScan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: ScanId
    code: Code
    scanned_at: Annotated[datetime, Meta(tz=True)]


class MergeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    event_id: EventId
    scans: Annotated[list[OfflineScan], Meta(min_length=1, max_length=SCANS_PER_MERGE_MAX)]
    gate: Gate = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    gate: str
    scanned_at: datetime


class ScanView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    outcome: Outcome
    ticket: str | None
    version: int | None
    gate: str
    offline: bool
    scanned_at: datetime
    received_at: datetime
    staff: UUID
    first_entry: Entry | None = None


class ScanList(msgspec.Struct, frozen=True):
    items: list[ScanView]
    next: str | None = None


class VoidedCode(msgspec.Struct, frozen=True):
    place: int
    seat: int
    version: int


class VoidedList(msgspec.Struct, frozen=True):
    items: list[VoidedCode]
    next: str | None = None


class StaffRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    email: Annotated[str, Meta(min_length=3, max_length=EMAIL_CHARS_MAX)]


class StaffView(msgspec.Struct, frozen=True):
    account_id: UUID
    granted_at: datetime


class StaffList(msgspec.Struct, frozen=True):
    items: list[StaffView]


# Raises 404 unless the event is this seller's.
RequireSeller = Callable[[int, UUID], Awaitable[None]]
# The door account with this e-mail address, if there is one.
FindDoorAccount = Callable[[str], Awaitable[UUID | None]]
# How people say the seats of an event, by place and number.
SeatNames = Callable[[int], Awaitable[Callable[[int, int], str]]]


@dataclass(frozen=True, slots=True)
class GateDesk:
    database: asyncpg.Pool
    door: Door
    clock: Callable[[], datetime]
    require_seller: RequireSeller
    find_door_account: FindDoorAccount
    seat_names: SeatNames


def gate_routes(desk: GateDesk) -> Router:
    return Router("/api/v1", route_handlers=[*_scan_routes(desk), *_staff_routes(desk)], tags=["door"])


def _scan_routes(desk: GateDesk) -> list[Any]:
    @post("/check-ins", status_code=200, summary="Scan a ticket: the first scan lets its holder in")
    async def check_in(data: JSONBody[ScanRequest], actor: CurrentActor, idempotency_key: Key) -> ScanView:
        shown = Shown(idempotency_key, data.code, data.gate)
        [checked] = await desk.door.check_in(data.event_id, actor.account_id, [shown])
        return (await _views(desk, data.event_id, [checked]))[0]

    @post("/check-ins/merge", status_code=200, summary="Hand in scans that were made without a network")
    async def merge_check_ins(data: JSONBody[MergeRequest], actor: CurrentActor) -> ScanList:
        shown = [Shown(scan.id, scan.code, data.gate, scan.scanned_at) for scan in data.scans]
        checked = await desk.door.check_in(data.event_id, actor.account_id, shown)
        return ScanList(await _views(desk, data.event_id, checked))

    @get("/events/{event_id:int}/scans", summary="Every scan at my event's doors, newest first")
    async def list_scans(
        event_id: FromPath[int],
        actor: CurrentActor,
        outcome: FromQuery[Outcome | None] = None,
        before: Annotated[str, QueryParameter(max_length=200)] = "",
        limit: Annotated[int, QueryParameter(ge=1, le=PAGE_ROWS_MAX)] = 50,
    ) -> ScanList:
        await _require_insider(desk, event_id, actor)
        async with desk.database.acquire() as connection:
            scans = await store.log_of(connection, event_id, outcome=outcome or "", before=_cursor(before), limit=limit)
        views = await _views(desk, event_id, [Checked(scan, None) for scan in scans])
        return ScanList(views, _next(scans[-1]) if len(scans) == limit else None)

    @get("/events/{event_id:int}/voided-codes", summary="Codes that open nothing, for doors without a network")
    async def list_voided(
        event_id: FromPath[int],
        actor: CurrentActor,
        after: Annotated[str, QueryParameter(pattern=r"^(\d{1,9}-\d{1,9}-\d{1,9})?$")] = "",
        limit: Annotated[int, QueryParameter(ge=1, le=VOIDED_PAGE_MAX)] = VOIDED_PAGE_MAX,
    ) -> VoidedList:
        await _require_insider(desk, event_id, actor)
        place, seat, version = map(int, after.split("-")) if after else (-1, -1, -1)
        async with desk.database.acquire() as connection:
            items = await store.voided_codes(connection, event_id, after=(place, seat, version), limit=limit)
        return VoidedList(
            [VoidedCode(*code) for code in items], "-".join(map(str, items[-1])) if len(items) == limit else None
        )

    return [check_in, merge_check_ins, list_scans, list_voided]


def _staff_routes(desk: GateDesk) -> list[Any]:
    @put("/events/{event_id:int}/door-staff", status_code=200, summary="Let somebody with a door account scan my event")
    async def grant_staff(event_id: FromPath[int], data: JSONBody[StaffRequest], actor: CurrentActor) -> StaffList:
        await desk.require_seller(event_id, actor.account_id)
        account = await desk.find_door_account(data.email)
        if account is None:
            raise Problem(404, "unknown_staff", "there is no door account with this e-mail address")
        async with desk.database.acquire() as connection:
            granted = await store.grant(
                connection, event_id, account, by=actor.account_id, limit=STAFF_PER_EVENT_MAX, now=desk.clock()
            )
        if not granted:
            raise Problem(409, "too_many_staff", f"an event has at most {STAFF_PER_EVENT_MAX} door staff")
        return await _staff(desk, event_id)

    @get("/events/{event_id:int}/door-staff", summary="Who may scan my event")
    async def list_staff(event_id: FromPath[int], actor: CurrentActor) -> StaffList:
        await desk.require_seller(event_id, actor.account_id)
        return await _staff(desk, event_id)

    @delete("/events/{event_id:int}/door-staff/{account_id:uuid}", status_code=204, summary="Take that back")
    async def withdraw_staff(event_id: FromPath[int], account_id: FromPath[UUID], actor: CurrentActor) -> None:
        await desk.require_seller(event_id, actor.account_id)
        async with desk.database.acquire() as connection:
            if not await store.withdraw(connection, event_id, account_id, by=actor.account_id):
                raise Problem(404, "not_found", "nobody with this account is at the door of your event")

    return [grant_staff, list_staff, withdraw_staff]


async def _staff(desk: GateDesk, event_id: int) -> StaffList:
    async with desk.database.acquire() as connection:
        return StaffList([StaffView(*row) for row in await store.staff_of(connection, event_id)])


async def _require_insider(desk: GateDesk, event_id: int, actor: Actor) -> None:
    if actor.role is Role.SELLER:
        await desk.require_seller(event_id, actor.account_id)
        return
    async with desk.database.acquire() as connection:
        if not 0 < event_id < 2**63 or not await store.is_staff(connection, event_id, actor.account_id):
            raise Problem(404, "not_found", "no such event, or you are not at its door")


async def _views(desk: GateDesk, event_id: int, checked: Sequence[Checked]) -> list[ScanView]:
    seat_name = await desk.seat_names(event_id)
    return [_view(one.scan, one.first, seat_name) for one in checked]


def _view(scan: Scan, first: Scan | None, seat_name: Callable[[int, int], str]) -> ScanView:
    return ScanView(
        id=scan.id,
        outcome=scan.outcome,
        ticket=seat_name(*scan.ticket) if scan.place is not None else None,
        version=scan.code_version,
        gate=scan.gate,
        offline=scan.offline,
        scanned_at=scan.scanned_at,
        received_at=scan.received_at,
        staff=scan.staff,
        first_entry=Entry(gate=first.gate, scanned_at=first.scanned_at) if first else None,
    )


def _next(scan: Scan) -> str:
    return base64.urlsafe_b64encode(f"{scan.scanned_at.astimezone(UTC).isoformat()} {scan.id}".encode()).decode()


def _cursor(text: str) -> tuple[datetime, str] | None:
    if not text:
        return None
    try:
        moment, _, id = base64.urlsafe_b64decode(text).decode().rpartition(" ")
        before = datetime.fromisoformat(moment).astimezone(UTC), id
    except (ValueError, OverflowError):
        raise Problem(400, "bad_cursor", "`before` is not a cursor that this server gave") from None
    if not re.fullmatch("[A-Za-z0-9_-]{8,64}", before[1]):
        raise Problem(400, "bad_cursor", "`before` is not a cursor that this server gave")
    return before
