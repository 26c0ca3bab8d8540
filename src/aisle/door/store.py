"""Tickets at the door in PostgreSQL: the SQL of this slice.

Whoever changes a ticket row takes its lock first, in the order (event, place, seat) that refunds use too: a scan and a
refund of the same ticket happen one after the other, and the second sees what the first did.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from aisle.audit import Deed, note
from aisle.door.scan import Fact, Outcome, Scan

SeatKey = tuple[int, int]

SOLD = """
    select place, seat, price, code_version, admitted_at from ticketing.tickets
    where event_id = $1 and booking = $2 and state = 2
      and (place, seat) in (select * from unnest($3::int[], $4::int[]))
"""

VOID = """
    update ticketing.tickets set code_version = code_version + 1
    where event_id = $1 and booking = $2 and place = $3 and seat = $4 and code_version = $5
      and state = 2 and admitted_at is null
"""

LOCK = """
    select place, seat, state, code_version from ticketing.tickets
    where event_id = $1 and (place, seat) in (select * from unnest($2::int[], $3::int[]))
    order by event_id, place, seat for update
"""

VOIDED = """
    select place, seat, code_version, reason from ticketing.voided_codes
    where event_id = $1 and (place, seat) in (select * from unnest($2::int[], $3::int[]))
"""

SCAN_COLUMNS = "id, request_hash, gate, place, seat, code_version, outcome, offline, scanned_at, received_at, staff"

FIRST = f"""
    select {SCAN_COLUMNS} from door.scans
    where event_id = $1 and outcome = 'accepted' and (place, seat) in (select * from unnest($2::int[], $3::int[]))
"""

INSERT_SCANS = """
    insert into door.scans (event_id, staff, received_at, offline, id, request_hash, gate, place, seat, code_version,
                            outcome, scanned_at)
    select $1, $2, $3, $4, * from unnest($5::text[], $6::bytea[], $7::text[], $8::int[], $9::int[], $10::int[],
                                         $11::text[], $12::timestamptz[])
"""

ADMIT = """
    update ticketing.tickets t set admitted_at = a.at
    from unnest($2::int[], $3::int[], $4::int[], $5::timestamptz[]) as a(place, seat, code_version, at)
    where (t.event_id, t.place, t.seat) = ($1, a.place, a.seat) and t.state = 2 and t.code_version = a.code_version
"""

LOG = f"""
    select {SCAN_COLUMNS} from door.scans
    where event_id = $1 and ($2 = '' or outcome = $2)
      and ($3::timestamptz is null or (scanned_at, id) < ($3, $4))
    order by scanned_at desc, id desc limit $5
"""


async def sold_tickets(
    connection: asyncpg.Connection, event: int, booking: UUID, keys: Sequence[SeatKey]
) -> dict[SeatKey, asyncpg.Record]:
    rows = await connection.fetch(SOLD, event, booking, *_columns(keys))
    return {(row["place"], row["seat"]): row for row in rows}


async def void_version(connection: asyncpg.Connection, event: int, booking: UUID, key: SeatKey, version: int) -> None:
    """Where the ticket is at this version and nobody has entered with it."""
    await connection.execute(VOID, event, booking, *key, version)


async def lock_tickets(connection: asyncpg.Connection, event: int, keys: Iterable[SeatKey]) -> dict[SeatKey, Fact]:
    """What each ticket is, until the transaction ends; with the codes of it that were voided."""
    columns = _columns(sorted(set(keys)))
    rows = await connection.fetch(LOCK, event, *columns)
    voided: dict[SeatKey, dict[int, str]] = {}
    if any(row["code_version"] > 1 for row in rows):
        for row in await connection.fetch(VOIDED, event, *columns):
            voided.setdefault((row["place"], row["seat"]), {})[row["code_version"]] = row["reason"]
    return {
        (row["place"], row["seat"]): Fact(
            sold=row["state"] == 2, version=row["code_version"], voided=voided.get((row["place"], row["seat"]), {})
        )
        for row in rows
    }


async def first_scans(connection: asyncpg.Connection, event: int, keys: Iterable[SeatKey]) -> list[Scan]:
    return [_scan(row) for row in await connection.fetch(FIRST, event, *_columns(sorted(set(keys))))]


async def scans_by_id(connection: asyncpg.Connection, event: int, ids: Sequence[str]) -> dict[str, Scan]:
    rows = await connection.fetch(
        f"select {SCAN_COLUMNS} from door.scans where event_id = $1 and id = any($2::text[])", event, list(ids)
    )
    return {row["id"]: _scan(row) for row in rows}


async def second_place(connection: asyncpg.Connection, event: int, ids: Sequence[str]) -> None:
    """These were first until a scan arrived that had been made before them."""
    await connection.execute(
        "update door.scans set outcome = 'already_in' where event_id = $1 and id = any($2::text[])", event, list(ids)
    )


async def insert_scans(connection: asyncpg.Connection, event: int, scans: Sequence[Scan]) -> None:
    first = scans[0]
    await connection.execute(
        INSERT_SCANS, event, first.staff, first.received_at, first.offline,
        [s.id for s in scans], [s.request_hash for s in scans], [s.gate for s in scans], [s.place for s in scans],
        [s.seat for s in scans], [s.code_version for s in scans], [s.outcome.value for s in scans],
        [s.scanned_at for s in scans],
    )  # fmt: skip


async def admit(connection: asyncpg.Connection, event: int, firsts: Sequence[Scan]) -> None:
    await connection.execute(
        ADMIT, event, [s.place for s in firsts], [s.seat for s in firsts], [s.code_version for s in firsts],
        [s.scanned_at for s in firsts],
    )  # fmt: skip


async def log_of(
    connection: asyncpg.Connection, event: int, *, outcome: str, before: tuple[datetime, str] | None, limit: int
) -> list[Scan]:
    """Newest first; `before` is the last one of the page before."""
    rows = await connection.fetch(
        LOG, event, outcome, before[0] if before else None, before[1] if before else "", limit
    )
    return [_scan(row) for row in rows]


async def voided_codes(
    connection: asyncpg.Connection, event: int, *, after: tuple[int, int, int], limit: int
) -> list[tuple[int, int, int]]:
    """(place, seat, version) of codes that are void, in this order; `after` is the last one of the page before."""
    rows = await connection.fetch(
        """select place, seat, code_version from ticketing.voided_codes
           where event_id = $1 and (place, seat, code_version) > ($2, $3, $4)
           order by event_id, place, seat, code_version limit $5""",
        event, *after, limit,
    )  # fmt: skip
    return [tuple(row) for row in rows]


async def is_staff(connection: asyncpg.Connection, event: int, account: UUID) -> bool:
    found = await connection.fetchval(
        "select true from door.staff where event_id = $1 and account = $2", event, account
    )
    return bool(found)


async def events_of(connection: asyncpg.Connection, account: UUID, *, limit: int) -> list[int]:
    """The events whose doors this account may stand at, newest grant first."""
    rows = await connection.fetch(
        "select event_id from door.staff where account = $1 order by granted_at desc, event_id desc limit $2",
        account,
        limit,
    )
    return [row["event_id"] for row in rows]


async def staff_of(connection: asyncpg.Connection, event: int) -> list[tuple[UUID, datetime]]:
    rows = await connection.fetch(
        "select account, granted_at from door.staff where event_id = $1 order by granted_at, account", event
    )
    return [(row["account"], row["granted_at"]) for row in rows]


async def grant(
    connection: asyncpg.Connection, event: int, account: UUID, *, by: UUID, limit: int, now: datetime
) -> bool:
    """False if the event has as many staff as it may have. Granting again changes nothing."""
    async with connection.transaction():
        # Two grants cannot both find the last place.
        await connection.execute("select 1 from ticketing.events where id = $1 for no key update", event)
        if await is_staff(connection, event, account):
            return True
        if await connection.fetchval("select count(*) from door.staff where event_id = $1", event) >= limit:
            return False
        await connection.execute("insert into door.staff values ($1, $2, $3)", event, account, now)
        await note(connection, Deed.DOOR_STAFF_GRANTED, actor=by, subject=event, detail={"account": account})
    return True


async def withdraw(connection: asyncpg.Connection, event: int, account: UUID, *, by: UUID) -> bool:
    async with connection.transaction():
        gone = await connection.fetchval(
            "delete from door.staff where event_id = $1 and account = $2 returning true", event, account
        )
        if gone:
            await note(connection, Deed.DOOR_STAFF_WITHDRAWN, actor=by, subject=event, detail={"account": account})
    return bool(gone)


def _columns(keys: Sequence[SeatKey]) -> tuple[list[int], list[int]]:
    return [place for place, _ in keys], [seat for _, seat in keys]


def _scan(row: asyncpg.Record) -> Scan:
    return Scan(**{**row, "request_hash": bytes(row["request_hash"]), "outcome": Outcome(row["outcome"])})
