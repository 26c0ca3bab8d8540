"""`aisle bench pay --json`, as the people who compare figures run it, on a tiny hall."""

import json

from tests.running import run_aisle

KEPT = {
    "bench", "seconds", "payments_per_s", "cpu_us_per_payment", "p50_ms", "p99_ms", "ledger_balanced", "drift",
    "machine", "commit", "started_at",
}  # fmt: skip


def test_every_booking_of_a_tiny_hall_is_paid_and_the_books_balance():
    ended = run_aisle("bench", "pay", "--quick", "--json", env={})
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert set(result) >= KEPT
    assert (result["payments"], result["unpaid"], result["drift"]) == (100, 0, 0)
    assert result["ledger_balanced"] is True
    assert result["answers"] == {"201": 100}
