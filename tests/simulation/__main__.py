"""`python -m tests.simulation`: many histories from a seed on, or one of them told in full.

--histories 1000 --seed 7      a thousand, beginning with seed 7; the figures as one JSON object
  ... --into FILE              with many processes, added to what the file has; what it has is not run again
--seed 7                       this one, moment by moment, and which kinds of trouble its violation needs
--defect NAME                  with a defect put in on purpose (see defects.py)
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from aisle.bench.report import circumstances
from tests.simulation.defects import DEFECTS
from tests.simulation.history import TROUBLES, Ended, History
from tests.simulation.runs import run_into

SHOWN_MAX = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation", description="Simulated histories of the whole core.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--histories", type=int, default=0, help="how many; without it, one history is told in full")
    parser.add_argument("--defect", choices=sorted(DEFECTS), default="", help="put this defect in")
    parser.add_argument("--each-defect", action="store_true", help="both sides of each: without the guard, and with it")
    parser.add_argument("--until-violation", action="store_true", help="stop at the first violation")
    parser.add_argument("--into", type=Path, help="add the figures to this file, portion by portion")
    parser.add_argument("--processes", type=int, default=1, help="with --into: how many at a time")
    arguments = parser.parse_args()
    if arguments.each_defect:
        sys.stdout.write(json.dumps({name: both_sides(name) for name in DEFECTS}, indent=1) + "\n")
        return 0
    if not arguments.histories:
        return tell(arguments.seed, arguments.defect)
    if arguments.into:
        wanted = arguments.seed, arguments.histories, arguments.processes
        figures = run_into(arguments.into, simulate, *wanted)
    else:
        figures = simulate(arguments.seed, arguments.histories, arguments.defect, stop=arguments.until_violation)
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    return 1 if figures["violations"] else 0


def simulate(first: int, histories: int, defect: str = "", *, stop: bool = False) -> dict[str, Any]:
    """Run histories one after the other on this core; what they met, and what was violated."""
    around = circumstances()
    started, cpu = time.perf_counter(), time.process_time()
    sometimes: Counter[str] = Counter()
    says = DEFECTS[defect].says if defect else ""
    found: list[Ended] = []
    done = 0
    for seed in range(first, first + histories):
        ended = History(seed, defect).run()
        sometimes.update(ended.sometimes)
        done += 1
        if any(says in violation for violation in ended.violations):
            found.append(ended)
            sys.stderr.write(f"seed {seed}: {ended.violations[0]}\n")
            if stop:
                break
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    return {
        "histories": done,
        "first_seed": first,
        "defect": defect,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "histories_per_hour": round(done / seconds * 3600),
        "histories_per_cpu_hour": round(done / cpu_seconds * 3600),
        "violations": len(found),
        "seeds": [{"seed": e.seed, "violations": e.violations} for e in found[:SHOWN_MAX]],
        "sometimes": dict(sorted(sometimes.items())),
        **around,
    }


def both_sides(name: str) -> dict[str, Any]:
    """The first history that violates something without a guard, and what the same one violates with it."""
    defect = DEFECTS[name]
    figures = simulate(defect.first, defect.after, name, stop=True)
    if not figures["violations"]:
        return {"after": None, "without": "", "with": []}
    [found] = figures["seeds"]
    told = next(violation for violation in found["violations"] if defect.says in violation)
    again = History(found["seed"], loses=defect.loses).run()
    return {"after": figures["histories"], "seed": found["seed"], "without": told, "with": again.violations}


def tell(seed: int, defect: str) -> int:
    ended = History(seed, defect).run()
    sys.stdout.write("\n".join([*ended.trace, "", *(ended.violations or ["nothing is violated"]), ""]))
    if ended.violations:
        spare = without_which(seed, defect)
        needed = [trouble for trouble in TROUBLES if trouble not in spare]
        sys.stdout.write(f"\nneeds: {', '.join(needed) or 'no trouble at all'}\n")
    return 1 if ended.violations else 0


def without_which(seed: int, defect: str = "") -> list[str]:
    """Kinds of trouble that the history violates something without, left out one after the other."""
    spare: list[str] = []
    for trouble in TROUBLES:
        if History(seed, defect, without=[*spare, trouble]).run().violations:
            spare.append(trouble)
    return spare


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set must not differ between two runs of a seed.
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],  # noqa: S606
                  {**os.environ, "PYTHONHASHSEED": "0"})  # fmt: skip
    sys.exit(main())
