"""The Quix Streams example counts what the database says was booked, and goes on after it was stopped."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import children
from tests.people import a_hall
from tests.quix import ROOT, quix_python
from tests.running import PATIENCE_SECONDS
from tests.stage import Stage

pytestmark = pytest.mark.long
PROGRAM = ROOT / "examples" / "bookings-per-minute" / "bookings_per_minute.py"


def counted(stage: Stage, state: Path) -> list[dict[str, Any]]:
    """What one run of the example prints until nothing more comes."""
    command = [str(quix_python()), "-W", "ignore", str(PROGRAM), "--broker", stage.config.kafka]
    command += ["--state", str(state), "--idle", "8"]
    ended = children.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def totals(lines: list[dict[str, Any]]) -> dict[int, list[int]]:
    """Bookings, seats and value of each event: the last word on each minute, summed over the minutes."""
    last = {(line["event"], line["minute"]): line for line in lines}
    sums: dict[int, list[int]] = {}
    for (event, _), line in last.items():
        figures = sums.setdefault(event, [0, 0, 0])
        for n, name in enumerate(("bookings", "seats", "value")):
            figures[n] += line[name]
    return sums


def test_the_example_counts_what_was_booked(stage, tmp_path):
    with stage.person("seller") as seller, stage.person("buyer") as buyer:
        events = [seller.opens(a_hall(("A", 3000, 4, 10), ("B", 1000, 4, 10))) for _ in range(2)]

        def book(event: int, quantity: int, section: str) -> None:
            buyer.waits_for(buyer.books(event, quantity, section=section), "PENDING_PAYMENT")

        for section in ("A", "B", "A"):
            book(events[0], 2, section)
        book(events[1], 3, "B")
        first = counted(stage, tmp_path / "state")
        assert totals(first) == {events[0]: [3, 6, 14_000], events[1]: [1, 3, 3_000]}
        book(events[0], 1, "B")
        second = counted(stage, tmp_path / "state")
        assert totals(first + second)[events[0]] == [4, 7, 15_000]
