"""`aisle bench map` draws the stadium in a browser and prints its figures, whatever they are on this machine."""

import json

from tests.needs import need
from tests.running import run_aisle


def test_the_map_is_drawn_and_measured():
    need("chromium", "tests/install-programs.sh installs it")
    ended = run_aisle("bench", "map", "--json", "--quick", env={})
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert {"machine", "commit", "started_at", "first_draw_ms", "frame_p95_ms"} <= result.keys()
    assert result["seats"] >= 50_000
    assert result["snapshot_bytes"] <= 20_000
