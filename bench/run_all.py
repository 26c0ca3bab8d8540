"""Run every benchmark there is and keep the figures: `python -m bench.run_all`, or `make bench`.

Each benchmark is a command that prints one JSON object, and starts and stops the servers it needs. The results go to
`bench/results/<date>-<commit>.json`, one entry a benchmark. A benchmark that fails leaves no file and ends the run.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from aisle.embedded.kafka import missing_for_kafka
from tests.apache_kafka import JARS, apache_kafka

ROOT = Path(__file__).parent.parent
COMMANDS = {
    "respline": ("-m", "bench.respline"),
    "inventory": ("-m", "aisle", "bench", "inventory", "--json"),
    "penstock": ("-m", "penstock", "bench", "--json"),
    "sellout": ("-m", "aisle", "bench", "sellout", "--json"),
    "sellout_scale": ("-m", "aisle", "bench", "sellout", "--topology", "scale", "--json"),
    "pay": ("-m", "aisle", "bench", "pay", "--json"),
    "status": ("-m", "aisle", "bench", "status", "--json"),
    "sse": ("-m", "aisle", "bench", "sse", "--json"),
    "overload": ("-m", "aisle", "bench", "overload", "--json"),
    "growth": ("-m", "aisle", "bench", "growth", "--json"),
    "map": ("-m", "aisle", "bench", "map", "--json"),
}
NEEDS_KAFKA = ("sellout_scale",)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.run_all", description="Run every benchmark and keep the figures.")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results", help="folder of the result file")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these; there are {', '.join(COMMANDS)}")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in COMMANDS]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(COMMANDS)}")
    path = arguments.results / f"{datetime.now(UTC):%Y-%m-%d}-{commit()}.json"
    names = arguments.names or [name for name in COMMANDS if has_kafka() or name not in NEEDS_KAFKA]
    results = {name: run_beside_kafka() if name == "penstock" else run(name) for name in names}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    sys.stdout.write(f"{path}\n`python -m bench.readme {path.name}` writes the README's numbers and pictures from it\n")


def has_kafka() -> bool:
    return not missing_for_kafka(JARS)


def run_beside_kafka() -> dict[str, object]:
    """Penstock, and Apache Kafka for the ratios where its jars are."""
    if not has_kafka():
        return run("penstock")
    with tempfile.TemporaryDirectory(prefix="bench-kafka-") as folder, apache_kafka(Path(folder) / "data") as address:
        return run("penstock", "--kafka", address)


def run(name: str, *flags: str) -> dict[str, object]:
    """Progress of the benchmark, if any, passes through to the terminal."""
    sys.stderr.write(f"{name}\n")
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, *COMMANDS[name], *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if ended.returncode != 0:
        raise SystemExit(f"{name} ended with {ended.returncode}")
    result: dict[str, object] = json.loads(ended.stdout)
    return {**result, "took_s": round(time.monotonic() - started, 1)}


def commit() -> str:
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return revision.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
