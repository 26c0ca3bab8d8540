"""Which tickets of a pool a booking gets: the SQL that numbers places which the store only counts.

Choosing is not taking: the tickets are reserved by the same statement as seats, which checks every row. The pool's row
is locked while numbers are chosen, so that two workers with the same message cannot choose twice.
"""

from collections.abc import Sequence
from uuid import UUID

import asyncpg
import msgspec

LOCK_POOLS = """
    select event_id, place, numbered, capacity from ticketing.pools
    where (event_id, place) in (select * from unnest($1::bigint[], $2::int[]))
    order by event_id, place for update
"""

# Tickets that were given before and came back.
RETURNED = """
    select seat from ticketing.tickets
    where event_id = $1 and place = $2 and seat < $3 and state = 0 order by seat limit $4
"""

KNOWN = """
    select booking, event_id, place, seats from ticketing.pool_tickets
    where (booking, event_id, place) in (select * from unnest($1::uuid[], $2::bigint[], $3::int[]))
"""


class Wanted(msgspec.Struct, frozen=True):
    """So many places of a pool for a booking; `place` is the pool's number inside the event."""

    event_id: int
    place: int
    booking: UUID
    quantity: int


async def number_places(connection: asyncpg.Connection, wanted: Sequence[Wanted]) -> dict[Wanted, tuple[int, ...]]:
    """The tickets each booking is given, inside the caller's transaction; fewer than wanted where a pool has no more.

    Asked again, a booking is given the same ones.
    """
    pools = sorted({(w.event_id, w.place) for w in wanted})
    rows = await connection.fetch(LOCK_POOLS, [event for event, _ in pools], [place for _, place in pools])
    columns = [w.booking for w in wanted], [w.event_id for w in wanted], [w.place for w in wanted]
    known = {
        (row["booking"], row["event_id"], row["place"]): tuple(row["seats"])
        for row in await connection.fetch(KNOWN, *columns)
    }
    given = {w: known[key] for w in wanted if (key := (w.booking, w.event_id, w.place)) in known}
    for pool in rows:
        fresh = [w for w in wanted if w not in given and (w.event_id, w.place) == (pool["event_id"], pool["place"])]
        if fresh:
            given |= await _number(connection, pool, fresh)
    return given


async def _number(
    connection: asyncpg.Connection, pool: asyncpg.Record, wanted: Sequence[Wanted]
) -> dict[Wanted, tuple[int, ...]]:
    event_id, place, numbered = pool["event_id"], pool["place"], pool["numbered"]
    asked = sum(w.quantity for w in wanted)
    free = list(range(numbered, min(numbered + asked, pool["capacity"])))
    if len(free) < asked:
        rows = await connection.fetch(RETURNED, event_id, place, numbered, asked - len(free))
        free += [row["seat"] for row in rows]
    given: dict[Wanted, tuple[int, ...]] = {}
    for w in wanted:
        given[w], free = tuple(free[: w.quantity]), free[w.quantity :]
    await connection.execute(
        "update ticketing.pools set numbered = least(capacity, numbered + $3) where event_id = $1 and place = $2",
        event_id,
        place,
        asked,
    )
    await connection.executemany(
        "insert into ticketing.pool_tickets (booking, event_id, place, seats) values ($1, $2, $3, $4)",
        [(w.booking, w.event_id, w.place, list(seats)) for w, seats in given.items() if len(seats) == w.quantity],
    )
    return given
