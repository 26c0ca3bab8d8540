"""Counters of one broker process. Plain integers here; `metrics_page` turns them into text for a scraper."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Metrics:
    requests: Counter[str] = field(default_factory=Counter)  # by API name
    produced_records: int = 0
    produced_bytes: int = 0
    fetched_bytes: int = 0
    duplicate_batches: int = 0
    refused_batches: Counter[str] = field(default_factory=Counter)  # by error
    connections: int = 0
    connections_total: int = 0
    connections_refused: int = 0
    malformed_requests: int = 0
    failed_logins: int = 0
    in_flight_bytes: int = 0
    tail_reads: int = 0
    store_reads: int = 0
    store_failures: int = 0
    trims: int = 0
