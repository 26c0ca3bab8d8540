"""`aisle bench overload --json` on a small hall: far more orders than can be written, for a few seconds."""

import json

from tests.running import run_aisle


def test_what_is_too_much_is_refused_early_and_nothing_that_was_accepted_is_lost():
    ended = run_aisle("bench", "overload", "--quick", "--json", env={})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(ended.stdout)
    assert (result["lost"], result["drift"], result["other"], result["without_retry_after"]) == (0, 0, 0, 0), result
    assert result["accepted_per_s"] > 0
    assert result["refused_per_s"] > 0, "else there was no overload"
    assert result["memory_mb_growth"] < 300, result
    assert result["recovery_s"] < 5, result
