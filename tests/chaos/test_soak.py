"""A short chaos run from one seed, as `make chaos` does it for minutes: people buy, things break, all stays right."""

import re
from pathlib import Path

import pytest

from tests.chaos.soak.nemesis import FAULTS, draw_plan
from tests.chaos.soak.run import Options, as_json, run, table

# A process, a link to each server, the log, the database, people: the quick ones, since a start takes seconds.
QUICK = (
    "a process is killed",
    "backends of PostgreSQL are terminated",
    "messages come again, in another order",
    "messages nobody can read",
    "the link to the PostgreSQL is partitioned",
    "the link to the store is partitioned",
    "the store is killed and comes back",
    "the store is out of memory",
    "webhooks: twenty at once, forged, old, of nobody",
)
SHORT = (("hold_seconds", 6), ("hold_seconds_max", 12), ("payment_seconds", 8), ("sandbox_late_seconds", 3))
CATALOGUE = {f"F{n}" for n in (*range(1, 21), *range(23, 31))}


def test_every_fault_of_the_catalogue_has_somebody_who_makes_it():
    """F21 (errors of the disk) and F22 (no more files or threads) are not made; F24 and F26 are buyers' doings."""
    made = {id for fault in FAULTS.values() for id in fault.ids}
    assert made | {"F24", "F26"} == CATALOGUE | {"F24", "F26"}


def test_a_seed_is_a_plan():
    names = sorted(FAULTS)
    plans = [[(p.fault.name, p.seed) for p in draw_plan(seed, names, 3)] for seed in (7, 7, 8)]
    assert plans[0] == plans[1] != plans[2]
    assert {name for name, _ in plans[0][: len(plans[0]) // 3]} == set(names), "each fault has its turn in every round"


@pytest.mark.long
async def test_whatever_breaks_nothing_is_sold_twice_lost_or_paid_for_in_vain():
    said: list[str] = []
    outcome = await run(
        Options(seed=1, seconds=12, buyers=8, nodes=1, faults=QUICK, deep=False, settings=SHORT), said.append
    )
    report = as_json(outcome)
    assert outcome.clean, table(report)
    assert not report["faults_that_failed"], table(report)
    assert sum(fault["bit"] for fault in report["faults"]) >= 3, table(report)
    assert report["operations"]["book"].get("ok", 0) >= 3, table(report)


def test_the_page_about_chaos_names_every_fault():
    page = (Path(__file__).parent.parent.parent / "docs" / "how-to" / "chaos.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+?) \| (F[F0-9 ]+?) \|$", page, re.MULTILINE))
    assert rows == {fault.name: " ".join(fault.ids) for fault in FAULTS.values()}
