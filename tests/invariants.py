"""What must hold whatever happened: called at the end of tests that sell, crash, race or rebuild."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import msgspec

from aisle.booking.order_store import counts_of
from aisle.messages import Part, decode
from aisle.reservation.facts import ClaimFact, EventFacts, HallFacts
from aisle.reservation.inventory import Hall
from aisle.reservation.keys import Place
from aisle.reservation.pool import Pool, PoolPlace
from aisle.reservation.pool_facts import PoolClaimFact, PoolFacts
from aisle.reservation.subsection import Subsection
from aisle.reservation.verify import verify
from aisle.store import Store

LIVE = ("PROCESSING", "PENDING_PAYMENT", "PAYING", "PAID")
WITH_SEATS = ("PENDING_PAYMENT", "PAYING", "PAID")

_parts = msgspec.json.Decoder(tuple[Part, ...]).decode


async def assert_store_consistent(store: Store, event: int) -> None:
    """Bits == counters == rows == owners == records == index, and no key of the event belongs to nothing."""
    report = await verify(store, event)
    assert report.clean, "\n".join(map(str, report.findings))
    assert report.places > 0, "an event without subsections proves nothing"


async def assert_event_consistent(database: asyncpg.Pool, store: Store, event: int) -> None:
    """Bits == counters == claims == tickets == bookings, no seat twice, no purchase miscounted. At quiescence only."""
    left = await unsettled(database, store, [event])
    assert not left, "\n".join(left)
    async with database.acquire() as connection, connection.transaction(isolation="repeatable_read"):
        facts = await facts_in_postgresql(connection, event)
        assert_picture_consistent(await read_picture(connection, event))
    report = await verify(store, event, facts)
    assert report.clean, "\n".join(map(str, report.findings))
    assert (report.places, report.pools) == (len(facts.halls), len(facts.pools))
    assert report.places + report.pools > 0, "an event without subsections proves nothing"


async def unsettled(database: asyncpg.Pool, store: Store, events: Sequence[int]) -> list[str]:
    """What is still on its way: bookings without an answer, messages not sent, tickets and bits that lag behind."""
    waiting = await database.fetchval(
        "select count(*) from booking.bookings where event_id = any($1::bigint[]) and state = 'PROCESSING'", events
    )
    outboxes = "select message from booking.outbox union all select message from ticketing.outbox"
    unsent = sum(decode(row["message"]).event in events for row in await database.fetch(outboxes))
    found = [f"{waiting} bookings are PROCESSING"] if waiting else []
    found += [f"{unsent} messages are unsent"] if unsent else []
    moving = await database.fetchval(
        """select (select count(*) from payment.payments
                   where event_id = any($1::bigint[]) and state in ('AUTHORISED', 'LATE'))
                + (select count(*) from payment.refunds r join payment.payments p on p.id = r.payment
                   where p.event_id = any($1::bigint[]) and r.state = 'ASKED')""",
        events,
    )
    found += [f"{moving} payments or refunds are under way"] if moving else []
    for event in events:
        promised = await database.fetchval(
            """select coalesce(sum(jsonb_array_length(part -> 'seats')), 0)
               from booking.bookings, jsonb_array_elements(parts) as part
               where event_id = $1 and state = any($2::text[])""",
            event,
            WITH_SEATS,
        )
        tickets = await database.fetchval(
            "select count(*) from ticketing.tickets where event_id = $1 and state in (1, 2)", event
        )
        reserved, sold = await _taken_in_store(database, store, event)
        taken = reserved + sold - await live_holds(database, store, event)
        if not promised == tickets == taken:
            found.append(f"event {event}: {promised} seats promised, {tickets} tickets taken, {taken} in the store")
        paid = await database.fetchval(
            "select count(*) from ticketing.tickets where event_id = $1 and state = 2", event
        )
        found += [f"event {event}: {paid} tickets sold, {sold} in the store"] if paid != sold else []
    return found


async def facts_in_postgresql(connection: asyncpg.Connection, event: int) -> EventFacts:
    """What the store must hold, read from ticket rows and the owners of their bookings."""
    limit = await connection.fetchval("select seats_per_booking from ticketing.events where id = $1", event)
    rows = await connection.fetch(
        """select u.*, s.price from ticketing.subsections u join ticketing.sections s using (event_id, section)
           where event_id = $1 order by place""",
        event,
    )
    taken = await connection.fetch(
        """select t.place, t.booking, b.buyer, t.state, (array_agg(t.price order by t.seat))[1] as price,
                  array_agg(t.seat order by t.seat) as seats
           from ticketing.tickets t left join booking.bookings b on b.id = t.booking
           where t.event_id = $1 and t.state in (1, 2) group by 1, 2, 3, 4""",
        event,
    )
    assert all(row["buyer"] for row in taken), "a ticket belongs to a booking that does not exist"
    halls = []
    for row in rows:
        shape = Subsection(row["rows"], row["seats_per_row"], frozenset(row["accessible"]))
        place = Place(event, row["section"], row["subsection"])
        hall = Hall(place, shape, row["price"], min(limit, shape.seats), row["rank"], frozenset(row["blocked"]))
        claims = tuple(
            ClaimFact(str(t["booking"]), str(t["buyer"]), t["state"] == 2, t["price"], tuple(t["seats"]))
            for t in taken
            if t["place"] == row["place"]
        )
        halls.append(HallFacts(hall, claims))
    pools = []
    for row in await connection.fetch("select * from ticketing.pools where event_id = $1 order by place", event):
        pool = Pool(
            PoolPlace(event, row["pool"]), row["capacity"], row["price"], row["places_per_buyer"],
            row["one_hold_per_buyer"],
        )  # fmt: skip
        claims_of_pool = tuple(
            PoolClaimFact(str(t["booking"]), str(t["buyer"]), t["state"] == 2, t["price"], len(t["seats"]))
            for t in taken
            if t["place"] == row["place"]
        )
        pools.append(PoolFacts(pool, claims_of_pool))
    return EventFacts(event, tuple(halls), tuple(pools))


@dataclass(frozen=True, slots=True)
class Picture:
    """What PostgreSQL and the provider have of one event at one moment: rows, wherever they were read."""

    bookings: Sequence[Mapping[str, Any]]
    # (section, subsection) or (pool, 0) -> the place's number in a ticket's key
    places: Mapping[tuple[str, int], int]
    tickets: Sequence[Mapping[str, Any]]
    purchases: Sequence[Mapping[str, Any]]
    payments: Sequence[Mapping[str, Any]]
    ledger: Sequence[Mapping[str, Any]]
    charges: Sequence[Mapping[str, Any]]


async def read_picture(connection: asyncpg.Connection, event: int) -> Picture:
    """Inside the caller's snapshot."""
    places = await connection.fetch(
        """select section, subsection, place from ticketing.subsections where event_id = $1
           union all select pool, 0, place from ticketing.pools where event_id = $1""",
        event,
    )
    return Picture(
        bookings=await connection.fetch("select * from booking.bookings where event_id = $1", event),
        places={(row["section"], row["subsection"]): row["place"] for row in places},
        tickets=await connection.fetch(
            "select * from ticketing.tickets where event_id = $1 and state in (1, 2)", event
        ),
        purchases=await connection.fetch("select * from booking.purchases where event_id = $1", event),
        payments=await connection.fetch("select * from payment.payments where event_id = $1", event),
        ledger=await connection.fetch(
            "select l.* from payment.ledger l join payment.payments p on p.id = l.payment where p.event_id = $1", event
        ),
        charges=await connection.fetch(
            """select c.* from payment.sandbox_charges c join payment.payments p on p.id = c.payment
               where p.event_id = $1""",
            event,
        ),
    )


def assert_picture_consistent(picture: Picture) -> None:
    """Seats promised are tickets had, limits count what is live, money kept is seats delivered. At quiescence only."""
    _assert_bookings_have_their_tickets(picture)
    _assert_purchases_counted(picture)
    _assert_money_kept_is_seats_delivered(picture)


def _assert_bookings_have_their_tickets(picture: Picture) -> None:
    owned: dict[tuple[int, int], object] = {}
    for booking in picture.bookings:
        if booking["state"] not in WITH_SEATS:
            continue
        parts = _parts(booking["parts"])
        seats = [(picture.places[part.section, part.subsection], seat) for part in parts for seat in part.seats]
        assert booking["total"] == sum(part.price * len(part.seats) for part in parts)
        partial = msgspec.json.decode(booking["request"]).get("allow_partial", False)
        whole = len(seats) == booking["quantity"] or (partial and 0 < len(seats) < booking["quantity"])
        assert whole, f"booking {booking['id']} asked for {booking['quantity']} seats and has {len(seats)}"
        for seat in seats:
            assert seat not in owned, f"seat {seat} is promised to {booking['id']} and to {owned[seat]}"
            owned[seat] = booking["id"]
    tickets = {(row["place"], row["seat"]): row["booking"] for row in picture.tickets}
    assert tickets == owned, f"tickets and bookings differ in {sorted(set(tickets.items()) ^ set(owned.items()))[:5]}"


def _assert_purchases_counted(picture: Picture) -> None:
    live: Counter[tuple[object, str]] = Counter()
    for row in picture.bookings:
        if row["state"] in LIVE:
            live.update({(count.buyer, count.pool): count.seats for count in counts_of(row)})
    counted = {(row["buyer"], row["pool"]): row["seats"] for row in picture.purchases}
    assert counted == {key: live[key] for key in counted}, "a limit counts seats that nobody has, or forgot some"
    assert set(live) <= set(counted)


def _assert_money_kept_is_seats_delivered(picture: Picture) -> None:
    """What we kept is the price of what was delivered, by our books and by the provider's. Not while money moves."""
    bookings = {row["id"]: row for row in picture.bookings}
    states = {id: row["state"] for id, row in bookings.items()}
    kept: dict[object, int] = {}
    waived_in_all = 0
    for payment in picture.payments:
        if payment["state"] != "CAPTURED":
            continue
        money = payment["amount"] if payment["held"] is None else payment["held"]
        kept[payment["booking"]] = money - payment["refunded"]
        entries = [row for row in picture.ledger if row["payment"] == payment["id"]]
        waived = sum(row["amount"] for row in entries if row["what"] == "waived")
        waived -= sum(row["amount"] for row in entries if row["what"] == "unwaived")
        waived_in_all += waived
        sold = [row for row in picture.tickets if row["booking"] == payment["booking"] and row["state"] == 2]
        # What a person waived was never paid; what was too much has gone back.
        price = kept[payment["booking"]] + waived
        found = (states.get(payment["booking"]), bookings[payment["booking"]]["total"], sum(t["price"] for t in sold))
        assert found == ("PAID", price, price), f"payment {payment['id']} kept {price} for (state, total, sold) {found}"
    paid = sorted(id for id, state in states.items() if state == "PAID")
    assert paid == sorted(kept), "PAID is what a payment has bought"
    astray = [t for t in picture.tickets if t["state"] == 2 and states.get(t["booking"]) != "PAID"]
    assert astray == [], "a SOLD ticket of a booking that is not paid"
    _assert_books_agree(picture, sum(kept.values()), waived_in_all)


def _assert_books_agree(picture: Picture, kept: int, waived: int) -> None:
    balances: Counter[str] = Counter()
    for row in picture.ledger:
        balances[row["to_account"]] += row["amount"]
        balances[row["from_account"]] -= row["amount"]
    assert sum(balances.values()) == 0, "the ledger does not balance"
    assert balances["sales"] == kept + waived, f"the books say {balances['sales']}, delivered is {kept + waived}"
    assert balances["adjustments"] == -waived
    assert balances["suspense"] == balances["refunds"] == 0, f"money of nobody: {balances}"
    # A charge that waits for a person's decision is in nobody's books.
    reviewed = {row["id"] for row in picture.payments if row["state"] == "REVIEW"}
    provider = sum(
        row["amount"] - row["refunded"]
        for row in picture.charges
        if row["state"] == "captured" and row["payment"] not in reviewed
    )
    assert -balances["provider:sandbox"] == provider == kept, f"the provider has {provider}, we kept {kept}"


async def _taken_in_store(database: asyncpg.Pool, store: Store, event: int) -> tuple[int, int]:
    """Seats and places that are reserved, and those that are sold."""
    places = await database.fetch("select section, subsection from ticketing.subsections where event_id = $1", event)
    keys = [f"{store.prefix}section_stats:{{{event}:{row['section']}-{row['subsection']}}}" for row in places]
    replies = await store.call_many([("HMGET", key, "reserved", "sold") for key in keys])
    pools = await database.fetch("select pool from ticketing.pools where event_id = $1", event)
    keys = [f"{store.prefix}pool:{{{event}:{row['pool']}}}" for row in pools]
    replies += await store.call_many([("HMGET", key, "held", "sold") for key in keys])
    return sum(int(reply[0] or 0) for reply in replies), sum(int(reply[1] or 0) for reply in replies)


async def live_holds(database: asyncpg.Pool, store: Store, event: int) -> int:
    """Seats and places of live holds: they are in no booking, and PostgreSQL does not know them."""
    places = await database.fetch(
        """select 'holds:{' || event_id || ':' || section || '-' || subsection || '}' as key
           from ticketing.subsections where event_id = $1
           union all
           select 'pool_holds:{' || event_id || ':' || pool || '}' from ticketing.pools where event_id = $1""",
        event,
    )
    replies = await store.call_many([("HVALS", store.prefix + row["key"]) for row in places])
    live = [line.decode().split("|")[-1] for reply in replies for line in reply if line.startswith(b"L|h|")]
    return sum(int(run.rpartition("+")[2]) for runs in live for run in runs.split(","))
