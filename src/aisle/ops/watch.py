"""Looks at the shared state every few seconds and shows it as metrics. In the background; nobody waits for it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import structlog

from aisle.errors import AisleError
from aisle.limits import SEATS_SHOWN_SECONDS, STATE_INTERVAL_SECONDS
from aisle.metrics import Metrics, WorkMetrics
from aisle.ops.desk import OpsDesk
from aisle.ops.notes import Notes
from aisle.ops.report import DatabaseView, Report, StoreView
from aisle.reservation.audit import Fault
from aisle.state_metrics import STANDINGS, StateMetrics

log = structlog.get_logger()

# Seats of all events on sale by state; notes of the last comparison and backup.
CountSeats = Callable[[], Awaitable[Mapping[str, int]]]
ReadNotes = Callable[[], Awaitable[Notes]]


class Watch:
    def __init__(self, desk: OpsDesk, read_notes: ReadNotes, count_seats: CountSeats, metrics: Metrics) -> None:
        self._desk = desk
        self._read_notes = read_notes
        self._count_seats = count_seats
        self._state, self._work = metrics.state, metrics.work
        self._seats_at = float("-inf")
        self._violated: set[str] = set()

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except (AisleError, OSError) as error:
                log.warning("state_not_seen", reason=str(error))
            await asyncio.sleep(STATE_INTERVAL_SECONDS)

    async def look(self) -> None:
        report = await self._desk.report()
        show_report(self._state, report)
        if report.store is not None:
            notes = await self._read_notes()
            show_notes(self._state, notes)
            self._count_violations(notes)
            if time.monotonic() - self._seats_at >= SEATS_SHOWN_SECONDS:
                for state, count in (await self._count_seats()).items():
                    self._state.seats.labels(state).set(count)
                self._seats_at = time.monotonic()
        self._state.looked_at.set(time.time())

    def _count_violations(self, notes: Notes) -> None:
        """Each counts when it is first seen, and again when it comes back."""
        found = notes.reconcile
        seen = set()
        if found is not None and found.drift:
            seen.add("store_differs")
        if found is not None and found.paid_without_ticket:
            seen.add("paid_without_ticket")
        count_new(self._work, seen - self._violated)
        self._violated = seen


def count_new(work: WorkMetrics, violated: set[str]) -> None:
    for invariant in violated:
        work.invariant_violations_total.labels(invariant).inc()


def show_report(state: StateMetrics, report: Report) -> None:
    for part in report.parts:
        state.part_away.labels(part.name).set(not part.fine)
    if report.store is not None:
        _show_store(state, report.store)
    if report.database is not None:
        _show_database(state, report.database)
    if report.dead_letters is not None:
        state.dead_letters.clear()
        for buried in report.dead_letters:
            state.dead_letters.labels(buried.lane).set(buried.waiting)


def _show_store(state: StateMetrics, store: StoreView) -> None:
    for standing in STANDINGS:
        state.store_standing.labels(standing).set(store.standing == standing)
    state.store_generation.set(store.generation)
    state.store_memory.set(store.memory_bytes)
    state.store_memory_max.set(store.memory_bytes_max)
    state.store_append_ok.set(not store.append_fault)
    state.holds_active.set(store.holds)
    state.holds_overdue.set(store.overdue_holds)
    state.holds_overdue_oldest.set(store.overdue_oldest_s)


def _show_database(state: StateMetrics, database: DatabaseView) -> None:
    bookings = database.bookings
    state.bookings.labels("processing").set(bookings.processing)
    state.bookings.labels("pending_payment").set(bookings.waiting_for_payment)
    state.bookings.labels("paying").set(database.paying.waiting)
    state.bookings_overdue.set(bookings.overdue)
    state.bookings_oldest.labels("processing").set(max((lane.oldest_s for lane in database.lanes), default=0))
    state.bookings_oldest.labels("paying").set(database.paying.oldest_s)
    for outbox in database.outboxes:
        state.outbox_pending.labels(outbox.name).set(outbox.waiting)
        state.outbox_oldest.labels(outbox.name).set(outbox.oldest_s)
    state.refunds_pending.set(database.refunds.waiting)
    state.refunds_oldest.set(database.refunds.oldest_s)


def show_notes(state: StateMetrics, notes: Notes) -> None:
    found = notes.reconcile
    for fault in Fault:
        state.reconcile_drift.labels(fault.value).set(found.drift.get(fault.value, 0) if found else 0)
    state.reconciled_at.set(found.at.timestamp() if found else 0)
    state.reconcile_seconds.set(found.seconds if found else 0)
    state.paid_without_ticket.set(found.paid_without_ticket if found else 0)
    state.backed_up_at.set(notes.backup.at.timestamp() if notes.backup else 0)
