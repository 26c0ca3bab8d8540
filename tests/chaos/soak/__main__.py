"""`python -m tests.chaos.soak --seed 7 --minutes 30 --out result.json`: exit code 1 if anything was violated."""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

import uvloop

from tests.chaos.soak.nemesis import FAULTS
from tests.chaos.soak.run import Options, as_json, run, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--buyers", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=2, help="processes with the API, and as many with workers")
    parser.add_argument("--at-once", type=int, default=2, help="faults of machines at the same time")
    parser.add_argument("--fault", action="append", default=[], help="only faults whose name has this in it")
    parser.add_argument("--out", type=Path, help="where the result is written as JSON")
    parser.add_argument("--keep", type=Path, help="leave data and logs of all servers in this directory")
    arguments = parser.parse_args()
    chosen = tuple(sorted(name for name in FAULTS if any(part in name for part in arguments.fault)))
    options = Options(
        arguments.seed, arguments.minutes * 60, arguments.buyers, arguments.nodes, arguments.at_once, chosen,
        keep=arguments.keep,
    )  # fmt: skip
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        outcome = runner.run(run(options, lambda line: print(line, flush=True)))
    report = as_json(outcome)
    print(table(report))
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    sys.exit(main())
