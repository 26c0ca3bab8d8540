"""Every metric of the platform, one registry per process. Names and labels follow `docs/reference/metrics.md`."""

import asyncio
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from aisle import __version__
from aisle.state_metrics import StateMetrics

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SLOW = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.build_info = Gauge("aisle_build_info", "Version of this process.", ["version"], registry=self.registry)
        self.build_info.labels(__version__).set(1)
        self.http_request_seconds = Histogram(
            "http_server_request_duration_seconds", "Time to answer an HTTP request.", ["method", "route", "status"],
            registry=self.registry, buckets=_FAST,
        )  # fmt: skip
        self.store_script_seconds = Histogram(
            "aisle_store_script_seconds",
            "Round trip of a store script.",
            ["script"],
            registry=self.registry,
            buckets=_FAST,
        )
        self.store_errors_total = Counter(
            "aisle_store_errors_total", "Store calls without a usable answer.", ["kind"], registry=self.registry
        )
        self.store_breaker_open = Gauge(
            "aisle_store_breaker_open", "1 while the circuit breaker refuses store calls.", registry=self.registry
        )
        self.database_pool_in_use = Gauge(
            "aisle_database_pool_in_use", "Busy PostgreSQL connections.", registry=self.registry
        )
        self.database_pool_max = Gauge(
            "aisle_database_pool_max", "PostgreSQL connections this process may have.", registry=self.registry
        )
        self.sse_connections = Gauge(
            "aisle_sse_connections", "Browsers connected for live updates.", registry=self.registry
        )
        self.sse_events_total = Counter(
            "aisle_sse_events_total", "Updates put on their way to browsers.", ["kind"], registry=self.registry
        )
        self.sse_dropped_total = Counter(
            "aisle_sse_dropped_total",
            "Times a browser lost its updates and started anew.",
            ["reason"],
            registry=self.registry,
        )
        self.sse_delivery_seconds = Histogram(
            "aisle_sse_delivery_seconds",
            "From the moment a change was seen until it was written to a browser (a sample of them).",
            registry=self.registry,
            buckets=_FAST,
        )
        self.money = MoneyMetrics(self.registry)
        self.work = WorkMetrics(self.registry)
        self.state = StateMetrics(self.registry)
        self.event_loop_lag_seconds = Histogram(
            "aisle_event_loop_lag_seconds",
            "How late the event loop ran a timer.",
            registry=self.registry,
            buckets=_FAST,
        )


class WorkMetrics:
    """What this process has done. Counted a batch at a time, so that a message more costs nothing more."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reservation_requests_total = Counter(
            "aisle_reservation_requests_total",
            "Requests for seats that were answered: reserved, or the code of the refusal; undecided is asked again.",
            ["outcome", "mode"],
            registry=registry,
        )
        self.reservation_decision_seconds = Histogram(
            "aisle_reservation_decision_seconds",
            "From the moment a booking was placed until a worker took it up (queue) or its answer was written (total); "
            "the first of each batch, which waited longest.",
            ["stage"],
            registry=registry,
            buckets=_SLOW,
        )
        self.holds_expired_total = Counter(
            "aisle_holds_expired_total", "Holds that ran out and were given back.", registry=registry
        )
        self.hold_release_lag_seconds = Histogram(
            "aisle_hold_release_lag_seconds",
            "From the deadline of a hold until its seats were free again; the latest of each sweep.",
            registry=registry,
            buckets=(*_SLOW, 30, 60),
        )
        self.invariant_violations_total = Counter(
            "aisle_invariant_violations_total",
            "Times something was seen that must never be; docs/how-to/runbooks.md says what each means.",
            ["invariant"],
            registry=registry,
        )
        for invariant in INVARIANTS:
            self.invariant_violations_total.labels(invariant)
        self.outbox_published_total = Counter(
            "aisle_outbox_published_total", "Messages handed from an outbox to the log.", ["service"], registry=registry
        )
        self.dead_letters_total = Counter(
            "aisle_dead_letters_total",
            "Messages this process could not handle and buried.",
            ["lane"],
            registry=registry,
        )
        self.consumer_lag_messages = Gauge(
            "aisle_consumer_lag_messages", "Messages that wait for a worker of this process.", ["group"],
            registry=registry,
        )  # fmt: skip
        self.consumer_lag_seconds = Gauge(
            "aisle_consumer_lag_seconds", "Age of the oldest message under way in a worker of this process.", ["group"],
            registry=registry,
        )  # fmt: skip
        self.idempotency_replays_total = Counter(
            "aisle_idempotency_replays_total", "Orders that came again under the same key.", registry=registry
        )
        self.idempotency_conflicts_total = Counter(
            "aisle_idempotency_conflicts_total", "Keys that came again with another order.", registry=registry
        )
        self.database_tx_retries_total = Counter(
            "aisle_database_tx_retries_total", "Transactions run again after PostgreSQL had given them up.",
            registry=registry,
        )  # fmt: skip


# What WorkMetrics.invariant_violations_total counts.
INVARIANTS = ("seat_given_twice", "store_differs", "paid_without_ticket", "books_do_not_agree")


class MoneyMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.payments_total = Counter(
            "aisle_payments_total",
            "Payments that came to a state here: captured, declined, review, abandoned, voided.",
            ["provider", "outcome"],
            registry=registry,
        )
        self.late_money_total = Counter(
            "aisle_late_money_total",
            "How money without seats ended here: same_booking, same_seats, as_good_seats, returned, voided.",
            ["ending"],
            registry=registry,
        )
        self.provider_seconds = Histogram(
            "aisle_provider_seconds",
            "Time a payment provider took for a call, and whether it answered or was silent.",
            ["provider", "call", "outcome"],
            registry=registry,
            buckets=_SLOW,
        )
        self.payments_due = Gauge(
            "aisle_payments_due",
            "Payments by state, and refunds, that are due to be gone on with and that nobody works on.",
            ["kind"],
            registry=registry,
        )
        self.payments_oldest_due_seconds = Gauge(
            "aisle_payments_oldest_due_seconds", "How long the first of those has been due.", registry=registry
        )
        self.ledger_balance = Gauge(
            "aisle_ledger_balance",
            "Balance of an account of the books in minor units; suspense and refunds are empty at rest.",
            ["account", "currency"],
            registry=registry,
        )
        self.ledger_imbalance = Gauge(
            "aisle_ledger_imbalance",
            "Sales by the books less the price of all paid bookings, in minor units: anything but 0 is an error.",
            ["currency"],
            registry=registry,
        )


async def watch_event_loop(metrics: Metrics, interval_s: float = 0.25) -> None:
    """Measure how late timers run: the first sign of a process that does too much between two awaits."""
    while True:
        due = time.monotonic() + interval_s
        await asyncio.sleep(interval_s)
        metrics.event_loop_lag_seconds.observe(max(0.0, time.monotonic() - due))
