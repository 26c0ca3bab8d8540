"""The simulation behind `aisle bench capacity`: its hosts obey arithmetic, and it agrees with what was measured."""

from pathlib import Path

import pytest

from aisle.bench.capacity import bench_capacity, predict
from aisle.bench.simulated_hosts import Clock, Host, Process
from aisle.bench.topology import Topology
from aisle.bench.unit_costs import costs_of, newest_result
from aisle.errors import StartupError

RESULTS = Path(__file__).parent.parent.parent / "bench" / "results"


def test_a_core_does_one_thing_at_a_time_and_two_do_two():
    ends: dict[int, list[float]] = {1: [], 2: []}
    for cores, ended in ends.items():
        clock = Clock()
        host = Host(clock, "host", cores)
        for name in ("a", "b"):
            Process(host, name).do(1.0, lambda ended=ended, clock=clock: ended.append(clock.now))
        clock.run()
    assert ends[1] == pytest.approx([2.0, 2.0], abs=0.01), "in turn, so both end late"
    assert ends[2] == pytest.approx([1.0, 1.0])


def test_a_process_does_its_work_in_order_and_a_wire_carries_in_order():
    clock, seen = Clock(), list[tuple[str, float]]()
    near, far = Host(clock, "near", 4, bytes_per_s=1_000), Host(clock, "far", 4)
    process = Process(near, "one")
    for name in ("first", "second"):
        process.do(1.0, lambda name=name: seen.append((name, clock.now)))
        near.send(far, 500, 0.25, lambda name=name: seen.append((f"sent {name}", clock.now)))
    clock.run()
    assert dict(seen) == pytest.approx({"first": 1, "second": 2, "sent first": 0.75, "sent second": 1.25})


def test_the_prediction_for_the_measured_machine_is_within_a_quarter():
    newest = newest_result(RESULTS)
    result = bench_capacity(newest, Topology(name="yours", bookings=100))
    assert result["costs_from"] == newest.name
    assert abs(float(str(result["error_percent"]))) <= 25, result


def test_more_processes_sell_sooner_and_partitions_bound_them():
    costs = costs_of(newest_result(RESULTS))
    few = Topology(name="few", bookings=4_000, cores=4)
    many = Topology(name="many", bookings=4_000, cores=4, api=4, reservation=2, ticketing=2, booking=2)
    one_partition = Topology(
        name="one", bookings=4_000, cores=4, api=4, reservation=2, ticketing=2, booking=2, partitions=1
    )
    assert predict(many, costs) == predict(many, costs), "the same every time"
    seconds = [float(str(predict(topology, costs)["seconds"])) for topology in (few, many, one_partition)]
    assert seconds[1] < seconds[0] * 0.7
    assert seconds[1] < seconds[2]


def test_a_file_that_is_no_result_is_said_in_a_sentence(tmp_path):
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(StartupError, match=r"empty\.json is no result"):
        costs_of(tmp_path / "empty.json")
    (tmp_path / "being-written.json").touch()
    (tmp_path / "scale.json").write_text('{"sellout": {"cpu_us_by_process": {"api-1": 9.0}}, "inventory": {}}')
    with pytest.raises(StartupError, match="name a file with --costs"):
        newest_result(tmp_path)
