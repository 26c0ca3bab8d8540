"""`aisle bench capacity`: how soon would a topology sell an event out, by the costs that were measured on one machine.

A simulation, not a measurement: `simulated_sale.py` plays the sale on `simulated_hosts.py` with the unit costs of a
result file. The first row is the machine that the file was measured on, and says how far the prediction is off there.
"""

import time
from collections import defaultdict
from pathlib import Path

from aisle.bench.report import circumstances
from aisle.bench.simulated_sale import Sale
from aisle.bench.topology import LADDER, SEATS_A_BOOKING, Topology
from aisle.bench.unit_costs import UnitCosts, costs_of, newest_result, sellout_of

SEED = 7


def bench_capacity(costs_file: Path | None, wanted: Topology | None) -> dict[str, object]:
    started = time.perf_counter()
    path = costs_file or newest_result()
    costs = costs_of(path)
    measured = sellout_of(path)
    embedded = Topology(
        name="embedded", bookings=measured["bookings"], cores=_cores(measured["machine"]), embedded=True
    )
    topologies = [embedded, *([wanted] if wanted else LADDER)]
    predictions = {topology.name: predict(topology, costs) for topology in topologies}
    seconds = predictions["embedded"]["seconds"]
    assert isinstance(seconds, float)
    return {
        "bench": "capacity",
        **circumstances(),
        "costs_from": path.name,
        "measured_seconds": measured["seconds"],
        "predicted_seconds": seconds,
        "error_percent": round((seconds / measured["seconds"] - 1) * 100, 1),
        "topologies": predictions,
        "took_s": round(time.perf_counter() - started, 1),
    }


def predict(topology: Topology, costs: UnitCosts, seed: int = SEED) -> dict[str, object]:
    """Seconds until everything is sold, and how busy everybody was: the busiest role is what to add."""
    sale = Sale(topology, costs, seed)
    seconds = sale.run()
    busy = defaultdict[str, list[float]](list)
    for process in sale.processes:
        busy[process.name].append(process.busy_seconds / seconds)
    shares = {name: round(max(of), 3) for name, of in busy.items() if name != "buyers"}
    return {
        "seats": topology.bookings * SEATS_A_BOOKING,
        "seconds": round(seconds, 3),
        "bookings_per_s": round(topology.bookings / seconds, 1),
        "busiest": max(shares, key=lambda name: shares[name]),
        "busy": shares,
        "mbit_per_s": {host.name: round(host.sent_bytes * 8 / seconds / 1e6, 1) for host in sale.hosts},
        "processes": {name: len(of) for name, of in busy.items() if name != "buyers"},
        "cores": topology.cores,
        "partitions": topology.partitions,
    }


def _cores(machine: str) -> int:
    return int(machine.split(" cores")[0].split()[-1])
