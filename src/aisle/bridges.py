"""Where slices meet without knowing each other: what one of them needs to know, made from what another one has.

Used by the composition root only. Each function turns one slice's values into another's, or drives one slice from
another's facts; nothing here decides.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

import asyncpg
import structlog

from aisle.booking.place import FindSale, PoolTerms, Sale
from aisle.epochs import confirm_event
from aisle.errors import Problem, StoreScriptFailed, StoreUnverified
from aisle.limits import GATE_PAUSE_SECONDS_MAX, VERIFY_AT_ONCE
from aisle.messages import POOL
from aisle.reservation.audit import Finding
from aisle.reservation.facts import EventFacts
from aisle.reservation.generation import RECHECK_SECONDS, Gate, Standing
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place
from aisle.reservation.pool import PoolPlace
from aisle.reservation.pools import Pools
from aisle.reservation.reads import places_of, statuses
from aisle.reservation.rebuilt import RebuildRaced
from aisle.reservation.sweeper import Lapsed, Report
from aisle.reservation.verify import verify_places
from aisle.sales.store import note_lapsed
from aisle.store import Store
from aisle.ticket_facts import facts_of, known_events
from aisle.ticketing import store as tickets
from aisle.ticketing import ticket_store
from aisle.ticketing.api import Counts
from aisle.ticketing.catalogue import Catalogue, Listing
from aisle.ticketing.event import EventState

log = structlog.get_logger()


def sales_from(catalogue: Catalogue) -> FindSale:
    kept: dict[int, tuple[Listing, Sale]] = {}

    async def find_sale(event: int) -> Sale:
        listing = await catalogue.find(event)
        known = kept.get(event)
        if known is None or known[0] is not listing:
            known = kept[event] = (listing, _sale(listing))
        return known[1]

    return find_sale


def _sale(listing: Listing) -> Sale:
    event = listing.event
    return Sale(
        event=event.id,
        lane=event.lane,
        epoch=event.epoch,
        on_sale=event.state == EventState.ON_SALE,
        seats_per_booking=event.seats_per_booking,
        seats_per_buyer=event.seats_per_buyer,
        partitions={section.section: section.partition for section in listing.sections},
        currency=event.currency,
        subsections={(hall.section, hall.subsection): (hall.rows, hall.seats_per_row) for hall in listing.halls},
        pools={pool.pool: PoolTerms(pool.places_per_buyer, pool.partition) for pool in listing.pools},
    )


async def counts_of(store: Store, event: int) -> list[Counts]:
    return await _counted(store, await places_of(store, event))


async def _counted(store: Store, places: Sequence[Place]) -> list[Counts]:
    found = await statuses(store, places)
    return [
        Counts(s.place.section, s.place.subsection, s.available, s.reserved, s.sold, s.unavailable, s.total, s.version)
        for s in found
        if s is not None
    ]


async def pool_counts_of(pools: Pools, listing: Listing) -> list[Counts]:
    names = [PoolPlace(listing.event.id, pool.pool) for pool in listing.pools]
    return [
        Counts(s.place.name, POOL, s.available, s.held, s.sold, 0, s.capacity, s.version)
        for s in await pools.statuses(names)
        if s is not None
    ]


async def everything_counted(store: Store, pools: Pools, catalogue: Catalogue, event: int) -> list[Counts]:
    listing = await catalogue.find(event)
    seats = await _counted(store, [Place(event, hall.section, hall.subsection) for hall in listing.halls])
    return [*seats, *(await pool_counts_of(pools, listing) if listing.pools else [])]


async def switch_sale(inventory: Inventory, pools: Pools, listing: Listing, on_sale: bool) -> None:
    event = listing.event
    places = [Place(event.id, hall.section, hall.subsection) for hall in listing.halls]
    names = [PoolPlace(event.id, pool.pool) for pool in listing.pools]
    try:
        await inventory.switch(places, epoch=event.epoch, on_sale=on_sale)
        await pools.switch(names, epoch=event.epoch, on_sale=on_sale)
    except LookupError:
        # Flushed, or left by a rebuild that was cut off; what was switched before this is switched again next time.
        raise StoreUnverified("not in the epoch of the database") from None


async def make_ready(
    database: asyncpg.Pool, store: Store, catalogue: Catalogue, *, now: datetime, limit: int = 20
) -> list[int]:
    """Events whose seats in the store equal their tickets become ready to be sold; returns their ids."""
    async with database.acquire() as connection:
        creating = await tickets.events_in(connection, EventState.CREATING, limit)
    ready = []
    for event in creating:
        await catalogue.changed(event.id)
        facts = await facts_of(database, event.id)
        places = [hall.hall.place for hall in facts.halls]
        pools = [known.pool.place for known in facts.pools]
        if None in await statuses(store, places) or None in await Pools(store).statuses(pools):
            continue  # its messages are still on their way
        report = await verify_places(store, facts.halls, facts.pools)
        findings = [*map(str, report.findings), *await _ticket_findings(database, facts)]
        if findings:
            log.error("event_not_ready", event_id=event.id, findings=findings[:5])
            continue
        async with database.acquire() as connection:
            await tickets.move_event(
                connection, event.id, sources=[EventState.CREATING], target=EventState.READY, now=now
            )
        await catalogue.changed(event.id)
        ready.append(event.id)
    return ready


async def _ticket_findings(database: asyncpg.Pool, facts: EventFacts) -> list[str]:
    """Where the ticket rows of a new event are not what the store was opened with."""
    async with database.acquire() as connection:
        rows = await ticket_store.new_tickets(connection, facts.event)
    expected = {(n, hall.hall.shape.seats, tuple(sorted(hall.hall.blocked))) for n, hall in enumerate(facts.halls)}
    expected |= {(len(facts.halls) + n, known.pool.capacity, ()) for n, known in enumerate(facts.pools)}
    return [f"tickets of place {place} differ" for place, _, _ in expected ^ rows]


async def make_ready_for_ever(
    database: asyncpg.Pool,
    store: Store,
    catalogue: Catalogue,
    *,
    clock: Callable[[], datetime],
    interval_s: float = 0.1,
) -> None:
    while True:
        try:
            await make_ready(database, store, catalogue, now=clock())
        except (Problem, StoreScriptFailed, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("events_wait", reason=str(error))
        await asyncio.sleep(interval_s)


def report_lapsed(database: asyncpg.Pool) -> Report:
    """What sweepers find lapsed becomes part of the sales figures."""

    async def report(holds: Sequence[Lapsed]) -> bool:
        try:
            async with database.acquire() as connection:
                await note_lapsed(connection, holds)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("lapsed_holds_wait", reason=str(error))
            return False
        return True

    return report


async def open_gate(database: asyncpg.Pool, store: Store) -> Gate:
    """Find out whether this store is ours and may be sold from; a new or restarted one is verified first.

    A store that differs from PostgreSQL stays closed: nothing is sold from it until an operator has rebuilt it.
    """
    gate = Gate(store, str(await database.fetchval("select id from public.installation")))
    if await gate.require_ours() is not Standing.VERIFIED:
        await verify_and_admit(database, store, gate)
    return gate


async def watch_gate_for_ever(
    database: asyncpg.Pool, store: Store, gate: Gate, *, interval_s: float = RECHECK_SECONDS
) -> None:
    """A store that was restarted under us is verified as at our own start; what is under way may need a few looks.

    A store that differs is looked at again after a growing pause: reading every seat is work for the store as well.
    """
    pause_s = interval_s
    while True:
        await asyncio.sleep(pause_s)
        try:
            if await gate.check() in (Standing.RESTARTED, Standing.UNMARKED):
                await verify_and_admit(database, store, gate)
            shut = gate.standing is not Standing.VERIFIED
        except (Problem, StoreScriptFailed, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("gate_waits", reason=str(error))
            shut = False  # nothing was compared; a store that is away costs nothing to look for
        pause_s = min(pause_s * 2, GATE_PAUSE_SECONDS_MAX) if shut else interval_s


async def verify_and_admit(database: asyncpg.Pool, store: Store, gate: Gate) -> None:
    standing, verified = gate.standing, gate.connected()
    events = await known_events(database)
    findings: list[Finding] = []
    # A few at a time: a start with a thousand small events is mostly waiting for answers.
    for first in range(0, len(events), VERIFY_AT_ONCE):
        confirming = (confirm_event(database, store, gate, event) for event in events[first : first + VERIFY_AT_ONCE])
        try:
            findings += [finding for found in await asyncio.gather(*confirming) for finding in found]
        except RebuildRaced as raced:
            log.warning("gate_waits", reason=str(raced))
            return
    if findings:
        hint = "aisle rebuild --event N, then aisle verify --admit --fresh"
        log.error("store_stays_closed", standing=standing, findings=[str(one) for one in findings[:5]], hint=hint)
    else:
        # An unmarked store that holds exactly what PostgreSQL knows is new, or has just been rebuilt.
        await gate.admit(verified, fresh=standing is Standing.UNMARKED)
