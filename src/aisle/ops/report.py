"""The state of a running installation as an operator wants it: parts that answer, queues, what is overdue. Pure.

`alarms` are the few conditions that somebody should look at now; each has a threshold here and a sentence on the page.
"""

from datetime import datetime

import msgspec

WAIT_SECONDS_MAX = 10.0
MEMORY_SHARE_MAX = 0.8


class Part(msgspec.Struct, frozen=True):
    """`detail` says why it is not fine, or what it is."""

    name: str
    fine: bool
    detail: str


class StoreView(msgspec.Struct, frozen=True, kw_only=True):
    """`memory_bytes_max` is 0 where the server has no limit. `standing`: whether this store was verified as ours."""

    server: str
    memory_bytes: int
    memory_bytes_max: int
    standing: str
    places_with_holds: int
    overdue_holds: int
    holds: int = 0
    overdue_oldest_s: float = 0.0
    # Changes when a server is started again.
    generation: int = 0
    # Why appending to the file is not fine on some server; empty where it is, or where there is no such file.
    append_fault: str = ""


class Queue(msgspec.Struct, frozen=True):
    """What waits, and for how long the first of it does."""

    name: str
    waiting: int
    oldest_s: float


class BookingCounts(msgspec.Struct, frozen=True, kw_only=True):
    processing: int
    waiting_for_payment: int
    overdue: int


class DatabaseView(msgspec.Struct, frozen=True, kw_only=True):
    bookings: BookingCounts
    # Bookings that wait for seats, by lane.
    lanes: list[Queue]
    # Messages that a service has not handed to the log yet.
    outboxes: list[Queue]
    # Payments that have not come to an end, and refunds the provider has not confirmed.
    paying: Queue = Queue("paying", 0, 0.0)
    refunds: Queue = Queue("refunds", 0, 0.0)


class Buried(msgspec.Struct, frozen=True):
    lane: str
    waiting: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A part that does not answer is missing here: `parts` says why."""

    at: datetime
    version: str
    breaker: str
    parts: list[Part]
    alarms: list[str]
    store: StoreView | None
    database: DatabaseView | None
    dead_letters: list[Buried] | None


def alarms(
    parts: list[Part],
    breaker: str,
    store: StoreView | None,
    database: DatabaseView | None,
    dead_letters: list[Buried] | None,
) -> list[str]:
    found = [f"{part.name}_away" for part in parts if not part.fine]
    if breaker != "closed":
        found.append("breaker_open")
    if store is not None:
        if store.standing != "verified":
            found.append("store_unverified")
        if store.memory_bytes_max and store.memory_bytes > MEMORY_SHARE_MAX * store.memory_bytes_max:
            found.append("store_memory")
        if store.overdue_holds:
            found.append("holds_overdue")
    if database is not None:
        if any(lane.oldest_s > WAIT_SECONDS_MAX for lane in database.lanes):
            found.append("lane_slow")
        if any(outbox.oldest_s > WAIT_SECONDS_MAX for outbox in database.outboxes):
            found.append("outbox_old")
        if database.bookings.overdue:
            found.append("bookings_overdue")
    if dead_letters:
        found.append("dead_letters")
    return found
