"""Every metric of the platform, one registry per process. Names and labels follow `docs/reference/metrics.md`."""

import asyncio
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from aisle import __version__

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


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
        self.event_loop_lag_seconds = Histogram(
            "aisle_event_loop_lag_seconds",
            "How late the event loop ran a timer.",
            registry=self.registry,
            buckets=_FAST,
        )


async def watch_event_loop(metrics: Metrics, interval_s: float = 0.25) -> None:
    """Measure how late timers run: the first sign of a process that does too much between two awaits."""
    while True:
        due = time.monotonic() + interval_s
        await asyncio.sleep(interval_s)
        metrics.event_loop_lag_seconds.observe(max(0.0, time.monotonic() - due))
