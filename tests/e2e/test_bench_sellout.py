"""`aisle bench sellout --json`, as the people who compare figures run it, on a tiny hall."""

import json

import pytest

from tests.running import run_aisle

KEPT = {
    "bench", "machine", "commit", "started_at", "seconds", "bookings_per_s", "cpu_us_per_booking", "yardstick_seconds",
    "ratio", "p50_ms", "p99_ms", "pending_p50_ms", "pending_p99_ms", "single_p50_ms", "refusals_per_s", "oversold",
    "lost", "drift",
}  # fmt: skip


@pytest.mark.long
def test_a_tiny_hall_is_sold_out_beside_the_usual_design():
    """Parties of all sizes after the same seats: the pairs of the default are sold by the benchmark of payments."""
    ended = run_aisle("bench", "sellout", "--quick", "--json", "--order", "hot", "--parties", "mix", env={})
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert set(result) >= KEPT
    assert (result["oversold"], result["lost"], result["drift"], result["unsold"]) == (0, 0, 0, 0)
    assert result["answers"] == {"202": result["bookings"]}
    assert result["yardstick_seconds"] > 0
    assert (result["order"], result["parties"]) == ("hot", "mix")
    assert ended.stderr == "", "progress is for terminals"
