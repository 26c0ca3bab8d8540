"""One run: start the world, let people buy, let faults happen, come to rest, judge, report. All of it from one seed."""

import asyncio
import json
import os
import platform
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisle.accounts.account import Role
from aisle.crash_points import POINTS
from aisle.embedded import process
from tests import children
from tests.chaos.soak import (  # noqa: F401 - each puts its faults into the list
    audit,
    faults_database,
    faults_links,
    faults_log,
    faults_people,
    faults_processes,
    faults_store,
)
from tests.chaos.soak.buyers import LEFT, Buyer, Sale, Seller
from tests.chaos.soak.faults_store import operator_of
from tests.chaos.soak.history import OK, History
from tests.chaos.soak.nemesis import FAULTS, Nemesis, draw_plan
from tests.chaos.soak.verdict import LATE_MONEY, Verdict, heal, judge
from tests.chaos.soak.watchers import Watcher
from tests.chaos.soak.world import World, raise_file_limit

CROWD = 60


@dataclass(frozen=True)
class Options:
    seed: int
    seconds: float
    buyers: int = 20
    nodes: int = 2
    at_once: int = 2
    faults: tuple[str, ...] = ()  # all of them
    deep: bool = True
    settings: tuple[tuple[str, Any], ...] = ()  # other than the usual
    keep: Path | None = None  # where the servers' data and logs stay


@dataclass
class Outcome:
    options: Options
    verdict: Verdict
    nemesis: Nemesis
    seconds: float

    @property
    def clean(self) -> bool:
        return not self.verdict.findings


async def run(options: Options, say: Any = print) -> Outcome:
    raise_file_limit()
    process.START_SECONDS = 120
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="aisle-chaos-", ignore_cleanup_errors=True) as temporary:
        folder = options.keep or Path(temporary)
        _let_through(Path(temporary))
        async with World(
            folder, options.seed, nodes=options.nodes, keeps=options.keep is not None, **dict(options.settings)
        ) as world:
            say(f"seed {options.seed}: the world is up after {time.monotonic() - started:.0f} s")
            nemesis, verdict = await _sell_and_break(world, options, say)
    return Outcome(options, verdict, nemesis, time.monotonic() - started)


def _let_through(folder: Path) -> None:
    """PostgreSQL runs as a user of its own where we are root."""
    folder.chmod(0o711)


async def _sell_and_break(world: World, options: Options, say: Any) -> tuple[Nemesis, Verdict]:
    await audit.install(world.config.database_url)
    history = History()
    sale = Sale(world, history)
    nemesis = Nemesis(world, sale)
    tokens = await world.stage.tokens(options.buyers + CROWD)
    [sale.seller_token] = await world.stage.tokens(1, Role.SELLER)
    [sale.door_token] = await world.stage.tokens(1, Role.DOOR)
    [operator_token] = await world.stage.tokens(1, Role.OPERATOR)
    me = await sale.ask("door", "me", "GET", "/me", token=sale.door_token)
    sale.door_email = me.answer["email"]
    nemesis.shared["crowd tokens"] = tokens[options.buyers :]
    seller = Seller(sale, sale.seller_token, every_s=40)
    await seller.opens_one()
    assert sale.events, "no event could be opened"
    people = [Buyer(sale, f"buyer-{n}", tokens[n], options.seed * 1000 + n) for n in range(options.buyers)]
    watchers = [Watcher(sale, sale.events[0], n) for n in range(2)]
    living = [asyncio.create_task(person.live()) for person in [*people, seller]]
    living.append(asyncio.create_task(_decide_about_money(sale, operator_token)))
    watching = [asyncio.create_task(watcher.watch()) for watcher in watchers]
    try:
        plan = draw_plan(options.seed, list(options.faults or sorted(FAULTS)), rounds=200)
        await nemesis.rage(plan, options.seconds, at_once=options.at_once)
        say(f"seed {options.seed}: {len(nemesis.happened)} faults, {len(history.operations)} operations; healing")
        await heal(nemesis)
        await asyncio.sleep(3)  # people go on for a moment in a world that works
        sale.over.set()
        await asyncio.wait(living, timeout=60)
        _require_alive(living)
        verdict = await judge(nemesis, watchers, {}, deep=options.deep)
    finally:
        for task in [*living, *watching]:
            task.cancel()
        await asyncio.gather(*living, *watching, return_exceptions=True)
    return nemesis, verdict


def _require_alive(living: list[asyncio.Task[None]]) -> None:
    for task in living:
        if task.done() and not task.cancelled() and task.exception() is not None:
            raise task.exception() or AssertionError


async def _decide_about_money(sale: Sale, token: str) -> None:
    """Somebody looks after payments of another amount than was asked for."""
    number = 0
    while not sale.over.is_set():
        await asyncio.sleep(2)
        listed = await sale.ask("operator", "review", "GET", "/payments/review", token=token, door=number)
        items = listed.answer.get("items", []) if listed.outcome == OK and isinstance(listed.answer, dict) else []
        for payment in items[:5]:
            number += 1
            body = {"decision": "accept" if number % 2 else "refund"}
            path = f"/payments/{payment['id']}/decision"
            key = f"decide-{payment['id']}"
            await sale.ask("operator", "decide", "POST", path, body, token=token, door=number, key=key)


def as_json(outcome: Outcome) -> dict[str, Any]:
    nemesis, options = outcome.nemesis, outcome.options
    by_id: Counter[str] = Counter()
    for name, count in nemesis.bitten().items():
        for id in FAULTS[name].ids:
            by_id[id] += count
    by_id["F24"] = outcome.verdict.met[LATE_MONEY]
    by_id["F26"] = nemesis.sale.sometimes[LEFT]
    commit = children.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "what": "chaos",
        "seed": options.seed,
        "seconds": round(outcome.seconds),
        "fault_seconds": options.seconds,
        "buyers": options.buyers,
        "processes": options.nodes * 2,
        "commit": commit,
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "findings": outcome.verdict.findings,
        "judged": outcome.verdict.judged,
        "rest_seconds": round(outcome.verdict.rest_seconds, 1),
        "rebuilds": operator_of(nemesis).rebuilds,
        "faults": [
            {"name": name, "ids": FAULTS[name].ids, "made": made, "bit": nemesis.bitten()[name]}
            for name, made in sorted(Counter(planned.fault.name for planned in nemesis.happened).items())
        ],
        "catalogue": dict(sorted(by_id.items(), key=lambda item: int(item[0][1:]))),
        "crash_points": {point: nemesis.points[point] for point in POINTS},
        "sometimes": dict(sorted(sometimes(nemesis, outcome.verdict).items())),
        "operations": nemesis.history.outcomes(),
        "faults_that_failed": [f"{p.fault.name}: {p.error[-600:]}" for p in nemesis.happened if p.error],
        "plan": [[round(p.at, 1), p.fault.name, p.seed, p.bites] for p in nemesis.happened],
    }


def sometimes(nemesis: Nemesis, verdict: Verdict) -> Counter[str]:
    """What a run should meet; a row of zero says that it did not."""
    counts: Counter[str] = Counter(nemesis.sale.sometimes)
    counts.update(verdict.met)
    for operation in nemesis.history.operations:
        counts["an internal error (500)"] += operation.status == 500
        counts["refused early (503)"] += operation.status == 503
        counts["an unknown outcome in the store"] += operation.code == "store_outcome_unknown"
        counts["a retry met its first try"] += bool(
            operation.key and operation.outcome == OK and operation.asked.get("again")
        )
    return counts


def table(report: dict[str, Any]) -> str:
    lines = [f"seed {report['seed']}, {report['seconds']} s, commit {report['commit'][:12]}", ""]
    lines += [f"{'fault':<62} {'catalogue':<10} {'made':>5} {'bit':>5}"]
    lines += [f"{f['name']:<62} {' '.join(f['ids']):<10} {f['made']:>5} {f['bit']:>5}" for f in report["faults"]]
    never = [f["name"] for f in report["faults"] if not f["bit"]]
    never += [f"crash point {point}" for point, met in report["crash_points"].items() if not met]
    never += [what for what, met in report["sometimes"].items() if not met]
    lines += ["", "by catalogue: " + ", ".join(f"{id} {count}" for id, count in report["catalogue"].items())]
    lines += ["crash points: " + ", ".join(f"{name} {met}" for name, met in report["crash_points"].items() if met)]
    lines += ["sometimes: " + ", ".join(f"{what}: {met}" for what, met in report["sometimes"].items() if met)]
    lines += ["operations: " + json.dumps(report["operations"])]
    lines += ["judged: " + json.dumps(report["judged"]) + f", at rest after {report['rest_seconds']} s"]
    lines += ["never met: " + (", ".join(never) or "nothing")]
    lines += [f"could not be made: {text}" for text in report["faults_that_failed"]]
    lines += ["", f"{len(report['findings'])} violations", *report["findings"][:40]]
    return "\n".join(lines)
