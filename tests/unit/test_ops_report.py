"""What counts as an alarm: each condition by itself, and a quiet installation with none."""

import pytest
from msgspec.structs import replace

from aisle.ops.report import BookingCounts, Buried, DatabaseView, Part, Queue, StoreView, alarms

PARTS = [Part("database", True, ""), Part("store", True, ""), Part("log", True, "")]
STORE = StoreView(
    server="valkey 9", memory_bytes=80, memory_bytes_max=100, standing="verified", places_with_holds=3, overdue_holds=0
)
BOOKINGS = BookingCounts(processing=5, waiting_for_payment=7, overdue=0)
DATABASE = DatabaseView(bookings=BOOKINGS, lanes=[Queue("1", 5, 9.9)], outboxes=[Queue("booking", 2, 0.1)])


def test_a_busy_installation_is_quiet():
    assert alarms(PARTS, "closed", STORE, DATABASE, []) == []
    assert alarms(PARTS, "closed", replace(STORE, memory_bytes_max=0), DATABASE, []) == [], "no limit, no share of it"


@pytest.mark.parametrize(
    ("alarm", "changes"),
    [
        ("log_away", {"parts": [*PARTS[:2], Part("log", False, "no answer")], "dead_letters": None}),
        ("breaker_open", {"breaker": "half_open"}),
        ("store_unverified", {"store": replace(STORE, standing="restarted")}),
        ("store_memory", {"store": replace(STORE, memory_bytes=81)}),
        ("holds_overdue", {"store": replace(STORE, overdue_holds=1)}),
        ("lane_slow", {"database": replace(DATABASE, lanes=[Queue("1", 1, 10.1)])}),
        ("outbox_old", {"database": replace(DATABASE, outboxes=[Queue("booking", 1, 10.1)])}),
        ("bookings_overdue", {"database": replace(DATABASE, bookings=replace(BOOKINGS, overdue=1))}),
        ("dead_letters", {"dead_letters": [Buried("1", 1)]}),
    ],
)
def test_each_condition_is_an_alarm(alarm, changes):
    given = {"parts": PARTS, "breaker": "closed", "store": STORE, "database": DATABASE, "dead_letters": [], **changes}
    assert alarms(**given) == [alarm]
