"""Stand-ins for the statements on events, tickets and pools."""

from typing import Any

from aisle.ticketing.pool import Pool
from aisle.ticketing.store import EVENT_COLUMNS
from tests.simulation.statements_booking import BOOKINGS, some
from tests.simulation.tables import Tables, Transaction, Values, stands_for

TICKETS, EVENTS, POOLS, GIVEN = "ticketing.tickets", "ticketing.events", "ticketing.pools", "ticketing.pool_tickets"
SECTIONS, SUBSECTIONS = "ticketing.sections", "ticketing.subsections"


def add_ticketing_tables(tables: Tables) -> None:
    tables.add(EVENTS, "id")
    tables.add(SECTIONS, "event_id", "section")
    tables.add(SUBSECTIONS, "event_id", "section", "subsection")
    tables.add(POOLS, "event_id", "pool", numbered=0, check=lambda p: 0 <= p["numbered"] <= p["capacity"])
    tables.add(GIVEN, "booking", "event_id", "place")
    tables.add(
        TICKETS, "event_id", "place", "seat",
        booking=None, sold_at=None, admitted_at=None, code_version=1,
        check=lambda t: (t["booking"] is None) == (t["state"] in (0, 3)),
    )  # fmt: skip


def wanted_by(*arrays: Any) -> dict[tuple[int, int, int], dict[Any, tuple[Any, ...]]]:
    """Which bookings want each ticket, by its key, and what each says of it."""
    found: dict[tuple[int, int, int], dict[Any, tuple[Any, ...]]] = {}
    for event, place, seat, booking, *rest in zip(*arrays, strict=True):
        found.setdefault((event, place, seat), {}).setdefault(booking, tuple(rest))
    return found


def key_of(ticket: Values) -> tuple[int, int, int]:
    return ticket["event_id"], ticket["place"], ticket["seat"]


@stands_for("update ticketing.tickets t set state = greatest(t.state, 1), booking = w.booking, price = w.price")
def reserve(tx: Transaction, *arrays: Any) -> list[Values]:
    wanted = wanted_by(*arrays)
    rows = tx.lock(TICKETS, wanted, lambda t: t["state"] == 0 or t["booking"] in wanted[key_of(t)])
    for row in rows:
        asked = wanted[key_of(row)]
        # Of two that want a free ticket in one statement the server takes either.
        booking = row["booking"] if row["booking"] in asked else next(iter(asked))
        tx.update(TICKETS, row, state=max(row["state"], 1), booking=booking, price=asked[booking][0])
    return [some(row, ("booking",)) for row in rows]


@stands_for("select 1 from ticketing.tickets where (event_id, place, seat) in")
def lock(tx: Transaction, *arrays: Any) -> None:
    tx.lock(TICKETS, sorted(set(zip(*arrays, strict=True))), lambda _: True)


@stands_for("update ticketing.tickets t set state = 0, booking = null from wanted w")
def release(tx: Transaction, events: Any, places: Any, seats: Any, bookings: Any, states: Any) -> list[Values]:
    wanted = wanted_by(events, places, seats, bookings)
    rows = tx.lock(TICKETS, wanted, lambda t: t["booking"] in wanted[key_of(t)] and t["state"] in states)
    released = [some(row, ("booking",)) for row in rows]
    for row in rows:
        tx.update(TICKETS, row, state=0, booking=None)
    return released


@stands_for("update ticketing.tickets t set state = 2, sold_at = coalesce(t.sold_at, now())")
def sell(tx: Transaction, *arrays: Any) -> list[Values]:
    wanted = wanted_by(*arrays)
    rows = tx.lock(TICKETS, wanted, lambda t: t["booking"] in wanted[key_of(t)] and t["state"] in (1, 2))
    for row in rows:
        tx.update(TICKETS, row, state=2, sold_at=row["sold_at"] or "now")
    return [some(row, ("booking",)) for row in rows]


@stands_for("update ticketing.tickets t set state = 1, sold_at = null")
def unsell(tx: Transaction, *arrays: Any) -> None:
    wanted = wanted_by(*arrays)
    for row in tx.lock(TICKETS, wanted, lambda t: t["booking"] in wanted[key_of(t)] and t["state"] == 2):
        tx.update(TICKETS, row, state=1, sold_at=None)


@stands_for("set state = 0, booking = null, sold_at = null, code_version = t.code_version + 1")
def take_back(tx: Transaction, *arrays: Any) -> list[Values]:
    wanted = wanted_by(*arrays)

    def is_theirs(t: Values) -> bool:
        return t["booking"] in wanted[key_of(t)] and t["state"] == 2 and t["admitted_at"] is None

    rows = tx.lock(TICKETS, wanted, is_theirs)
    returned = [some(row, ("booking",)) for row in rows]
    for row in rows:
        tx.update(TICKETS, row, state=0, booking=None, sold_at=None, code_version=row["code_version"] + 1)
    return returned


@stands_for("select event_id, section, subsection, place from ticketing.subsections where event_id = any")
def places_of(tx: Transaction, events: Any) -> list[Values]:
    halls = [some(s, ("event_id", "section", "subsection", "place")) for s in tx.all(SUBSECTIONS)]
    pools = [
        {"event_id": p["event_id"], "section": p["pool"], "subsection": 0, "place": p["place"]} for p in tx.all(POOLS)
    ]
    return [one for one in halls + pools if one["event_id"] in events]


EPOCHS = "select id, epoch from ticketing.events where id = any($1::bigint[]) order by id for share"


@stands_for(EPOCHS)
def epochs_of(tx: Transaction, events: Any) -> list[Values]:
    return [some(e, ("id", "epoch")) for e in tx.share(EVENTS, [(id,) for id in sorted(set(events))])]


@stands_for("select id from ticketing.events where state <> 'creating' order by id")
def known_events(tx: Transaction) -> list[Values]:
    return [{"id": id} for id in sorted(e["id"] for e in tx.all(EVENTS) if e["state"] != "creating")]


@stands_for("select 1 from ticketing.events where id = $1 for no key update")
def stop_event(tx: Transaction, id: int) -> list[Values]:
    return [{"?column?": 1} for _ in tx.lock(EVENTS, [(id,)], lambda _: True)]


@stands_for("select booking, place, seat, state, price from ticketing.tickets where event_id = $1 and booking = any")
def taken_by(tx: Transaction, event: int, bookings: Any) -> list[Values]:
    rows = tx.scan(
        TICKETS, lambda t: t["event_id"] == event and t["booking"] in bookings, order=lambda t: (t["place"], t["seat"])
    )
    return [some(row, ("booking", "place", "seat", "state", "price")) for row in rows]


@stands_for("created_at, updated_at from ticketing.events where id = $1")
def event_of(tx: Transaction, id: int) -> list[Values]:
    row = tx.get(EVENTS, id)
    return [some(row, tuple(EVENT_COLUMNS.split(", ")))] if row else []


@stands_for("update ticketing.events set epoch = $2 where id = $1")
def note_epoch(tx: Transaction, id: int, epoch: int) -> None:
    for row in tx.lock(EVENTS, [(id,)], lambda _: True):
        tx.update(EVENTS, row, epoch=epoch)


@stands_for("select currency from ticketing.events where id = $1")
def currency_of(tx: Transaction, id: int) -> list[Values]:
    return [some(e, ("currency",)) for e in tx.all(EVENTS) if e["id"] == id]


@stands_for("select section, rank, partition, price from ticketing.sections")
def sections_of(tx: Transaction, event: int) -> list[Values]:
    rows = [some(s, ("section", "rank", "partition", "price")) for s in tx.all(SECTIONS) if s["event_id"] == event]
    return sorted(rows, key=lambda s: s["rank"])


@stands_for("select section, subsection, place, s.price, rows, seats_per_row, blocked, accessible")
def halls_of(tx: Transaction, event: int) -> list[Values]:
    prices = {s["section"]: s["price"] for s in tx.all(SECTIONS) if s["event_id"] == event}
    names = ("section", "subsection", "place", "rows", "seats_per_row", "blocked", "accessible")
    rows = [{**some(s, names), "price": prices[s["section"]]} for s in tx.all(SUBSECTIONS) if s["event_id"] == event]
    return sorted(rows, key=lambda s: s["place"])


@stands_for("one_hold_per_buyer from ticketing.pools where event_id = $1 order by place")
def pools_of(tx: Transaction, event: int) -> list[Values]:
    rows = [some(p, Pool.__struct_fields__) for p in tx.all(POOLS) if p["event_id"] == event]
    return sorted(rows, key=lambda p: p["place"])


@stands_for("select t.place, t.seat, t.state, t.booking, t.price, b.buyer, b.placed_at")
def taken(tx: Transaction, event: int) -> list[Values]:
    found = []
    for t in tx.all(TICKETS):
        b = tx.get(BOOKINGS, t["booking"])
        if t["event_id"] == event and t["state"] in (1, 2) and b is not None:
            found.append({**some(t, ("place", "seat", "state", "booking", "price")), **some(b, ("buyer", "placed_at"))})
    return sorted(found, key=lambda t: (t["place"], t["seat"]))


@stands_for("select event_id, place, numbered, capacity from ticketing.pools")
def lock_pools(tx: Transaction, events: Any, places: Any) -> list[Values]:
    wanted = set(zip(events, places, strict=True))
    rows = tx.scan(POOLS, lambda p: (p["event_id"], p["place"]) in wanted, order=lambda p: (p["event_id"], p["place"]))
    return [some(row, ("event_id", "place", "numbered", "capacity")) for row in rows]


@stands_for("select seat from ticketing.tickets where event_id = $1 and place = $2 and seat < $3 and state = 0")
def returned(tx: Transaction, event: int, place: int, below: int, limit: int) -> list[Values]:
    seats = sorted(
        t["seat"]
        for t in tx.all(TICKETS)
        if (t["event_id"], t["place"]) == (event, place) and t["seat"] < below and t["state"] == 0
    )
    return [{"seat": seat} for seat in seats[:limit]]


@stands_for("select booking, event_id, place, seats from ticketing.pool_tickets")
def known_places(tx: Transaction, *arrays: Any) -> list[Values]:
    return [row for key in zip(*arrays, strict=True) if (row := tx.get(GIVEN, *key))]


@stands_for("update ticketing.pools set numbered = least(capacity, numbered + $3)")
def number(tx: Transaction, event: int, place: int, count: int) -> None:
    for row in tx.scan(POOLS, lambda p: (p["event_id"], p["place"]) == (event, place)):
        tx.update(POOLS, row, numbered=min(row["capacity"], row["numbered"] + count))


@stands_for("insert into ticketing.pool_tickets (booking, event_id, place, seats)")
def give(tx: Transaction, booking: Any, event: int, place: int, seats: Any) -> None:
    tx.insert(GIVEN, {"booking": booking, "event_id": event, "place": place, "seats": seats})
