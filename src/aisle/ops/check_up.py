"""What `aisle doctor` makes of what it saw: fine or wrong, why, and the command to run next. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from aisle.ops.notes import Notes
from aisle.ops.report import MEMORY_SHARE_MAX, WAIT_SECONDS_MAX, DatabaseView, StoreView

PAYING_SECONDS_MAX = 900.0
REFUND_SECONDS_MAX = 3600.0
UNREAD_SECONDS_MAX = 10.0
RECONCILED_SECONDS_MAX = 900.0
BACKUP_SECONDS_MAX = 26 * 3600.0
CLOCKS_SECONDS_MAX = 2.0
DISK_BYTES_MIN = 2**30
DISK_SHARE_MIN = 0.05


class Check(msgspec.Struct, frozen=True):
    """One line of the screen. `next` is empty where nothing has to be done."""

    name: str
    fine: bool
    detail: str
    next: str = ""


def judge_store(store: StoreView) -> Iterator[Check]:
    detail = f"{store.server}, {store.memory_bytes / 2**20:.1f} MB"
    yield Check("store", True, detail)
    yield Check(
        "store file", not store.append_fault, store.append_fault or "appends",
        "docs/how-to/runbooks.md#storeappendfails" if store.append_fault else "",
    )  # fmt: skip
    verified = store.standing == "verified"
    advice = "aisle verify; if it is clean: aisle verify --admit --fresh, else: aisle rebuild --event N"
    said = "verified" if verified else f"{store.standing}: nothing is sold from it"
    yield Check("generation", verified, said, "" if verified else advice)
    full = store.memory_bytes_max and store.memory_bytes > MEMORY_SHARE_MAX * store.memory_bytes_max
    if full:
        yield Check("store memory", False, f"over {MEMORY_SHARE_MAX:.0%} of its limit", "aisle inspect keys")
    late = f"{store.overdue_holds} overdue, the first by {store.overdue_oldest_s:.0f} s"
    yield Check(
        "holds", not store.overdue_holds, late if store.overdue_holds else "none overdue",
        "aisle serve --roles reservation" if store.overdue_holds else "",
    )  # fmt: skip


def judge_database(database: DatabaseView) -> Iterator[Check]:
    waits = max((lane.oldest_s for lane in database.lanes), default=0.0)
    yield _age("bookings waiting", database.bookings.processing, waits, WAIT_SECONDS_MAX,
               "aisle serve --roles booking,reservation,ticketing")  # fmt: skip
    overdue = database.bookings.overdue
    yield Check(
        "bookings unpaid", not overdue, f"{overdue} past their deadline" if overdue else "none overdue",
        "aisle serve --roles booking" if overdue else "",
    )  # fmt: skip
    for outbox in database.outboxes:
        yield _age(f"outbox {outbox.name}", outbox.waiting, outbox.oldest_s, WAIT_SECONDS_MAX,
                   f"aisle serve --roles {outbox.name}")  # fmt: skip
    yield _age("payments", database.paying.waiting, database.paying.oldest_s, PAYING_SECONDS_MAX,
               "docs/how-to/runbooks.md#paymentstuck")  # fmt: skip
    yield _age("refunds", database.refunds.waiting, database.refunds.oldest_s, REFUND_SECONDS_MAX,
               "docs/how-to/runbooks.md#refundstuck")  # fmt: skip


def judge_log(unread: Mapping[str, int], dead: Mapping[str, int]) -> Iterator[Check]:
    """`unread` was still there some seconds later; see UNREAD_SECONDS_MAX."""
    behind = ", ".join(f"{count} in {group}" for group, count in unread.items() if count)
    advice = "aisle serve --roles booking,reservation,ticketing"
    yield Check("log lag", not behind, behind or "everything is read", advice if behind else "")
    buried = ", ".join(f"{count} in lane {lane}" for lane, count in dead.items())
    yield Check("dead letters", not buried, buried or "none", "aisle dlq list" if buried else "")


def judge_notes(notes: Notes, now: datetime) -> Iterator[Check]:
    found = notes.reconcile
    if found is None:
        yield Check("drift", False, "store and tickets were never compared", "aisle reconcile")
    elif found.drift or found.paid_without_ticket:
        first = found.findings[0] if found.findings else "paid bookings have no ticket"
        said = f"{sum(found.drift.values())} differences, {found.paid_without_ticket} paid without ticket: {first}"
        yield Check("drift", False, said, "aisle reconcile; then docs/how-to/runbooks.md#invariantviolated")
    else:
        age = (now - found.at).total_seconds()
        old = age > RECONCILED_SECONDS_MAX
        yield Check("drift", not old, f"none {_ago(age)}, {found.seats} seats", "aisle reconcile" if old else "")
    if notes.backup is None:
        yield Check("backup", False, "there is none", "aisle backup DIR")
    else:
        age = (now - notes.backup.at).total_seconds()
        old = age > BACKUP_SECONDS_MAX
        yield Check("backup", not old, f"{_ago(age)} in {notes.backup.where}", "aisle backup DIR" if old else "")


def judge_disk(where: str, free: int, total: int) -> Check:
    low = free < DISK_BYTES_MIN or free < DISK_SHARE_MIN * total
    said = f"{free / 2**30:.1f} GB free of {total / 2**30:.1f} GB at {where}"
    return Check("disk", not low, said, "make room: the log and the store's file grow there" if low else "")


def judge_clocks(apart: Mapping[str, float]) -> Check:
    """How far the clocks of the servers are from this one, in s."""
    said = ", ".join(f"{name} {seconds:+.1f} s" for name, seconds in apart.items())
    off = any(abs(seconds) > CLOCKS_SECONDS_MAX for seconds in apart.values())
    return Check("clocks", not off, said, "set the clocks by NTP: deadlines are judged by them" if off else "")


def judge_sections(closed: Sequence[str]) -> Check:
    said = f"{len(closed)} of events on sale are closed in the store: {', '.join(closed[:5])}"
    event = closed[0].partition(":")[0] if closed else ""
    return Check(
        "sections", not closed, said if closed else "all of events on sale are open",
        f"aisle inspect section {event}; aisle rebuild --event {event}" if closed else "",
    )  # fmt: skip


def _age(name: str, waiting: int, oldest_s: float, limit_s: float, advice: str) -> Check:
    late = oldest_s > limit_s
    said = f"{waiting}, the oldest for {oldest_s:.0f} s" if waiting else "none"
    return Check(name, not late, said, advice if late else "")


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"{seconds / 3600:.0f} h ago"
