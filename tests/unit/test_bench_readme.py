"""The README's numbers and pictures are those of the result files it names, and nobody typed them."""

import re

import pytest

from bench.plots import pictures
from bench.readme import BLOCK, PICTURES, ROOT, ROWS, about, block, read
from bench.run_all import COMMANDS

STEP = {"cpu_us_per_booking": 400.0}
GROWTH = {
    "by_seats": {"500": STEP, "1000000": STEP},
    "by_events": {"1": STEP, "1000": STEP},
    "ratio_seats": 1.2,
    "ratio_events": 1.4,
    "startup_events": 1000,
    "startup_s": 4.2,
}


@pytest.fixture
def named():
    found = BLOCK.search((ROOT / "README.md").read_text())
    assert found, "the README has lost the marks around its numbers"
    return found


def test_the_numbers_are_those_of_the_result_files(named):
    assert named[0] == block(named["files"].split()), f"python -m bench.readme {named['files']}"


def test_the_pictures_are_those_of_the_result_files(named):
    drawn = pictures(read(named["files"].split())[0])
    kept = {path.name: path.read_text() for path in (ROOT / PICTURES).glob("*.svg")}
    assert kept == drawn, f"python -m bench.readme {named['files']}"


def test_every_row_is_of_a_benchmark_that_make_bench_runs():
    assert {row.bench for row in ROWS} <= set(COMMANDS)


def test_growth_is_told_and_drawn():
    rows = [row for row in ROWS if row.bench == "growth"]
    assert [row.figure(GROWTH) for row in rows] == ["1.20", "1.40", "4.2 s"]
    assert "500 to 1,000,000 seats" in rows[0].what(GROWTH)
    svg = pictures({"growth": GROWTH})["growth.svg"]
    assert re.findall(r">([\d,]+ (?:seats|events?))<", svg) == [
        "500 seats",
        "1,000,000 seats",
        "1 event",
        "1,000 events",
    ]


@pytest.mark.parametrize(("value", "told"), [(7788.5, "7,790"), (678245, "678,000"), (122.05, "122"), (0.913, "0.913")])
def test_a_figure_has_three_digits(value, told):
    assert about(value) == told
