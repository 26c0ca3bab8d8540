"""Events in PostgreSQL, with their sections, subsections and pools: how they are written, read and changed.

What happens to their tickets afterwards is in `ticket_store`.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from uuid import UUID

import asyncpg
import msgspec

from aisle.limits import STOP_SECONDS_MAX, TICKETS_PER_COPY
from aisle.messages import Message, encode
from aisle.ticketing.event import Description, Subhall, TicketState, lane_of, partition_of
from aisle.ticketing.pool import Pool

EVENT_COLUMNS = (
    "id, seller, name, description, venue, starts_at, time_zone, currency, lane, state, epoch, seats, "
    "seats_per_booking, seats_per_buyer, created_at, updated_at"
)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    seller: UUID
    name: str
    description: str
    venue: str
    starts_at: datetime
    time_zone: str
    currency: str
    lane: str
    state: str
    epoch: int
    seats: int
    seats_per_booking: int
    seats_per_buyer: int
    created_at: datetime
    updated_at: datetime


class Section(msgspec.Struct, frozen=True):
    section: str
    rank: int
    partition: int
    price: int


async def insert_event(
    connection: asyncpg.Connection,
    seller: UUID,
    description: Description,
    hall: Sequence[Subhall],
    pools: Sequence[Pool] = (),
    *,
    own_lane_from_seats: int,
    now: datetime,
) -> Event:
    """The event, its sections, subsections, pools and one ticket row a seat or place, in the caller's transaction."""
    seats = sum(sub.seats for sub in hall) + sum(pool.capacity for pool in pools)
    event_id = await connection.fetchval("select nextval(pg_get_serial_sequence('ticketing.events', 'id'))")
    lane = lane_of(event_id, seats, description.own_lane, own_lane_from_seats=own_lane_from_seats)
    row = await connection.fetchrow(
        f"""insert into ticketing.events (id, seller, name, description, venue, starts_at, time_zone, currency, lane,
                seats, seats_per_booking, seats_per_buyer, created_at, updated_at)
            overriding system value
            values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13) returning {EVENT_COLUMNS}""",
        event_id, seller, description.name, description.description, description.venue, description.starts_at,
        description.time_zone, description.currency, lane, seats, description.seats_per_booking,
        description.seats_per_buyer, now,
    )  # fmt: skip
    await connection.copy_records_to_table(
        "sections",
        schema_name="ticketing",
        columns=("event_id", "section", "rank", "partition", "price"),
        records=[(event_id, s.name, n, partition_of(n), s.price) for n, s in enumerate(description.sections)],
    )
    await connection.copy_records_to_table(
        "subsections",
        schema_name="ticketing",
        columns=(
            "event_id", "section", "subsection", "place", "rank", "rows", "seats_per_row", "blocked", "accessible",
        ),
        records=[
            (event_id, s.section, s.subsection, s.place, s.place, s.rows, s.seats_per_row, s.blocked, s.accessible)
            for s in hall
        ],
    )  # fmt: skip
    await connection.copy_records_to_table(
        "pools",
        schema_name="ticketing",
        columns=("event_id", *Pool.__struct_fields__),
        records=[(event_id, *msgspec.structs.astuple(pool)) for pool in pools],
    )
    rows = _ticket_rows(event_id, hall, pools)
    # A million at once would keep the process from everything else for seconds, and outlast the time-out of a call.
    while some := list(islice(rows, TICKETS_PER_COPY)):
        await connection.copy_records_to_table(
            "tickets", schema_name="ticketing", columns=("event_id", "place", "seat", "state", "price"), records=some
        )
    return _event(row)


def _ticket_rows(
    event_id: int, hall: Sequence[Subhall], pools: Sequence[Pool]
) -> Iterator[tuple[int, int, int, int, int]]:
    for sub in hall:
        states = [int(TicketState.AVAILABLE)] * sub.seats
        for seat in sub.blocked:
            states[seat] = int(TicketState.UNAVAILABLE)
        for seat, state in enumerate(states):
            yield event_id, sub.place, seat, state, sub.price
    for pool in pools:
        for n in range(pool.capacity):
            yield event_id, pool.place, n, int(TicketState.AVAILABLE), pool.price


async def write_outbox(connection: asyncpg.Connection, messages: Sequence[Message], *, now: datetime) -> None:
    await connection.execute(
        "insert into ticketing.outbox (message, written_at) select m, $2 from unnest($1::bytea[]) as m",
        [encode(message) for message in messages],
        now,
    )


def _event(row: asyncpg.Record) -> Event:
    return Event(**dict(row))


async def places_of(connection: asyncpg.Connection, events: Sequence[int]) -> dict[int, dict[tuple[str, int], int]]:
    """(section, subsection) or (pool, 0) -> the place's number, by event."""
    rows = await connection.fetch(
        """select event_id, section, subsection, place from ticketing.subsections where event_id = any($1::bigint[])
           union all select event_id, pool, 0, place from ticketing.pools where event_id = any($1::bigint[])""",
        list(events),
    )
    found: dict[int, dict[tuple[str, int], int]] = {}
    for row in rows:
        found.setdefault(row["event_id"], {})[row["section"], row["subsection"]] = row["place"]
    return found


async def epochs_of(connection: asyncpg.Connection, events: Sequence[int]) -> dict[int, int]:
    """The epoch of each event, which stays what it is until the caller's transaction has ended.

    So a rebuild finds what was sent in the old epoch among its facts, and what comes later is sent in the new one.
    """
    rows = await connection.fetch(
        "select id, epoch from ticketing.events where id = any($1::bigint[]) order by id for share", list(events)
    )
    return {row["id"]: row["epoch"] for row in rows}


async def stop_event(connection: asyncpg.Connection, event_id: int) -> None:
    """Until the caller's transaction has ended, nobody can send word of this event's tickets to the store.

    Those who share the event do not queue behind us, so in a rush this waits for a gap between them.
    """
    statement = "select 1 from ticketing.events where id = $1 for no key update"
    await connection.execute(statement, event_id, timeout=STOP_SECONDS_MAX)


async def begin_epoch(connection: asyncpg.Connection, event_id: int, epoch: int) -> None:
    await connection.execute("update ticketing.events set epoch = $2 where id = $1", event_id, epoch)


async def event_of(connection: asyncpg.Connection, event_id: int) -> Event | None:
    row = await connection.fetchrow(f"select {EVENT_COLUMNS} from ticketing.events where id = $1", event_id)
    return _event(row) if row else None


async def sections_of(connection: asyncpg.Connection, event_id: int) -> list[Section]:
    rows = await connection.fetch(
        "select section, rank, partition, price from ticketing.sections where event_id = $1 order by rank", event_id
    )
    return [Section(*row) for row in rows]


async def halls_of(connection: asyncpg.Connection, event_id: int) -> list[Subhall]:
    """Subsections of an event, best first, as they were planned, at the prices that hold now."""
    rows = await connection.fetch(
        """select section, subsection, place, s.price, rows, seats_per_row, blocked, accessible
           from ticketing.subsections join ticketing.sections s using (event_id, section)
           where event_id = $1 order by place""",
        event_id,
    )
    return [
        Subhall(**{**row, "blocked": tuple(row["blocked"]), "accessible": tuple(row["accessible"])}) for row in rows
    ]


async def pools_of(connection: asyncpg.Connection, event_id: int) -> list[Pool]:
    columns = ", ".join(Pool.__struct_fields__)
    rows = await connection.fetch(f"select {columns} from ticketing.pools where event_id = $1 order by place", event_id)
    return [Pool(**row) for row in rows]


async def browse(
    connection: asyncpg.Connection, *, search: str, after: tuple[datetime, int] | None, limit: int
) -> list[Event]:
    """Events that can be bought or could be, soonest first; `after` is the last one of the page before."""
    rows = await connection.fetch(
        f"""select {EVENT_COLUMNS} from ticketing.events
            where state in ('on_sale', 'closed') and ($1 = '' or name ilike $1 or venue ilike $1)
              and ($2::timestamptz is null or (starts_at, id) > ($2, $3::bigint))
            order by starts_at, id limit $4""",
        f"%{_literal(search)}%" if search else "",
        after[0] if after else None,
        after[1] if after else 0,
        limit,
    )
    return [_event(row) for row in rows]


async def events_of(connection: asyncpg.Connection, seller: UUID, *, before: int, limit: int) -> list[Event]:
    """A seller's events in every state, newest first; `before` is the last one of the page before, or 0."""
    rows = await connection.fetch(
        f"""select {EVENT_COLUMNS} from ticketing.events
            where seller = $1 and ($2 = 0 or id < $2) order by id desc limit $3""",
        seller,
        before,
        limit,
    )
    return [_event(row) for row in rows]


async def move_event(
    connection: asyncpg.Connection, event_id: int, *, sources: Sequence[str], target: str, now: datetime
) -> Event | None:
    """Change an event's state if it is in one of `sources`; None if it was not."""
    row = await connection.fetchrow(
        f"""update ticketing.events set state = $3, updated_at = $4
            where id = $1 and state = any($2::text[]) returning {EVENT_COLUMNS}""",
        event_id,
        list(sources),
        target,
        now,
    )
    return _event(row) if row else None


async def change_event(
    connection: asyncpg.Connection,
    event_id: int,
    seller: UUID,
    name: str | None,
    description: str | None,
    venue: str | None,
    *,
    now: datetime,
) -> Event | None:
    """Other words for a seller's event, None for those that stay; None if the event is not theirs."""
    row = await connection.fetchrow(
        f"""update ticketing.events set name = coalesce($3, name), description = coalesce($4, description),
                venue = coalesce($5, venue), updated_at = $6
            where id = $1 and seller = $2 returning {EVENT_COLUMNS}""",
        event_id, seller, name, description, venue, now,
    )  # fmt: skip
    return _event(row) if row else None


async def events_in(connection: asyncpg.Connection, state: str, limit: int) -> list[Event]:
    rows = await connection.fetch(
        f"select {EVENT_COLUMNS} from ticketing.events where state = $1 order by id limit $2",
        state,
        limit,
    )
    return [_event(row) for row in rows]


async def lanes(connection: asyncpg.Connection) -> list[str]:
    """Every lane that an event uses."""
    return [row["lane"] for row in await connection.fetch("select distinct lane from ticketing.events order by 1")]


def _literal(search: str) -> str:
    """What a person types is looked for as it is: % and _ mean themselves."""
    return search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
