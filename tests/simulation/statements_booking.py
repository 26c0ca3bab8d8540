"""Stand-ins for the statements on bookings, limits, outboxes and remembered answers."""

from collections import Counter
from typing import Any

from tests.simulation.tables import Tables, Transaction, Values, Waits, stands_for

BOOKINGS, PURCHASES, ANSWERS = "booking.bookings", "booking.purchases", "public.answers"
COLUMNS = ("id", "event_id", "state", "quantity", "parts", "total", "reason", "placed_at", "deadline", "ended_at")
LOCKED = ("id", "event_id", "lane", "partition", "epoch", "buyer", "state", "quantity", "parts", "total", "reason",
          "deadline", "request")  # fmt: skip
ENDED = ("id", "event_id", "lane", "partition", "epoch", "buyer", "quantity", "parts", "request")


def add_booking_tables(tables: Tables) -> None:
    tables.add(
        BOOKINGS, "id",
        state="PROCESSING", parts="[]", total=0, reason="", deadline=None, ended_at=None, asked_at=None,
        check=lambda b: b["quantity"] > 0 and b["total"] >= 0
        and (b["state"] != "PENDING_PAYMENT" or b["deadline"] is not None),
        unique=lambda a, b: (a["buyer"], a["idempotency_key"]) == (b["buyer"], b["idempotency_key"]),
    )  # fmt: skip
    tables.add(PURCHASES, "event_id", "buyer", "pool", check=lambda p: 0 <= p["seats"] <= p["seats_max"])
    tables.add("booking.outbox", "id")
    tables.add("ticketing.outbox", "id")
    tables.add(ANSWERS, "account", "key", answer=None)
    tables.add("sales.lapsed_holds", "event_id", "hold")


def some(row: Values, names: tuple[str, ...]) -> Values:
    return {name: row[name] for name in names}


def keys(ids: list[Any]) -> list[tuple[Any]]:
    return [(id,) for id in dict.fromkeys(ids)]


@stands_for("with asked as ( select * from unnest($1::uuid[], $2::bigint[], $3::text[], $4::uuid[]")
def place(tx: Transaction, *arrays: Any) -> list[Values]:
    now = arrays[9]
    names = ("id", "event_id", "lane", "buyer", "request", "quantity", "idempotency_key", "request_hash", "seats_max",
             "partition", "epoch", "pool")  # fmt: skip
    asked = [dict(zip(names, row, strict=True)) for row in zip(*arrays[:9], *arrays[10:], strict=True)]
    # Looked up when the statement begins, and not again if it has to wait for a buyer's row.
    if "earlier" not in tx.read:
        wanted = {(a["buyer"], a["idempotency_key"]) for a in asked}
        found = [b for b in tx.all(BOOKINGS) if (b["buyer"], b["idempotency_key"]) in wanted]
        tx.read["earlier"] = {(b["buyer"], b["idempotency_key"]): b for b in found}
    earlier = tx.read["earlier"]
    fresh = [a for a in asked if (a["buyer"], a["idempotency_key"]) not in earlier]
    tx.lock(PURCHASES, [(a["event_id"], a["buyer"], a["pool"]) for a in fresh], lambda _: True)
    _wait_for_twins(tx, fresh)
    counted, placed = set(), set()
    for a in fresh:
        if _count(tx, a):
            counted.add((a["event_id"], a["buyer"], a["pool"]))
    for a in asked:
        if (a["event_id"], a["buyer"], a["pool"]) in counted:
            row = {**a, "placed_at": now}
            del row["seats_max"], row["pool"]
            if tx.insert(BOOKINGS, row, or_nothing=True) is not None:
                placed.add(a["id"])
    return [_placed(a, earlier.get((a["buyer"], a["idempotency_key"])), counted, placed) for a in asked]


def _placed(a: Values, before: Values | None, counted: set[Any], placed: set[Any]) -> Values:
    return {
        "id": a["id"],
        "earlier_id": before["id"] if before else None,
        "earlier_hash": before["request_hash"] if before else None,
        "counted": (a["event_id"], a["buyer"], a["pool"]) in counted,
        "placed": a["id"] in placed,
    }


def _wait_for_twins(tx: Transaction, asked: list[Values]) -> None:
    """Nothing may be counted before it is certain that the statement need not wait any more."""
    for a in asked:
        row = tx._database[PURCHASES].rows.get((a["event_id"], a["buyer"], a["pool"]))
        if row is not None and row.owner not in (None, tx):
            raise Waits(row.owner)
        if row is not None and row.now is not None and row.owner is None:
            tx.read.pop(f"lock:{PURCHASES}", None)
            tx.lock(PURCHASES, [(a["event_id"], a["buyer"], a["pool"])], lambda _: True)
        for other in tx._database[BOOKINGS].rows.values():
            b = other.next
            if b is None or other.owner is tx or other.owner is None:
                continue
            if (b["buyer"], b["idempotency_key"]) == (a["buyer"], a["idempotency_key"]):
                raise Waits(other.owner)


def _count(tx: Transaction, a: Values) -> bool:
    row = tx.get(PURCHASES, a["event_id"], a["buyer"], a["pool"])
    if row is None:
        names = ("event_id", "buyer", "pool", "seats_max")
        tx.insert(PURCHASES, {**some(a, names), "seats": a["quantity"]})
        return True
    if row["seats"] + a["quantity"] > a["seats_max"]:
        return False
    tx.update(PURCHASES, row, seats=row["seats"] + a["quantity"], seats_max=a["seats_max"])
    return True


@stands_for("select 1 from booking.purchases where (event_id, buyer, pool) in")
def lock_purchases(tx: Transaction, events: Any, buyers: Any, pools: Any) -> list[Values]:
    wanted = sorted(set(zip(events, buyers, pools, strict=True)))
    return tx.lock(PURCHASES, wanted, lambda _: True)


@stands_for("update booking.purchases p set seats = p.seats - u.seats")
def uncount(tx: Transaction, events: Any, buyers: Any, pools: Any, seats: Any) -> None:
    going: Counter[Any] = Counter()
    for *key, count in zip(events, buyers, pools, seats, strict=True):
        going[tuple(key)] += count
    for row in tx.lock(PURCHASES, going, lambda _: True):
        tx.update(PURCHASES, row, seats=row["seats"] - going[row["event_id"], row["buyer"], row["pool"]])


@stands_for("set state = 'PENDING_PAYMENT', parts = o.parts")
def to_pending_payment(tx: Transaction, ids: Any, parts: Any, totals: Any, deadline: Any) -> list[Values]:
    given = {id: (p, t) for id, p, t in reversed(list(zip(ids, parts, totals, strict=True)))}
    rows = tx.lock(BOOKINGS, keys(ids), lambda b: b["state"] == "PROCESSING")
    for row in rows:
        part, total = given[row["id"]]
        tx.update(BOOKINGS, row, state="PENDING_PAYMENT", parts=part, total=total, deadline=deadline)
    return [some(row, ("id", "buyer")) for row in rows]


@stands_for("update booking.bookings b set state = $2, reason = o.reason, ended_at = $3")
def to_ended(tx: Transaction, ids: Any, state: str, now: Any, reasons: Any, allowed: Any) -> list[Values]:
    why = dict(reversed(list(zip(ids, reasons, strict=True))))
    rows = tx.lock(BOOKINGS, keys(ids), lambda b: b["state"] in allowed)
    for row in rows:
        tx.update(BOOKINGS, row, state=state, reason=why[row["id"]], ended_at=now)
    return [some(row, ENDED) for row in rows]


@stands_for("parts, total, reason, deadline, request from booking.bookings where id = any($1::uuid[]) order by id")
def lock(tx: Transaction, ids: Any) -> list[Values]:
    return [some(row, LOCKED) for row in tx.lock(BOOKINGS, sorted(keys(ids)), lambda _: True)]


@stands_for(
    "select b.id, b.buyer, b.idempotency_key, b.request_hash from booking.bookings b join unnest($1::uuid[]",
    "select buyer, idempotency_key from booking.bookings join unnest($1::uuid[]",
)
def with_keys(tx: Transaction, buyers: Any, names: Any) -> list[Values]:
    wanted = set(zip(buyers, names, strict=True))
    shown = ("id", "buyer", "idempotency_key", "request_hash")
    return [some(b, shown) for b in tx.all(BOOKINGS) if (b["buyer"], b["idempotency_key"]) in wanted]


@stands_for("total, reason, placed_at, deadline, ended_at from booking.bookings where id = any($1::uuid[])")
def bookings_of(tx: Transaction, ids: Any) -> list[Values]:
    return [some(b, COLUMNS) for id in dict.fromkeys(ids) if (b := tx.get(BOOKINGS, id))]


@stands_for("update booking.bookings set state = $2 where id = any($1::uuid[]) and state = any($3::text[])")
def move(tx: Transaction, ids: Any, target: str, sources: Any) -> list[Values]:
    rows = tx.lock(BOOKINGS, keys(ids), lambda b: b["state"] in sources)
    for row in rows:
        tx.update(BOOKINGS, row, state=target)
    return [some(row, ("id", "buyer")) for row in rows]


@stands_for("update booking.bookings b set reason = o.reason from unnest")
def say_why(tx: Transaction, ids: Any, reasons: Any) -> list[Values]:
    why = dict(reversed(list(zip(ids, reasons, strict=True))))
    rows = tx.lock(BOOKINGS, keys(ids), lambda _: True)
    for row in rows:
        tx.update(BOOKINGS, row, reason=why[row["id"]])
    return [some(row, ("id", "buyer")) for row in rows]


@stands_for("update booking.bookings set parts = $2, total = $3, quantity = $4 where id = $1")
def keep_only(tx: Transaction, id: Any, parts: str, total: int, quantity: int) -> None:
    for row in tx.lock(BOOKINGS, [(id,)], lambda _: True):
        tx.update(BOOKINGS, row, parts=parts, total=total, quantity=quantity)


@stands_for("select pg_notify('bookings', p)")
def notify(_tx: Transaction, _payloads: Any) -> None:
    """Whoever listens is not part of the simulation."""


@stands_for("where id = any($1::uuid[]) and state in ('CANCELLED', 'FAILED', 'REFUNDED')")
def ended(tx: Transaction, ids: Any) -> list[Values]:
    return [b for b in bookings_seen(tx, ids) if b["state"] in ("CANCELLED", "FAILED", "REFUNDED")]


@stands_for("select id from booking.bookings where id = any($1::uuid[]) and state = 'PAID'")
def paid(tx: Transaction, ids: Any) -> list[Values]:
    return [b for b in bookings_seen(tx, ids) if b["state"] == "PAID"]


def bookings_seen(tx: Transaction, ids: Any) -> list[Values]:
    return [some(b, ("id", "buyer", "state")) for id in dict.fromkeys(ids) if (b := tx.get(BOOKINGS, id))]


@stands_for("insert into booking.outbox (message, written_at)")
def write_booking_outbox(tx: Transaction, messages: Any, now: Any) -> None:
    _write_outbox(tx, "booking.outbox", messages, now)


@stands_for("insert into ticketing.outbox (message, written_at)")
def write_ticketing_outbox(tx: Transaction, messages: Any, now: Any) -> None:
    _write_outbox(tx, "ticketing.outbox", messages, now)


def _write_outbox(tx: Transaction, table: str, messages: Any, now: Any) -> None:
    for message in messages:
        tx.insert(table, {"id": tx._database.next_id(), "message": message, "written_at": now})


@stands_for("select id, message from booking.outbox order by id limit $1 for update skip locked")
def take_booking_outbox(tx: Transaction, limit: int) -> list[Values]:
    return _take(tx, "booking.outbox", limit)


@stands_for("select id, message from ticketing.outbox order by id limit $1 for update skip locked")
def take_ticketing_outbox(tx: Transaction, limit: int) -> list[Values]:
    return _take(tx, "ticketing.outbox", limit)


def _take(tx: Transaction, table: str, limit: int) -> list[Values]:
    rows = tx.scan(table, lambda _: True, order=lambda r: r["id"], limit=limit, skip_locked=True)
    return [some(row, ("id", "message")) for row in rows]


@stands_for("delete from booking.outbox where id = any")
def drop_booking_outbox(tx: Transaction, ids: Any) -> None:
    tx.delete("booking.outbox", tx.lock("booking.outbox", keys(ids), lambda _: True))


@stands_for("delete from ticketing.outbox where id = any")
def drop_ticketing_outbox(tx: Transaction, ids: Any) -> None:
    tx.delete("ticketing.outbox", tx.lock("ticketing.outbox", keys(ids), lambda _: True))


@stands_for("update booking.bookings b set asked_at = $3 from (")
def stale_placings(tx: Transaction, since: Any, limit: int, now: Any) -> list[Values]:
    def is_stale(b: Values) -> bool:
        return b["state"] == "PROCESSING" and b["placed_at"] < since and (not b["asked_at"] or b["asked_at"] < since)

    def order(b: Values) -> Any:
        return (b["asked_at"] is not None, b["asked_at"] or now, b["placed_at"])

    rows = tx.scan(BOOKINGS, is_stale, order=order, limit=limit, skip_locked=True)
    for row in rows:
        tx.update(BOOKINGS, row, asked_at=now)
    return [some(row, ("id", "event_id", "lane", "partition", "epoch", "buyer", "request")) for row in rows]


@stands_for("select id, event_id, lane, partition, epoch, request, request_hash from booking.bookings")
def placing_of_key(tx: Transaction, buyer: Any, key: str) -> list[Values]:
    return [b for b in tx.all(BOOKINGS) if (b["buyer"], b["idempotency_key"]) == (buyer, key)]


@stands_for("select seats from booking.purchases where event_id = $1 and buyer = $2 and pool = $3")
def count_bought(tx: Transaction, event: int, buyer: Any, pool: str) -> list[Values]:
    row = tx.get(PURCHASES, event, buyer, pool)
    return [some(row, ("seats",))] if row else []


OVERDUE = "select id from booking.bookings where state = 'PENDING_PAYMENT' and deadline <= $1"


@stands_for(OVERDUE)
def overdue(tx: Transaction, now: Any, limit: int) -> list[Values]:
    return tx.scan(
        BOOKINGS, lambda b: b["state"] == "PENDING_PAYMENT" and b["deadline"] <= now,
        order=lambda b: b["deadline"], limit=limit, skip_locked=True,
    )  # fmt: skip


@stands_for("select id from booking.bookings where state = 'PROCESSING' and placed_at <= $1")
def unanswered(tx: Transaction, before: Any, limit: int) -> list[Values]:
    return tx.scan(
        BOOKINGS, lambda b: b["state"] == "PROCESSING" and b["placed_at"] <= before,
        order=lambda b: b["placed_at"], limit=limit, skip_locked=True,
    )  # fmt: skip


@stands_for("select state from booking.bookings where id = $1 and buyer = $2 for update")
def lock_own(tx: Transaction, id: Any, buyer: Any) -> list[Values]:
    return [some(row, ("state",)) for row in tx.lock(BOOKINGS, [(id,)], lambda b: b["buyer"] == buyer)]


@stands_for("insert into public.answers (account, key, digest, asked_at)")
def claim_key(tx: Transaction, account: Any, key: str, digest: bytes, now: Any) -> list[Values]:
    row = {"account": account, "key": key, "digest": digest, "asked_at": now}
    return [{"?column?": 1}] if tx.insert(ANSWERS, row, or_nothing=True) is not None else []


@stands_for("select digest, answer from public.answers")
def answer_of(tx: Transaction, account: Any, key: str) -> list[Values]:
    row = tx.get(ANSWERS, account, key)
    return [some(row, ("digest", "answer"))] if row else []


@stands_for("update public.answers set answer = $3")
def remember(tx: Transaction, account: Any, key: str, answer: bytes) -> None:
    for row in tx.lock(ANSWERS, [(account, key)], lambda _: True):
        tx.update(ANSWERS, row, answer=answer)


@stands_for("insert into sales.lapsed_holds")
def note_lapsed(tx: Transaction, events: Any, holds: Any, owners: Any, times: Any) -> None:
    for event, hold, owner, at in zip(events, holds, owners, times, strict=True):
        row = {"event_id": event, "hold": hold, "owner": owner, "lapsed_at": at}
        tx.insert("sales.lapsed_holds", row, or_nothing=True)
