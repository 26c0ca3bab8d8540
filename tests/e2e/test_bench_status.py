"""`aisle bench status --json`, as the people who compare figures run it, on a tiny hall."""

import json

from tests.running import run_aisle

POSITIVE = {"reads_per_s", "p50_ms", "p99_ms", "cpu_us_per_read", "seatmaps_per_s"}


def test_a_tiny_hall_is_read_by_many():
    ended = run_aisle("bench", "status", "--quick", "--json", env={})
    assert (ended.returncode, ended.stderr) == (0, "")
    result = json.loads(ended.stdout)
    assert {name for name in POSITIVE if not result[name] > 0} == set()
    assert {name for name in ("machine", "commit", "started_at") if not result[name]} == set()
