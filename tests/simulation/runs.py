"""Long runs of histories, kept in one file: what was run, of which commit, and what it found.

A run is cut into portions. Each is added to the file as soon as it is done, so a run that is ended goes on where it was
when it is started again, and another day adds other seeds. Seeds that are in the file are not run again.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import Any

PORTION = 500

Simulate = Callable[[int, int], dict[str, Any]]


def run_into(file: Path, simulate: Simulate, first: int, histories: int, processes: int) -> dict[str, Any]:
    """Run what the file does not have of these seeds, so many processes at a time; returns what it has then."""
    portions = not_yet(read(file), first, histories)
    with ProcessPoolExecutor(max_workers=processes) as pool:
        under_way = {pool.submit(simulate, *portion) for portion in islice(portions, processes)}
        while under_way:
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for portion in done:
                kept = add(file, portion.result())
                sys.stderr.write(
                    f"{kept['histories']:,} histories, {kept['violations']} violations, "
                    f"{kept['histories_per_cpu_hour']:,} an hour of one core\n"
                )
                if (following := next(portions, None)) is not None:
                    under_way.add(pool.submit(simulate, *following))
    return read(file)


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"runs": [], "sometimes": {}}
    return found


def not_yet(kept: dict[str, Any], first: int, histories: int) -> Iterator[tuple[int, int]]:
    """(first seed, how many) of each portion that no run has."""
    seed, end = first, first + histories
    ranges = sorted((run["first_seed"], run["first_seed"] + run["histories"]) for run in kept["runs"])
    while seed < end:
        inside = next((until for begin, until in ranges if begin <= seed < until), None)
        if inside is not None:
            seed = inside
            continue
        stop = min([end, seed + PORTION, *(begin for begin, _ in ranges if begin > seed)])
        yield seed, stop - seed
        seed = stop


def add(file: Path, figures: dict[str, Any]) -> dict[str, Any]:
    """One portion more. The file is replaced in one step: whoever is killed here leaves the old one."""
    kept = read(file)
    same = ("commit", "modified", "machine")
    run = {name: figures[name] for name in (*same, "first_seed", "histories", "violations", "cpu_seconds")}
    run |= {"started_at": figures["started_at"], "seeds": figures["seeds"]}
    runs = sorted([*kept["runs"], run], key=lambda one: one["first_seed"])
    merged: list[dict[str, Any]] = []
    for one in runs:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last["first_seed"] + last["histories"] == one["first_seed"]
            and all(last[name] == one[name] for name in same)
        ):
            for name in ("histories", "violations", "cpu_seconds"):
                last[name] = round(last[name] + one[name], 2)
            last["seeds"] = last["seeds"] + one["seeds"]
        else:
            merged.append(dict(one))
    cpu_seconds = sum(one["cpu_seconds"] for one in merged)
    histories = sum(one["histories"] for one in merged)
    whole = {
        "histories": histories,
        "violations": sum(one["violations"] for one in merged),
        "cpu_hours": round(cpu_seconds / 3600, 3),
        "histories_per_cpu_hour": round(histories / cpu_seconds * 3600) if cpu_seconds else 0,
        "runs": merged,
        "sometimes": dict(sorted((Counter(kept["sometimes"]) + Counter(figures["sometimes"])).items())),
    }
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(whole, indent=1) + "\n")
    os.replace(beside, file)
    return whole
