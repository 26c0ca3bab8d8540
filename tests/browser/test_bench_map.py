"""`aisle bench map` draws the stadium in a browser and prints its figures, whatever they are on this machine."""

import json

from tests.needs import need
from tests.running import run_aisle


def test_the_map_is_drawn_and_measured():
    need("chromium", "tests/install-programs.sh installs it")
    ended = run_aisle("bench", "map", "--json", "--quick", env={})
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert {"machine", "commit", "started_at", "first_draw_ms"} <= result.keys()
    # A browser that waits for a screen of 60 Hz cannot be faster than it; the other one shows what the work takes.
    assert result["frame_interval_p50_ms"] > 16
    assert result["draw_p95_ms"] > 0
    assert 0 < result["frame_p50_ms"] <= result["frame_p95_ms"]
    assert result["seats"] >= 50_000
    assert result["snapshot_bytes"] <= 20_000
