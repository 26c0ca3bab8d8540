"""Compare the store with the tickets while seats are sold, and leave a note of what differs: `aisle reconcile`.

A process of its own, at a low priority: reading every seat takes time that no worker has. While seats are sold the
store is ahead of PostgreSQL by what is on its way, so only what is found in every look counts. Nothing is repaired.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import asyncpg
import structlog

from aisle.ops.notes import FINDINGS_KEPT, Reconciled, note
from aisle.reservation.audit import Finding
from aisle.store import Store
from aisle.ticket_facts import verify_against_tickets

LOOKS = 3
PAUSE_SECONDS = 4.0
LATE = timedelta(minutes=10)
LOCK = 0x41524543  # one comparison at a time, whoever starts it

PAID_WITHOUT_TICKET = """
    select count(*) from booking.bookings b join payment.payments p on p.booking = b.id and p.state = 'CAPTURED'
    where b.state = 'PAID' and p.ended_at < $1
    and not exists (select from ticketing.tickets t where t.event_id = b.event_id and t.booking = b.id and t.state = 2)
"""

log = structlog.get_logger()


async def reconcile(database: asyncpg.Pool, store: Store, *, pause_s: float = PAUSE_SECONDS) -> Reconciled | None:
    """What differs and stays so, noted in the store; None if somebody else is at it."""
    async with database.acquire() as connection:
        if not await connection.fetchval("select pg_try_advisory_lock($1)", LOCK):
            return None
        try:
            found = await _compare(database, store, pause_s)
            await note(store, "reconcile", found)
            return found
        finally:
            await connection.fetchval("select pg_advisory_unlock($1)", LOCK)


async def _compare(database: asyncpg.Pool, store: Store, pause_s: float) -> Reconciled:
    started = time.monotonic()
    report = await verify_against_tickets(database, store)
    stayed: list[Finding] = report.findings
    for _ in range(LOOKS - 1):
        if not stayed:
            break
        await asyncio.sleep(pause_s)
        again = {*(await verify_against_tickets(database, store)).findings}
        stayed = [finding for finding in stayed if finding in again]
    now = datetime.now(UTC)
    return Reconciled(
        at=now,
        seconds=time.monotonic() - started,
        seats=report.seats,
        drift=dict(Counter(finding.kind.value for finding in stayed)),
        findings=tuple(map(str, stayed[:FINDINGS_KEPT])),
        paid_without_ticket=await database.fetchval(PAID_WITHOUT_TICKET, now - LATE),
    )


async def reconcile_for_ever(interval_s: float) -> None:
    """Start the command every so often, with the settings of this process. Two at once do no harm: one steps back."""
    while True:
        await asyncio.sleep(interval_s)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aisle", "reconcile", "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ},
        )
        try:
            _, said = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if process.returncode == 1:
            log.error("store_differs", hint="aisle reconcile, then docs/how-to/runbooks.md")
        elif process.returncode:
            log.warning("not_reconciled", reason=said.decode(errors="replace").strip()[-300:])
