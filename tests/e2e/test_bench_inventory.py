"""`aisle bench inventory` with tiny sizes: it says what it promises to say, and its audit is not blind."""

import json
import tempfile
from pathlib import Path

import pytest

from aisle.bench.seat_fill import RULES, measure_seat_fill
from aisle.bench.selling import Sold, claim_all, orders_for
from aisle.bench.stage import QUICK, Stage
from aisle.store import open_store
from tests.running import run_aisle

# One run serves all tests of this file, so they stay on one worker.
pytestmark = pytest.mark.xdist_group("bench-inventory")

PROMISED = {
    "claims_per_s", "claims_batch50_per_s", "find_p99_us", "hall_best_p99_us", "open_50000_s", "status_100_ms",
    "bytes_open", "bytes_sold", "ratio_seed_algorithm", "ratio_redis_py",
}  # fmt: skip


@pytest.fixture(scope="module")
def finished():
    with tempfile.TemporaryDirectory(prefix="aisle-bench-test-") as folder:
        yield run_aisle("bench", "inventory", "--json", "--quick", env={"TMPDIR": folder}), Path(folder)


def test_standard_output_is_one_json_object_and_a_pipe_gets_no_progress(finished):
    ended, _ = finished
    assert ended.returncode == 0, ended.stderr
    assert isinstance(json.loads(ended.stdout), dict)
    assert ended.stderr == ""


def test_every_promised_figure_is_a_positive_number(finished):
    result = json.loads(finished[0].stdout)
    assert {name for name in PROMISED if not result[name] > 0} == set()
    assert {name for name in ("machine", "commit", "started_at") if not result[name]} == set()
    for name, cost in result["costs"].items():
        assert min(cost["per_s"], cost["server_us"], cost["client_us"]) > 0, name


def test_a_sell_out_hands_no_seat_out_twice_and_leaves_keys_that_agree(finished):
    result = json.loads(finished[0].stdout)
    assert (result["oversold"], result["drift"]) == (0, 0)


def test_nothing_is_left_behind(finished):
    assert list(finished[1].iterdir()) == []


async def test_the_audit_sees_a_seat_given_twice_and_a_bit_that_fell_over(config, metrics):
    async with open_store(config, metrics) as store:
        stage, sold = Stage(store, QUICK), Sold()
        halls = stage.new_halls()
        await stage.open(halls)
        await claim_all(stage, orders_for(halls, 1), sold, tasks=3)
        await stage.audit_sold_out(halls, sold)
        assert (stage.oversold, stage.drift) == (0, 0)

        await store.call("SETBIT", stage.inventory.keys(halls[1].place)[0], 1, 0)
        await stage.audit_sold_out(halls, [*sold, sold[0]])
        assert (stage.oversold, stage.drift) == (len(sold[0][1].seats), 1)


def test_seat_fill_is_repeatable_and_our_rule_strands_the_fewest():
    table = measure_seat_fill(2)
    assert table == measure_seat_fill(2)
    total = table["all shapes"]
    others = [name for name in RULES if name != "aisle"]
    for figure in ("stranded_singles", "split_parties", "people_alone"):
        assert all(total["aisle"][figure] < total[name][figure] for name in others), figure


def test_a_store_option_without_a_value_is_one_line_and_exit_code_2():
    ended = run_aisle("bench", "inventory", "--store-option", "appendonly", env={})
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("aisle: --store-option takes NAME=VALUE")
