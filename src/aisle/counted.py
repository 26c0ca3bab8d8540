"""Workers whose work is counted: outcomes, waiting times and what must never happen. A batch at a time."""

import time
from collections import Counter
from collections.abc import Sequence

from aisle.messages import (
    BookingFailed,
    BookingPendingPayment,
    Message,
    PlacesReserved,
    PlacesTicketed,
    SeatsReserved,
    TicketReserveRequested,
)
from aisle.metrics import WorkMetrics
from aisle.reservation.sweeper import Lapsed, Report
from aisle.ticketing.worker import TicketingWorker
from aisle.worker import Handle

RESERVED = (SeatsReserved, PlacesReserved)
ANSWERS = (BookingPendingPayment, PlacesTicketed, BookingFailed)


def counted_reservation(handle: Handle, metrics: WorkMetrics) -> Handle:
    async def counting(messages: Sequence[Message]) -> Sequence[Message]:
        requests = [m for m in messages if isinstance(m, TicketReserveRequested)]
        if requests:
            metrics.reservation_decision_seconds.labels("queue").observe(_age_of(requests[0].booking))
        answers = await handle(messages)
        if requests:
            _count_outcomes(requests, answers, metrics)
        return answers

    return counting


def counted_booking(handle: Handle, metrics: WorkMetrics) -> Handle:
    async def counting(messages: Sequence[Message]) -> Sequence[Message]:
        answers = await handle(messages)
        first = next((m for m in messages if isinstance(m, ANSWERS)), None)
        if first is not None:
            metrics.reservation_decision_seconds.labels("total").observe(_age_of(first.booking))
        return answers

    return counting


def counted_ticketing(worker: TicketingWorker, metrics: WorkMetrics) -> Handle:
    async def counting(messages: Sequence[Message]) -> Sequence[Message]:
        answers = await worker.handle(messages)
        if worker.given_twice:
            # PostgreSQL caught it, so nobody got a second ticket; but the store gave away a seat that was not free.
            metrics.invariant_violations_total.labels("seat_given_twice").inc(worker.given_twice)
            worker.given_twice = 0
        return answers

    return counting


def counted_lapses(report: Report, metrics: WorkMetrics) -> Report:
    async def counting(holds: Sequence[Lapsed]) -> bool:
        written = await report(holds)
        if written:
            metrics.holds_expired_total.inc(len(holds))
            metrics.hold_release_lag_seconds.observe(max(0.0, time.time() - min(h.deadline_ms for h in holds) / 1000))
        return written

    return counting


def _count_outcomes(
    requests: Sequence[TicketReserveRequested], answers: Sequence[Message], metrics: WorkMetrics
) -> None:
    outcomes: dict[str, str] = {}
    for answer in answers:
        if isinstance(answer, RESERVED):
            outcomes[answer.booking] = "reserved"
        elif isinstance(answer, BookingFailed):
            outcomes[answer.booking] = answer.reason
    counts = Counter((outcomes.get(request.booking, "undecided"), _mode(request)) for request in requests)
    for labels, count in counts.items():
        metrics.reservation_requests_total.labels(*labels).inc(count)


def _mode(request: TicketReserveRequested) -> str:
    if request.held:
        return "cart"
    if request.in_pool is not None:
        return "pool"
    return "named" if request.seats is not None else "best"


def _age_of(booking: str) -> float:
    """A booking's id begins with the millisecond it was placed in."""
    try:
        placed_ms = int(booking.replace("-", "")[:12], 16)
    except ValueError:
        return 0.0
    return max(0.0, time.time() - placed_ms / 1000)
