"""Let people in, once each: a scan over the network, or those that a device made without one and sends later.

Everything a request asks for is decided in one transaction under the locks of its tickets; the unique index on first
scans and the check on ticket rows are the last line. Sent again, a scan gets the answer it got, from the log.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from aisle.crash_points import crash_point
from aisle.db import in_one_go
from aisle.door import store
from aisle.door.code import Content, Unreadable, key_id_of, read_code
from aisle.door.key_ring import KeyRing
from aisle.door.scan import Outcome, Scan, judge, rank_entries
from aisle.errors import Problem


class Shown(msgspec.Struct, frozen=True):
    """What a device has seen. Without a time it was seen now, over the network."""

    id: str
    code: str
    gate: str
    at: datetime | None = None


class Checked(msgspec.Struct, frozen=True):
    """A scan with its outcome, and the entry that came first where somebody was already in."""

    scan: Scan
    first: Scan | None


class Door:
    def __init__(self, database: asyncpg.Pool, keys: KeyRing, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._keys = keys
        self._clock = clock

    async def check_in(self, event: int, staff: UUID, shown: Sequence[Shown]) -> list[Checked]:
        """The outcomes, in the order asked. All of them are in the log, or none is."""
        scans = await self._read(event, staff, shown)

        async def decide(connection: asyncpg.Connection) -> list[Checked]:
            async with connection.transaction():
                await _require_staff(connection, event, staff)
                return await _decide(connection, event, scans)

        # If somebody sends one of these ids at the same moment, it is in the log the next time.
        checked = await in_one_go(self._database, decide, lost=(asyncpg.UniqueViolationError,))
        crash_point("after_check_in")
        return checked

    async def _read(self, event: int, staff: UUID, shown: Sequence[Shown]) -> list[Scan]:
        keys = await self._keys.public_keys(key_id_of(one.code) for one in shown)
        now = self._clock()

        def read() -> list[Scan]:
            return [_scan(one, event, staff, read_code(one.code, keys), now) for one in shown]

        # A signature takes a tenth of a millisecond: a full batch would hold everybody else up.
        return read() if len(shown) == 1 else await asyncio.to_thread(read)


def _scan(shown: Shown, event: int, staff: UUID, content: Content | Unreadable, now: datetime) -> Scan:
    scan = Scan(
        id=shown.id,
        request_hash=_hash(shown),
        staff=staff,
        gate=shown.gate,
        outcome=Outcome.TAMPERED,
        offline=shown.at is not None,
        # A clock that runs ahead must not make its device first in everything that is still to come.
        scanned_at=now if shown.at is None else min(shown.at, now),
        received_at=now,
    )
    if isinstance(content, Unreadable):
        return msgspec.structs.replace(scan, outcome=Outcome(content.value))
    if content.event != event:
        return msgspec.structs.replace(scan, outcome=Outcome.OTHER_EVENT)
    return msgspec.structs.replace(
        scan, place=content.place, seat=content.seat, code_version=content.version, outcome=Outcome.ACCEPTED
    )


def _hash(shown: Shown) -> bytes:
    return hashlib.blake2b(msgspec.json.encode((shown.code, shown.gate, shown.at)), digest_size=16).digest()


async def _require_staff(connection: asyncpg.Connection, event: int, staff: UUID) -> None:
    if not await store.is_staff(connection, event, staff):
        raise Problem(404, "not_found", "no such event, or you are not at its door")


async def _decide(connection: asyncpg.Connection, event: int, scans: Sequence[Scan]) -> list[Checked]:
    readable = [scan.ticket for scan in scans if scan.outcome is Outcome.ACCEPTED]
    facts = await store.lock_tickets(connection, event, readable) if readable else {}
    known = await store.scans_by_id(connection, event, [scan.id for scan in scans])
    new: dict[str, Scan] = {}
    for scan in scans:
        earlier = known.get(scan.id) or new.setdefault(scan.id, scan)
        if earlier.request_hash != scan.request_hash:
            raise Problem(422, "scan_id_reused", f"the id {scan.id} was used for another scan")
    judged = [judge(scan, facts.get(scan.ticket) if scan.place is not None else None) for scan in new.values()]
    firsts = await store.first_scans(connection, event, readable) if readable else []
    placed, overtaken = rank_entries(judged, firsts)
    if overtaken:
        await store.second_place(connection, event, [scan.id for scan in overtaken])
    if placed:
        await store.insert_scans(connection, event, placed)
    entered = [scan for scan in placed if scan.outcome is Outcome.ACCEPTED]
    if entered:
        await store.admit(connection, event, entered)
    return _answers(scans, {**known, **{scan.id: scan for scan in placed}}, [*firsts, *entered], overtaken)


def _answers(
    scans: Sequence[Scan], outcomes: dict[str, Scan], firsts: Sequence[Scan], overtaken: Sequence[Scan]
) -> list[Checked]:
    gone = {scan.id for scan in overtaken}
    first_of = {(scan.ticket, scan.code_version): scan for scan in firsts if scan.id not in gone}
    answers = []
    for asked in scans:
        scan = outcomes[asked.id]
        is_second = scan.outcome is Outcome.ALREADY_IN
        answers.append(Checked(scan, first_of.get((scan.ticket, scan.code_version)) if is_second else None))
    return answers
