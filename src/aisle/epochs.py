"""A new epoch of an event, in the store and in PostgreSQL: for a rebuild, and for a store that may have lost something.

    stop      nobody can send word of the event's tickets to the store: whoever is about to waits for us
    read      what PostgreSQL knows, which now stays as it is
    replace   or only compare, in the store; whatever is still on its way was sent in the old epoch, and is refused
    note      the new epoch, and let go: from here on word is sent in the new one

So every change of a ticket is either among the facts, or told to the store after it has them: nothing falls between.
Killed before the end, the store is ahead of PostgreSQL: off sale, found by every verification, and mended by a rebuild.
"""

import asyncpg

from aisle.reservation.advance import advance
from aisle.reservation.audit import Finding
from aisle.reservation.generation import Gate, Standing
from aisle.reservation.rebuild import Rebuild, reopen, replace
from aisle.reservation.verify import verify_places
from aisle.store import Store
from aisle.ticket_facts import facts_seen_by
from aisle.ticketing import store as tickets
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.event import EventState


async def rebuild_event(database: asyncpg.Pool, store: Store, event: int, *, drop_holds: bool = False) -> Rebuild:
    """Recreate an event in the store from PostgreSQL. Payments and expiries of this event wait while it runs."""
    async with database.acquire() as connection, connection.transaction():
        await tickets.stop_event(connection, event)
        facts = await facts_seen_by(connection, event)
        replaced = await replace(store, facts, drop_holds=drop_holds)
        await tickets.begin_epoch(connection, event, replaced.epoch)
        known = await tickets.event_of(connection, event)
    # Bookings go by the copy of the event in the store, which has the old epoch.
    await Catalogue(database, store).changed(event)
    # A store that was flushed does not know that it was on sale; the seller's word is in PostgreSQL.
    is_on_sale = known is not None and known.state == EventState.ON_SALE
    return await reopen(store, replaced.to_be(on_sale=is_on_sale))


async def confirm_event(database: asyncpg.Pool, store: Store, gate: Gate, event: int) -> list[Finding]:
    """Where a store that was restarted differs from PostgreSQL; if nowhere, the event goes on in a new epoch.

    A store may come back without its last writes. Word of seats that it gave away then can still be on its way to the
    tickets: in the new epoch it is refused there, or the store would offer seats that PostgreSQL has given away.
    """
    async with database.acquire() as connection, connection.transaction():
        await tickets.stop_event(connection, event)
        if await gate.check() is Standing.VERIFIED:
            return []  # somebody else was faster, and seats are being sold again
        facts = await facts_seen_by(connection, event)
        # A confirmation that died half-way left some places an epoch ahead: that alone is nothing wrong with them.
        known = facts.of_any_epoch()
        report = await verify_places(store, known.halls, known.pools)
        if report.findings:
            return report.findings
        await tickets.begin_epoch(connection, event, await advance(store, facts))
    await Catalogue(database, store).changed(event)
    return []
