"""`aisle bench growth --json`, as the people who compare figures run it, on tiny halls."""

import json

import pytest

from tests.running import run_aisle


@pytest.mark.long
def test_halls_and_events_grow_and_the_installation_starts_again():
    ended = run_aisle("bench", "growth", "--quick", "--json", env={})
    assert (ended.returncode, ended.stderr) == (0, "")
    result = json.loads(ended.stdout)
    assert {name for name in ("machine", "commit", "started_at") if not result[name]} == set()
    assert list(result["by_seats"]) == ["20", "80", "160"]
    assert list(result["by_events"]) == ["1", "3", "6"]
    for step in [*result["by_seats"].values(), *result["by_events"].values()]:
        assert min(step["cpu_us_per_booking"], step["bookings_per_s"]) > 0
    assert min(result["ratio_seats"], result["ratio_events"]) >= 1
    assert result["by_events"]["6"]["store_bytes_per_event"] > 0
    assert result["startup_s"] > 0
