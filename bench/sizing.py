"""The tables of "Sizing" in docs/how-to/scale-out.md, from result files: `python -m bench.sizing RESULT.json ...`.

Of a benchmark that several files hold, the last one counts. A file may be what `make bench` wrote, or one benchmark's
own `--json`. Arithmetic only: measured CPU time and bytes, times how many there are of each, over one minute. A test
compares the page with what this file makes of the result files that the page names.
"""

import argparse
import json
import re
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from bench.readme import RESULTS, ROOT, about

PAGE = ROOT / "docs" / "how-to" / "scale-out.md"
BLOCK = re.compile(r"<!-- sizing of (?P<files>[^>]*?) -->\n.*?<!-- end of sizing -->\n", re.DOTALL)

SALE_SECONDS = 60
READS_A_VISITOR = 3
POLLS_PER_S = 4
# A core that is asked for more than this makes people wait.
BUSY = 0.6
# Nobody is alone: one may die, or be upgraded, during the sale.
FEWEST = 2
WORKERS_MOST = 10
SECTIONS = 10
VIEWERS_OF_A_PROCESS = 20_000

Figures = dict[str, Any]


class Demand(NamedTuple):
    seats: int
    visitors: int

    @property
    def bookings(self) -> int:
        return self.seats // 2

    @property
    def refused(self) -> int:
        return self.visitors - self.bookings


DEMANDS = (Demand(50_000, 1_000_000), Demand(1_000_000, 10_000_000))


def read(names: Sequence[str]) -> Figures:
    results: Figures = {}
    for name in names:
        kept = json.loads((ROOT / RESULTS / name).read_text())
        results |= {kept["bench"]: kept} if "bench" in kept else kept
    return results


def unit_costs(results: Figures) -> Figures:
    """Microseconds and bytes of one of each, all of them measured; the names are the rows of the first table."""
    sold, read_once, watched = results["sellout"], results["status"], results["sse"]
    by_process, cores = sold["cpu_us_by_process"], int(re.findall(r"(\d+) cores", sold["machine"])[0])
    told = watched["viewers"] * watched["arrivals_per_viewer"]
    selling_us = watched["bookings"] * by_process["aisle"]
    return {
        "api": by_process["aisle"],
        "workers": by_process["workers"],
        "database": by_process["postgres"],
        "log": by_process["penstock"],
        "store": by_process["valkey"],
        "refusal": cores * 1e6 / sold["refusals_per_s"],
        "read": read_once["cpu_us_per_read"],
        "map": read_once["cpu_us_per_seatmap"],
        "told": max(watched["cpu_s_by_process"]["aisle"] * 1e6 - selling_us, 0) / told,
        "told_bytes": (watched["bytes_per_viewer"] - watched["snapshot_bytes"]) / watched["bookings"],
        "map_bytes": watched["snapshot_bytes"] / results["inventory"]["seats"],
        "viewer_memory": watched["memory_bytes_per_viewer"],
        "seat_memory": results["inventory"]["bytes_sold"] / results["inventory"]["seats"],
    }


def costs_table(unit: Figures) -> list[str]:
    def us(name: str) -> str:
        return f"{about(unit[name])} us"

    return [
        "| one | costs |",
        "|---|---|",
        f"| booking of two seats | API {us('api')}, three services {us('workers')}, PostgreSQL {us('database')},"
        f" log {us('log')}, store {us('store')} |",
        f"| order refused when nothing is left | at most {us('refusal')}, all processes |",
        f"| read of prices and free seats | {us('read')} |",
        f"| seat map | {us('map')}, {unit['map_bytes']:.2f} bytes a seat |",
        f"| message to a viewer, {POLLS_PER_S} a second in a rush | {us('told')} |",
        f"| booking, as every viewer of the whole hall hears of it | {about(unit['told_bytes'])} bytes |",
        f"| viewer | {about(unit['viewer_memory'] / 1024)} KiB of the live process |",
        f"| seat, sold | {about(unit['seat_memory'])} bytes of the store |",
    ]


def sizes_table(unit: Figures) -> list[str]:
    rows: dict[str, list[str]] = {}
    for demand in DEMANDS:
        for what, figure in _sizes(demand, unit).items():
            rows.setdefault(what, []).append(figure)
    heads = [f"{demand.seats:,} seats, {demand.visitors:,} visitors" for demand in DEMANDS]
    lines = [f"| within {SALE_SECONDS} s | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    return lines + [f"| {what} | {' | '.join(figures)} |" for what, figures in rows.items()]


def _sizes(demand: Demand, unit: Figures) -> dict[str, str]:
    orders = demand.bookings * unit["api"] + demand.refused * unit["refusal"]
    reads = demand.visitors * READS_A_VISITOR * unit["read"]
    maps = demand.visitors * unit["map"]
    telling = demand.visitors * POLLS_PER_S * SALE_SECONDS * unit["told"]
    live = max(_processes(maps + telling), ceil(demand.visitors / VIEWERS_OF_A_PROCESS))
    workers = min(_processes(demand.bookings * unit["workers"]), WORKERS_MOST)
    stream_bits = demand.visitors * demand.bookings * unit["told_bytes"] * 8 / SALE_SECONDS
    map_bits = demand.visitors * demand.seats * unit["map_bytes"] * 8 / SALE_SECONDS
    return {
        "orders a second": f"{about(demand.visitors / SALE_SECONDS)}",
        "API processes, a core each": f"{_processes(orders + reads):,}",
        "live processes, a core each": f"{live:,}",
        "memory of the live processes": f"{about(demand.visitors * unit['viewer_memory'] / 1e9)} GB",
        "reservation, ticketing, booking: processes of each": f"{workers}",
        "partitions of the event's topics": f"{WORKERS_MOST}",
        "PostgreSQL, cores": f"{_processes(demand.bookings * unit['database'])}",
        "log, cores": f"{_processes(demand.bookings * unit['log'])}",
        "store, nodes": f"{_processes(demand.bookings * unit['store'])}",
        "memory of the store": f"{about(demand.seats * unit['seat_memory'] / 1e6)} MB",
        "to browsers: every map once": f"{about(map_bits / 1e9)} Gbit/s",
        "to browsers: every change to every viewer": f"{about(stream_bits / 1e9)} Gbit/s",
        f"the same, each viewer one of {SECTIONS} sections": f"{about(stream_bits / SECTIONS / 1e9)} Gbit/s",
    }


def _processes(microseconds: float) -> int:
    return max(ceil(microseconds / 1e6 / SALE_SECONDS / BUSY), FEWEST)


def capacity_table(capacity: Figures) -> list[str]:
    lines = ["| topology | seats | sold out after | bookings a second | busiest |", "|---|---|---|---|---|"]
    for name, found in capacity["topologies"].items():
        cells = [f"{found['seats']:,}", f"{found['seconds']:.1f} s", about(found["bookings_per_s"]), found["busiest"]]
        label = f"embedded, {found['cores']} cores, buyers too" if name == "embedded" else name
        share = found["busy"][found["busiest"]]
        lines.append(f"| {label} | {' | '.join(cells)}, {share:.0%} |")
    return lines


def block(names: Sequence[str]) -> str:
    results = read(names)
    unit, capacity = unit_costs(results), results["capacity"]
    sources = ", ".join(f"[{name}](../../{RESULTS / name})" for name in names)
    return "\n".join(
        [
            f"<!-- sizing of {' '.join(names)} -->",
            *costs_table(unit),
            "",
            f"From {sources}.",
            "",
            *sizes_table(unit),
            "",
            *capacity_table(capacity),
            "",
            f"The first line is the sale that was measured, at {capacity['measured_seconds']:.1f} s;"
            f" the simulation is off by {abs(capacity['error_percent']):.0f} % there.",
            "<!-- end of sizing -->",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.sizing", description="Write the tables of docs/how-to/scale-out.md.")
    parser.add_argument("files", nargs="+", type=Path, metavar="RESULT.json", help="in bench/results; the last counts")
    names = [path.name for path in parser.parse_args().files]
    PAGE.write_text(BLOCK.sub(lambda _: block(names), PAGE.read_text()))


if __name__ == "__main__":
    main()
