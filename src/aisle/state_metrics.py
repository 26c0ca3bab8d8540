"""Gauges of the state that all processes share: the store, the database, the log, the last comparison and backup.

Looked at in the background by every process with the role `booking`; all of them show the same, so take the maximum.
"""

from prometheus_client import CollectorRegistry, Gauge

STANDINGS = ("unchecked", "verified", "unmarked", "foreign", "restarted")


class StateMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(f"aisle_{name}", meaning, labels, registry=registry)

        self.looked_at = gauge("state_timestamp_seconds", "When this process last looked at the shared state.")
        self.part_away = gauge("part_away", "1 while a part does not answer.", "part")

        self.bookings = gauge("bookings", "Bookings on their way, by state.", "state")
        self.bookings_overdue = gauge("bookings_overdue", "Unpaid bookings ten seconds past their deadline.")
        self.bookings_oldest = gauge("bookings_oldest_seconds", "How long the oldest has been in this state.", "state")
        self.outbox_pending = gauge("outbox_pending", "Messages a service has not handed to the log yet.", "service")
        self.outbox_oldest = gauge("outbox_oldest_age_seconds", "Age of the oldest of them.", "service")
        self.refunds_pending = gauge("refunds_pending", "Refunds the provider has not confirmed yet.")
        self.refunds_oldest = gauge("refunds_oldest_age_seconds", "Age of the oldest of them.")
        self.paid_without_ticket = gauge(
            "paid_without_ticket", "Bookings paid more than ten minutes ago whose tickets are not all sold to them."
        )

        self.holds_active = gauge("holds_active", "Holds that the store keeps, and records it will forget.")
        self.holds_overdue = gauge("holds_overdue", "Holds ten seconds past their deadline.")
        self.holds_overdue_oldest = gauge("holds_overdue_oldest_seconds", "How long the first of them is overdue.")
        self.seats = gauge("seats", "Seats and places of all events on sale.", "state")
        self.store_standing = gauge("store_standing", "1 for what the store is now; sold from only if verified.", "is")
        self.store_generation = gauge("store_generation", "A number that changes when a store server is started again.")
        self.store_memory = gauge("store_memory_bytes", "Memory the store uses.")
        self.store_memory_max = gauge("store_memory_max_bytes", "Memory the store may use; 0: no limit of its own.")
        self.store_append_ok = gauge(
            "store_append_ok", "1 if every store server appends to its file and the last write and rewrite worked."
        )
        self.store_blocking_in_use = gauge("store_pool_in_use", "Store connections of this process that wait.")
        self.store_blocking_max = gauge("store_pool_max", "Most store connections of this process that may wait.")

        self.dead_letters = gauge("dead_letters_waiting", "Dead letters that wait to be looked at.", "lane")
        self.reconcile_drift = gauge(
            "reconcile_drift", "Findings of the last comparison of store and tickets.", "fault"
        )
        self.reconciled_at = gauge("reconcile_last_success_timestamp_seconds", "When it was last made; 0: never.")
        self.reconcile_seconds = gauge("reconcile_seconds", "How long it took.")
        self.backed_up_at = gauge("backup_last_success_timestamp_seconds", "When a backup was last made; 0: never.")
