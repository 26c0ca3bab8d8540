"""Every guard, turned off and on: what it guards against happens without it, and does not with it.

The table is `defects.DEFECTS`: how each is turned off, and within how many histories it must show. All run in one
process of their own, which looks for a history that violates something and then tells the same one with the guard.
The last row is about a real server: a simulated store has no file.
"""

from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from aisle.embedded.supervisor import Supervisor
from aisle.embedded.valkey import ValkeyServer
from tests.simulation.defects import DEFECTS
from tests.simulation.test_histories import simulate

# What a reader looks for, and which rows of the table show it.
ASKED_FOR = {
    "CAS in the claim": "claim_compares_nothing",
    "row count check": "rows_not_counted",
    "outbox": "no_outbox",
    "inbox": "repeat_takes_again",
    "fence": "nobody_is_stopped",
    "idempotency key": "every_key_is_new",
    "limit constraint": "no_limit",
    "epoch": "same_epoch",
    "sweeper ownership": "sweep_in_three_steps",
    "PAYING fence": "expiry_takes_what_is_paying",
    "webhook dedup": "any_move",
}


@pytest.fixture(scope="module")
def both_sides() -> dict[str, Any]:
    return simulate("--each-defect")


@pytest.mark.xdist_group("guards")
@pytest.mark.parametrize("name", DEFECTS)
def test_a_guard_turned_off_is_missed_and_turned_on_holds(both_sides, name):
    found, row = both_sides[name], DEFECTS[name]
    assert found["after"] is not None, f"{row.guard}: nothing is violated without it in {row.after} histories"
    assert row.says in found["without"]
    assert found["with"] == [], f"{row.guard}: seed {found['seed']} violates this with it as well"


def test_the_table_has_a_row_for_each_guard_that_is_asked_for():
    assert [guard for guard, row in ASKED_FOR.items() if not DEFECTS[row].guard.startswith(guard)] == []


@pytest.mark.parametrize("guarded", [False, True], ids=["off", "on"])
def test_the_rewrite_of_the_stores_file_keeps_what_was_seen_after_an_unclean_start(tmp_path, monkeypatch, guarded):
    """A power cut takes what nobody synced; if it comes to the worst, all of the file that grows."""
    if not guarded:
        monkeypatch.setattr(ValkeyServer, "_rewrite_append_only_file", lambda _: None)
    with Supervisor(tmp_path, log=lambda line: None) as supervisor:
        valkey = supervisor.start_valkey()
        with Redis.from_url(valkey.url) as store:
            store.set("seat", "mine")
        for _ in range(2):
            valkey.kill()
            valkey.start()
        valkey.kill()
        [growing] = (Path(tmp_path) / "valkey" / "appendonlydir").glob("*.incr.aof")
        growing.write_bytes(b"")
        valkey.start()
        with Redis.from_url(valkey.url) as store:
            assert (store.get("seat") == b"mine") is guarded
