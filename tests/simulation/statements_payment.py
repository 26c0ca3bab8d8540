"""Stand-ins for the statements on payments, refunds, the ledger and webhooks."""

from typing import Any

from aisle.payment.payment import Payment, Refund
from aisle.payment.store import NewPayment
from tests.simulation.statements_booking import keys, some
from tests.simulation.tables import Tables, Transaction, Values, stands_for

PAYMENTS, REFUNDS, LEDGER, NOTICES = "payment.payments", "payment.refunds", "payment.ledger", "payment.notices"
COLUMNS, REFUND_COLUMNS = Payment.__struct_fields__, Refund.__struct_fields__
STANDING = ("STARTED", "ACTION", "AUTHORISED", "CAPTURED")


def add_payment_tables(tables: Tables) -> None:
    tables.add(
        PAYMENTS, "id",
        state="STARTED", reference="", action="", reason="", taken=False, refunded=0, late_at=None, tries=0,
        seats_again=None, looks=0, ended_at=None, held=None, held_currency=None, decision="",
        check=lambda p: p["amount"] >= 0 and 0 <= p["refunded"] <= (p["amount"] if p["held"] is None else p["held"])
        and p["decision"] in ("", "accept", "refund"),
        unique=_clash,
    )  # fmt: skip
    tables.add(
        REFUNDS, "id", looks=0,
        check=lambda r: r["amount"] > 0 or (r["amount"] == 0 and r["state"] == "DONE"),
        unique=lambda a, b: (a["booking"], a["idempotency_key"]) == (b["booking"], b["idempotency_key"]),
    )  # fmt: skip
    tables.add(
        LEDGER, "id",
        check=lambda e: e["amount"] > 0 and e["from_account"] != e["to_account"],
        unique=lambda a, b: (a["cause"], a["what"]) == (b["cause"], b["what"]),
    )  # fmt: skip
    tables.add(NOTICES, "provider", "id")


def _clash(a: Values, b: Values) -> bool:
    if a["id"] == b["id"]:
        return False
    if (a["buyer"], a["idempotency_key"]) == (b["buyer"], b["idempotency_key"]):
        return True
    return a["booking"] == b["booking"] and a["state"] in STANDING and b["state"] in STANDING


@stands_for("from payment.payments where (buyer, idempotency_key) in")
def earlier(tx: Transaction, buyers: Any, names: Any) -> list[Values]:
    wanted = set(zip(buyers, names, strict=True))
    return [p for p in tx.all(PAYMENTS) if (p["buyer"], p["idempotency_key"]) in wanted]


@stands_for("insert into payment.payments (id, booking, buyer")
def insert(tx: Transaction, *arrays: Any) -> list[Values]:
    *columns, now, look_at = arrays
    made = tx.read.setdefault("made", {})  # before the statement had to wait
    for values in zip(*columns, strict=True):
        row = dict(zip(NewPayment.__struct_fields__, values, strict=True)) | {"started_at": now, "look_at": look_at}
        if row["id"] not in made and tx.insert(PAYMENTS, row, or_nothing=True) is not None:
            made[row["id"]] = {"id": row["id"]}
    return list(made.values())


@stands_for("from payment.payments where id = any($1::uuid[]) order by id for update")
def lock(tx: Transaction, ids: Any) -> list[Values]:
    return [some(row, COLUMNS) for row in tx.lock(PAYMENTS, sorted(keys(ids)), lambda _: True)]


@stands_for("from payment.payments where id = $1")
def find(tx: Transaction, id: Any) -> list[Values]:
    row = tx.get(PAYMENTS, id)
    return [some(row, COLUMNS)] if row else []


@stands_for("from payment.payments where booking = $1 and state = 'CAPTURED' for update")
def kept_for(tx: Transaction, booking: Any) -> list[Values]:
    rows = tx.scan(PAYMENTS, lambda p: p["booking"] == booking and p["state"] == "CAPTURED")
    return [some(row, COLUMNS) for row in rows]


@stands_for("set held = case when ($2, $3) = (amount, currency::text) then null else $2 end")
def note_held(tx: Transaction, id: Any, amount: int, currency: str) -> None:
    for row in tx.lock(PAYMENTS, [(id,)], lambda _: True):
        same = (amount, currency) == (row["amount"], row["currency"])
        tx.update(PAYMENTS, row, held=None if same else amount, held_currency=None if same else currency)


@stands_for("update payment.payments set decision = $2 where id = $1")
def note_decision(tx: Transaction, id: Any, decision: str) -> None:
    for row in tx.lock(PAYMENTS, [(id,)], lambda _: True):
        tx.update(PAYMENTS, row, decision=decision)


@stands_for("update payment.payments p set state = $3, reference = case")
def move(
    tx: Transaction, ids: Any, references: Any, target: str, reason: str, action: str, taken: bool, ended: bool,
    now: Any, look_at: Any, sources: Any,
) -> list[Values]:  # fmt: skip
    told = dict(reversed(list(zip(ids, references, strict=True))))
    rows = tx.lock(PAYMENTS, keys(ids), lambda p: p["state"] in sources)
    for row in rows:
        tx.update(
            PAYMENTS, row, state=target, reference=told[row["id"]] or row["reference"], reason=reason, action=action,
            taken=row["taken"] or taken, ended_at=now if ended else None, look_at=look_at,
            late_at=now if target == "LATE" else row["late_at"],
        )  # fmt: skip
    return [some(row, ("id",)) for row in rows]


@stands_for("update payment.payments set look_at = $2, looks = looks + 1 where id in (")
def due(tx: Transaction, now: Any, until: Any, states: Any, limit: int) -> list[Values]:
    rows = tx.scan(
        PAYMENTS, lambda p: p["look_at"] <= now and p["state"] in states,
        order=lambda p: p["look_at"], limit=limit, skip_locked=True,
    )  # fmt: skip
    return [some(tx.update(PAYMENTS, row, look_at=until, looks=row["looks"] + 1), COLUMNS) for row in rows]


@stands_for("update payment.refunds set look_at = $2, looks = looks + 1 where id in (")
def due_refunds(tx: Transaction, now: Any, until: Any, limit: int) -> list[Values]:
    rows = tx.scan(
        REFUNDS, lambda r: r["look_at"] <= now and r["state"] == "ASKED",
        order=lambda r: r["look_at"], limit=limit, skip_locked=True,
    )  # fmt: skip
    return [some(tx.update(REFUNDS, row, look_at=until, looks=row["looks"] + 1), REFUND_COLUMNS) for row in rows]


@stands_for("update payment.payments set look_at = $2 where id = $1")
def postpone(tx: Transaction, id: Any, look_at: Any) -> None:
    for row in tx.lock(PAYMENTS, [(id,)], lambda _: True):
        tx.update(PAYMENTS, row, look_at=look_at)


@stands_for("insert into payment.refunds (id, payment, booking, amount")
def ask_refund(
    tx: Transaction, id: Any, payment: Any, booking: Any, amount: int, currency: str, why: str, seats: str, key: str,
    now: Any,
) -> None:  # fmt: skip
    row = {"id": id, "payment": payment, "booking": booking, "amount": amount, "currency": currency, "why": why,
           "seats": seats, "idempotency_key": key, "asked_at": now, "look_at": now,
           "state": "ASKED" if amount else "DONE", "done_at": None if amount else now}  # fmt: skip
    tx.insert(REFUNDS, row)


@stands_for("update payment.payments set refunded = refunded + $2 where id = $1")
def count_refund(tx: Transaction, id: Any, amount: int) -> None:
    for row in tx.lock(PAYMENTS, [(id,)], lambda _: True):
        tx.update(PAYMENTS, row, refunded=row["refunded"] + amount)


@stands_for("seats from payment.refunds where booking = $1 and idempotency_key = $2")
def refund_with_key(tx: Transaction, booking: Any, key: str) -> list[Values]:
    found = [r for r in tx.all(REFUNDS) if (r["booking"], r["idempotency_key"]) == (booking, key)]
    return [some(row, (*REFUND_COLUMNS, "seats")) for row in found]


@stands_for("update payment.refunds set state = 'DONE', done_at = $2 where id = $1 and state = 'ASKED'")
def refund_done(tx: Transaction, id: Any, now: Any) -> list[Values]:
    rows = tx.lock(REFUNDS, [(id,)], lambda r: r["state"] == "ASKED")
    return [some(tx.update(REFUNDS, row, state="DONE", done_at=now), ("id",)) for row in rows]


@stands_for("update payment.refunds set look_at = $2 where id = $1")
def postpone_refund(tx: Transaction, id: Any, look_at: Any) -> None:
    for row in tx.lock(REFUNDS, [(id,)], lambda _: True):
        tx.update(REFUNDS, row, look_at=look_at)


@stands_for("update payment.payments set tries = $2, seats_again = $3")
def plan_seats_again(tx: Transaction, id: Any, tries: int, parts: str | None) -> list[Values]:
    rows = tx.lock(PAYMENTS, [(id,)], lambda p: p["tries"] == tries - 1 and p["state"] == "LATE")
    return [some(tx.update(PAYMENTS, row, tries=tries, seats_again=parts), ("id",)) for row in rows]


@stands_for("update payment.payments set seats_again = null where id = $1 and tries = $2")
def end_try(tx: Transaction, id: Any, tries: int) -> None:
    for row in tx.lock(PAYMENTS, [(id,)], lambda p: p["tries"] == tries and p["state"] == "LATE"):
        tx.update(PAYMENTS, row, seats_again=None)


@stands_for("update payment.payments set booking = $2 where id = $1")
def seat_again(tx: Transaction, id: Any, booking: Any) -> None:
    for row in tx.lock(PAYMENTS, [(id,)], lambda _: True):
        tx.update(PAYMENTS, row, booking=booking)


@stands_for("insert into payment.notices (provider, id, payment, kind, heard_at)")
def note_heard(tx: Transaction, provider: str, id: str, payment: Any, kind: str, now: Any) -> list[Values]:
    row = {"id": id, "provider": provider, "payment": payment, "kind": kind, "heard_at": now}
    return [{"id": id}] if tx.insert(NOTICES, row, or_nothing=True) is not None else []


@stands_for("insert into payment.ledger (payment, cause, what")
def book(tx: Transaction, *arrays: Any) -> None:
    *columns, now = arrays
    names = ("payment", "cause", "what", "from_account", "to_account", "amount", "currency")
    for values in zip(*columns, strict=True):
        entry = dict(zip(names, values, strict=True)) | {"id": tx._database.next_id(), "booked_at": now}
        if entry["amount"] > 0:
            tx.insert(LEDGER, entry, or_nothing=True)


@stands_for("select audit.note(")
def audit_note(tx: Transaction, *_deed: Any) -> None:
    """The trail is not simulated: nothing reads it but a person."""
