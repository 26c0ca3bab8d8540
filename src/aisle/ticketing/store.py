"""Events and tickets in PostgreSQL: the SQL of this slice.

The count of rows that matched is always checked: a statement that moves fewer tickets than it was asked to has met a
seat that is not what the store believed, and that is said, never passed over.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from uuid import UUID

import asyncpg
import msgspec

from aisle.limits import TICKETS_PER_COPY
from aisle.messages import Message, encode
from aisle.ticketing.event import Description, Subhall, TicketState, lane_of, partition_of
from aisle.ticketing.pool import Pool

EVENT_COLUMNS = (
    "id, seller, name, description, venue, starts_at, time_zone, currency, lane, state, epoch, seats, "
    "seats_per_booking, seats_per_buyer, created_at, updated_at"
)

# A ticket that already belongs to the booking counts as moved: messages come twice, and a payment may overtake this.
RESERVE = """
    with wanted as (
        select * from unnest($1::bigint[], $2::int[], $3::int[], $4::uuid[], $5::bigint[])
            as w(event_id, place, seat, booking, price)
    )
    update ticketing.tickets t set state = greatest(t.state, 1), booking = w.booking, price = w.price
    from wanted w
    where (t.event_id, t.place, t.seat) = (w.event_id, w.place, w.seat) and (t.state = 0 or t.booking = w.booking)
    returning w.booking
"""

LOCK = """
    select 1 from ticketing.tickets
    where (event_id, place, seat) in (select * from unnest($1::bigint[], $2::int[], $3::int[]))
    order by event_id, place, seat for update
"""

# `is true` keeps the planner to the key: by its statistics, which are from before the sale, no ticket has an owner, and
# it would read the whole table for the few that it expects.
RELEASE = """
    with wanted as (
        select * from unnest($1::bigint[], $2::int[], $3::int[], $4::uuid[]) as w(event_id, place, seat, booking)
    )
    update ticketing.tickets t set state = 0, booking = null
    from wanted w
    where (t.event_id, t.place, t.seat) = (w.event_id, w.place, w.seat)
      and (t.booking = w.booking and t.state = any($5::int[])) is true
    returning w.booking
"""

SELL = """
    update ticketing.tickets t set state = 2, sold_at = coalesce(t.sold_at, now())
    from unnest($1::bigint[], $2::int[], $3::int[], $4::uuid[]) as w(event_id, place, seat, booking)
    where (t.event_id, t.place, t.seat) = (w.event_id, w.place, w.seat)
      and (t.booking = w.booking and t.state in (1, 2)) is true
    returning t.booking
"""

UNSELL = """
    update ticketing.tickets t set state = 1, sold_at = null
    from unnest($1::bigint[], $2::int[], $3::int[], $4::uuid[]) as w(event_id, place, seat, booking)
    where (t.event_id, t.place, t.seat) = (w.event_id, w.place, w.seat)
      and (t.booking = w.booking and t.state = 2) is true
"""

# The code of the ticket is void in the same moment in which somebody else can buy the seat. Who is inside stays there.
TAKE_BACK = """
    update ticketing.tickets t set state = 0, booking = null, sold_at = null, code_version = t.code_version + 1
    from unnest($1::bigint[], $2::int[], $3::int[], $4::uuid[]) as w(event_id, place, seat, booking)
    where (t.event_id, t.place, t.seat) = (w.event_id, w.place, w.seat)
      and (t.booking = w.booking and t.state = 2 and t.admitted_at is null) is true
    returning w.booking
"""


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


class SeatRef(msgspec.Struct, frozen=True):
    """One seat of one booking, by its key in the tickets table."""

    event_id: int
    place: int
    seat: int
    booking: UUID
    price: int = 0


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


async def analyze_tickets(connection: asyncpg.Connection) -> None:
    """Without fresh statistics the batched updates of a new event run eighty times slower."""
    await connection.execute("analyze ticketing.tickets")


async def reserve(connection: asyncpg.Connection, seats: Sequence[SeatRef]) -> dict[UUID, int]:
    """AVAILABLE -> RESERVED; how many seats of each booking are now reserved for it."""
    rows = await connection.fetch(RESERVE, *_columns(seats), [seat.price for seat in seats])
    return _counted(rows)


async def lock(connection: asyncpg.Connection, seats: Sequence[SeatRef]) -> None:
    """Wait for whoever is changing these tickets, so that the next statement sees what they did."""
    await connection.execute(LOCK, *_columns(seats)[:3])


async def release(
    connection: asyncpg.Connection, seats: Sequence[SeatRef], *, from_states: Sequence[TicketState]
) -> dict[UUID, int]:
    """Back to AVAILABLE; how many seats of each booking were given back now."""
    rows = await connection.fetch(RELEASE, *_columns(seats), [int(state) for state in from_states])
    return _counted(rows)


async def sell(connection: asyncpg.Connection, seats: Sequence[SeatRef]) -> dict[UUID, int]:
    """RESERVED -> SOLD; how many seats of each booking are now sold to it."""
    return _counted(await connection.fetch(SELL, *_columns(seats)))


async def unsell(connection: asyncpg.Connection, seats: Sequence[SeatRef]) -> None:
    """Undo a sale of this same transaction that did not find all its tickets."""
    await connection.execute(UNSELL, *_columns(seats))


async def take_back(connection: asyncpg.Connection, seats: Sequence[SeatRef]) -> dict[UUID, int]:
    """SOLD -> AVAILABLE with their codes void; how many seats of each booking."""
    return _counted(await connection.fetch(TAKE_BACK, *_columns(seats)))


async def write_outbox(connection: asyncpg.Connection, messages: Sequence[Message], *, now: datetime) -> None:
    await connection.execute(
        "insert into ticketing.outbox (message, written_at) select m, $2 from unnest($1::bytea[]) as m",
        [encode(message) for message in messages],
        now,
    )


def _columns(seats: Sequence[SeatRef]) -> tuple[list[int], list[int], list[int], list[UUID]]:
    return (
        [seat.event_id for seat in seats],
        [seat.place for seat in seats],
        [seat.seat for seat in seats],
        [seat.booking for seat in seats],
    )


def _counted(rows: Sequence[asyncpg.Record]) -> dict[UUID, int]:
    counts: dict[UUID, int] = {}
    for row in rows:
        counts[row["booking"]] = counts.get(row["booking"], 0) + 1
    return counts


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
    """Until the caller's transaction has ended, nobody can send word of this event's tickets to the store."""
    await connection.execute("select 1 from ticketing.events where id = $1 for no key update", event_id)


async def begin_epoch(connection: asyncpg.Connection, event_id: int, epoch: int) -> None:
    await connection.execute("update ticketing.events set epoch = $2 where id = $1", event_id, epoch)


async def taken_by(connection: asyncpg.Connection, event_id: int, bookings: Sequence[UUID]) -> list[asyncpg.Record]:
    """The tickets of these bookings, locked. Reads the whole event: for what happens after a rebuild only."""
    rows: list[asyncpg.Record] = await connection.fetch(
        """select booking, place, seat, state, price from ticketing.tickets
           where event_id = $1 and booking = any($2::uuid[]) order by place, seat for update""",
        event_id,
        list(bookings),
    )
    return rows


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


async def new_tickets(connection: asyncpg.Connection, event_id: int) -> set[tuple[int, int, tuple[int, ...]]]:
    """(place, seats, blocked seats) of an event that nobody has bought from yet."""
    rows = await connection.fetch(
        """select place, count(*) as seats,
                  coalesce(array_agg(seat order by seat) filter (where state = 3), '{}') as blocked
           from ticketing.tickets where event_id = $1 group by place""",
        event_id,
    )
    return {(row["place"], row["seats"], tuple(row["blocked"])) for row in rows}
