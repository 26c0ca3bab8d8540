"""What PostgreSQL durably knows of an event's seats, in the words of the hot store: for `verify` and `rebuild`.

A bridge between the ticket rows, the bookings they belong to, and the store's claims. Reads only.
"""

from collections import defaultdict
from uuid import UUID

import asyncpg

from aisle.reservation.facts import ClaimFact, EventFacts, HallFacts
from aisle.reservation.inventory import Hall
from aisle.reservation.keys import Place
from aisle.reservation.pool import Pool, PoolPlace
from aisle.reservation.pool_facts import PoolClaimFact, PoolFacts
from aisle.reservation.subsection import Subsection
from aisle.reservation.verify import Report, verify, verify_places
from aisle.store import Store
from aisle.ticketing import store as tickets
from aisle.ticketing.event import Subhall
from aisle.ticketing.pool import Pool as TicketPool

TAKEN = """
    select t.place, t.seat, t.state, t.booking, t.price, b.buyer, b.placed_at
    from ticketing.tickets t join booking.bookings b on b.id = t.booking
    where t.event_id = $1 and t.state in (1, 2) order by t.place, t.seat
"""


async def known_events(database: asyncpg.Pool) -> list[int]:
    """Events whose seats are in the store; those still being created are not there yet."""
    rows = await database.fetch("select id from ticketing.events where state <> 'creating' order by id")
    return [row["id"] for row in rows]


async def facts_of(database: asyncpg.Pool, event_id: int) -> EventFacts:
    """Raises LookupError for an event that PostgreSQL does not know."""
    async with database.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        return await facts_seen_by(connection, event_id)


async def facts_seen_by(connection: asyncpg.Connection, event_id: int) -> EventFacts:
    """The same for who is in a transaction that keeps the event as it is."""
    event = await tickets.event_of(connection, event_id)
    if event is None:
        raise LookupError(f"event {event_id} is not in the database")
    halls = await tickets.halls_of(connection, event_id)
    pools = await tickets.pools_of(connection, event_id)
    claims = _claims(await connection.fetch(TAKEN, event_id))
    return EventFacts(
        event_id,
        tuple(HallFacts(opened_hall(event, sub), tuple(claims[sub.place]), event.epoch) for sub in halls),
        tuple(PoolFacts(opened_pool(event, pool), _counted(claims[pool.place]), event.epoch) for pool in pools),
    )


async def verify_against_tickets(database: asyncpg.Pool, store: Store, event: int | None = None) -> Report:
    """The store compared with itself, and with the tickets of one event or of all that PostgreSQL knows."""
    report = await verify(store, event)
    for known in [event] if event else await known_events(database):
        facts = await facts_of(database, known)
        found = (await verify_places(store, facts.halls, facts.pools)).findings
        report.findings += [finding for finding in found if finding not in report.findings]
    return report


def opened_hall(event: tickets.Event, sub: Subhall) -> Hall:
    """A subsection as the store has it while the event is on sale."""
    shape = Subsection(sub.rows, sub.seats_per_row, frozenset(sub.accessible))
    place = Place(event.id, sub.section, sub.subsection)
    limit = min(event.seats_per_booking, shape.seats)
    return Hall(place, shape, sub.price, limit, sub.place, frozenset(sub.blocked))


def opened_pool(event: tickets.Event, pool: TicketPool) -> Pool:
    """A pool as the store has it while the event is on sale."""
    place = PoolPlace(event.id, pool.pool)
    return Pool(place, pool.capacity, pool.price, pool.places_per_buyer, pool.one_hold_per_buyer)


def _counted(claims: list[ClaimFact]) -> tuple[PoolClaimFact, ...]:
    return tuple(PoolClaimFact(c.id, c.owner, c.sold, c.price, len(c.seats), c.taken_ms) for c in claims)


def _claims(rows: list[asyncpg.Record]) -> dict[int, list[ClaimFact]]:
    seats: dict[tuple[int, UUID], list[asyncpg.Record]] = defaultdict(list)
    for row in rows:
        seats[row["place"], row["booking"]].append(row)
    claims: dict[int, list[ClaimFact]] = defaultdict(list)
    for (place, booking), owned in seats.items():
        first = owned[0]
        claims[place].append(
            ClaimFact(
                id=str(booking),
                owner=str(first["buyer"]),
                sold=first["state"] == 2,
                price=first["price"],
                seats=tuple(row["seat"] for row in owned),
                taken_ms=int(first["placed_at"].timestamp() * 1000),
            )
        )
    return claims
