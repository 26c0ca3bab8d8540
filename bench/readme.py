"""The numbers and pictures of the README, written from result files: `python -m bench.readme RESULT.json ...`.

Of a benchmark that several files hold, the last one counts, and its line says which file it is from. A test compares
the README and the pictures with what this file makes of the result files that the README names.
"""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from math import floor, log10
from pathlib import Path
from typing import Any, NamedTuple

from bench.plots import pictures

ROOT = Path(__file__).parent.parent
RESULTS = Path("bench") / "results"
PICTURES = Path("docs") / "pictures" / "bench"

BLOCK = re.compile(r"<!-- numbers of (?P<files>[^>]*?) -->\n.*?<!-- end of numbers -->\n", re.DOTALL)

Figures = dict[str, Any]


class Row(NamedTuple):
    bench: str
    what: Callable[[Figures], str]
    figure: Callable[[Figures], str]


def about(value: float) -> str:
    """Three digits: what the next run would not change by much."""
    return f"{round(value, 2 - floor(log10(value))):,.0f}" if value >= 100 else f"{value:.3g}"


ROWS = (
    Row(
        "sellout",
        lambda r: (
            f"{r['seats']:,} seats sold over HTTP in {r['bookings']:,} bookings, until the last one is in PostgreSQL"
            " with its seats"
        ),
        lambda r: f"{r['seconds']:.1f} s",
    ),
    Row(
        "sellout",
        lambda r: "the same through `SELECT ... FOR UPDATE`, one transaction a booking, without log, logins or limits",
        lambda r: f"{r['yardstick_seconds']:.1f} s" if r["yardstick_seconds"] else "not measured",
    ),
    Row("sellout", lambda r: "CPU time a booking, all servers", lambda r: f"{about(r['cpu_us_per_booking'])} us"),
    Row(
        "sellout",
        lambda r: "from an order to its answer in that rush, median / 99 %",
        lambda r: f"{about(r['p50_ms'])} / {about(r['p99_ms'])} ms",
    ),
    Row("sellout", lambda r: "orders refused after the last seat", lambda r: f"{about(r['refusals_per_s'])} a second"),
    Row("pay", lambda r: f"{r['payments']:,} payments through the API", lambda r: f"{r['seconds']:.1f} s"),
    Row(
        "status",
        lambda r: "reads of an event's prices and free seats",
        lambda r: f"{about(r['reads_per_s'])} a second",
    ),
    Row(
        "sse",
        lambda r: f"{r['viewers']:,} people watch an event being sold; the last change reaches the last of them after",
        lambda r: f"{about(r['last_delivery_ms'])} ms",
    ),
    Row(
        "growth",
        lambda r: f"CPU time a booking, dearest over cheapest: halls of {_ends(r['by_seats'])} seats",
        lambda r: f"{r['ratio_seats']:.2f}",
    ),
    Row(
        "growth",
        lambda r: f"the same, {_ends(r['by_events'])} events on sale",
        lambda r: f"{r['ratio_events']:.2f}",
    ),
    Row(
        "growth",
        lambda r: f"`aisle up` with {r['startup_events']:,} events on sale, until it answers",
        lambda r: f"{r['startup_s']:.1f} s",
    ),
    Row(
        "inventory",
        lambda r: "claims of two seats in the store, one by one / 50 a call",
        lambda r: f"{about(r['claims_per_s'])} / {about(r['claims_batch50_per_s'])} a second",
    ),
    Row(
        "penstock",
        lambda r: "records through Penstock, in / out",
        lambda r: f"{about(r['produce_records_per_s'])} / {about(r['consume_records_per_s'])} a second",
    ),
    Row("sellout", lambda r: f"an event of {r['seats']:,} seats created and open", lambda r: f"{r['create_s']:.1f} s"),
)


def _ends(steps: Figures) -> str:
    counts = list(map(int, steps))
    return f"{min(counts):,} to {max(counts):,}"


def read(names: Sequence[str]) -> tuple[Figures, dict[str, str]]:
    """Results by benchmark, and the file that each is from."""
    results, sources = {}, {}
    for name in names:
        for bench, figures in json.loads((ROOT / RESULTS / name).read_text()).items():
            results[bench], sources[bench] = figures, name
    return results, sources


def block(names: Sequence[str]) -> str:
    """The part of the README between its two marks."""
    results, sources = read(names)
    lines = [f"<!-- numbers of {' '.join(names)} -->", "| | |", "|---|---|"]
    for row in ROWS:
        if row.bench in results:
            later = sources[row.bench] != names[0]
            source = f" ([later run]({RESULTS / sources[row.bench]}))" if later else ""
            lines.append(f"| {row.what(results[row.bench])}{source} | {row.figure(results[row.bench])} |")
    lines.append("")
    lines += [f"![{title_of(svg)}]({PICTURES / name})" for name, svg in pictures(results).items()]
    lines += ["", f"From [{names[0]}]({RESULTS / names[0]}).", "<!-- end of numbers -->", ""]
    return "\n".join(lines)


def title_of(svg: str) -> str:
    return re.findall(r"<title>(.*?)</title>", svg)[0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.readme", description="Write the README's numbers and pictures.")
    parser.add_argument("files", nargs="+", type=Path, metavar="RESULT.json", help="in bench/results; the last counts")
    names = [path.name for path in parser.parse_args().files]
    text = (ROOT / "README.md").read_text()
    (ROOT / "README.md").write_text(BLOCK.sub(lambda _: block(names), text))
    (ROOT / PICTURES).mkdir(parents=True, exist_ok=True)
    for name, svg in pictures(read(names)[0]).items():
        (ROOT / PICTURES / name).write_text(svg)


if __name__ == "__main__":
    main()
