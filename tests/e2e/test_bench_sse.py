"""`aisle bench sse --json`, as the people who compare figures run it, with a few viewers of a tiny hall."""

import json

from tests.running import run_aisle


def test_every_viewer_of_a_tiny_hall_hears_everything():
    ended = run_aisle("bench", "sse", "--quick", "--json", "--viewers", "30", env={})
    assert (ended.returncode, ended.stderr) == (0, "")
    result = json.loads(ended.stdout)
    assert {name for name in ("machine", "commit", "started_at") if not result[name]} == set()
    assert (result["viewers"], result["bookings"]) == (30, 100)
    assert (result["gaps"], result["behind"], result["lost_connections"]) == (0, 0, 0)
    assert result["last_delivery_ms"] >= 0
    assert 0 < result["staleness_p50_ms"] <= result["staleness_p99_ms"]
    assert min(result["memory_bytes_per_viewer"], result["bytes_per_viewer"]) > 0


def test_more_viewers_than_files_is_one_line_and_exit_code_2():
    ended = run_aisle("bench", "sse", "--quick", "--viewers", "9000000", env={})
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "open file" in ended.stderr
