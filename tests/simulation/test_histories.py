"""A short run of simulated histories, from another seed every day, and what it must have met on the way."""

import hashlib
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests import children

ROOT = Path(__file__).parent.parent.parent
HISTORIES = 150
# A run that never met these has shown less than it seems.
MUST_HAVE_MET = (
    "a message came twice", "a process was killed at any moment", "a database connection broke",
    "a buyer got no answer", "the answer of the store got lost", "partitions found new owners", "waited for a row",
    "something took seconds",
    "a refund was asked for", "everybody came at once", "a booking was left to expire", "a hold was left alone",
    "at after_claim", "at after_convert", "at after_sold", "at after_refund",
)  # fmt: skip


def simulate(*flags: str) -> dict[str, object]:
    """In a process of its own: the simulation replaces clocks and ids of the modules it runs."""
    ended = children.run(
        [sys.executable, "-m", "tests.simulation", *flags], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert ended.stdout.startswith("{"), ended.stderr[-2000:]
    found: dict[str, object] = json.loads(ended.stdout)
    return found


def test_no_history_violates_anything():
    first = int(os.environ.get("SIMULATION_SEED") or f"{datetime.now(UTC):%Y%m%d}") * 1_000
    figures = simulate("--seed", str(first), "--histories", str(HISTORIES))
    assert figures["violations"] == 0, f"python -m tests.simulation --seed N tells one of: {figures['seeds']}"
    sometimes = figures["sometimes"]
    assert isinstance(sometimes, dict)
    assert [what for what in MUST_HAVE_MET if not sometimes.get(what)] == []


@pytest.mark.parametrize("seed", [3, 77])
def test_a_seed_is_a_history(seed):
    told = [hashlib.sha256(children.run(
        [sys.executable, "-m", "tests.simulation", "--seed", str(seed)], cwd=ROOT, capture_output=True,
    ).stdout).hexdigest() for _ in range(2)]  # fmt: skip
    assert told[0] == told[1]
