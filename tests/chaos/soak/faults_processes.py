"""Faults of our own processes: killed anywhere and at every named place, stopped, with a wrong clock, deployed anew."""

import asyncio
import random
import time
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from aisle.crash_points import CART_POINTS, DOOR_POINTS, PAYMENT_POINTS, POINTS
from tests.chaos.soak.nemesis import Nemesis, fault

IN_WORKERS = frozenset({"after_late_plan", "after_late_claim", "after_late_seats", "after_provider_refund"})
IN_API = frozenset({"after_place_commit", *CART_POINTS, *PAYMENT_POINTS, *DOOR_POINTS}) - IN_WORKERS
SKEW_SECONDS = 600


@fault("F1", "a process is killed", weight=2)
async def process_killed(nemesis: Nemesis, chance: random.Random) -> int:
    async with await nemesis.take_node(chance) as node:
        bit = node.is_busy()
        node.signal(SIGKILL)
        await asyncio.sleep(chance.uniform(0.2, 2))
        await node.until_it_serves()
        return int(bit)


@fault("F1", "a process dies at a crash point", weight=6)
async def crash_point(nemesis: Nemesis, chance: random.Random) -> int:
    """The points have their turn: the process is started with one armed, and may meet it or not."""
    turn = nemesis.shared.setdefault("crash points", iter(_in_turn(chance)))
    point = next(turn)
    async with await nemesis.take_node(chance, "api" if point in IN_API else "workers") as node:
        before = len(node.deaths)
        node.extra["CRASH_AT"] = point
        node.signal(SIGKILL)
        deadline = time.monotonic() + 25
        while 137 not in node.deaths[before:] and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        met = int(137 in node.deaths[before:])
        nemesis.points[point] += met
        node.extra.pop("CRASH_AT", None)
        node.signal(SIGKILL)  # it is armed again, or still
        await node.until_it_serves()
        return met


def _in_turn(chance: random.Random) -> list[str]:
    points: list[str] = []
    for _ in range(100):
        points += chance.sample(POINTS, len(POINTS))
    return points


@fault("F2 F14", "a process stands still")
async def process_stopped(nemesis: Nemesis, chance: random.Random) -> int:
    """Longer than a lease or a session for some: what it does when it wakes up comes from another time."""
    async with await nemesis.take_node(chance) as node:
        bit = node.is_busy()
        node.signal(SIGSTOP)
        await asyncio.sleep(chance.choice((1, 3, 8, 12)))
        node.signal(SIGCONT)
        return int(bit)


@fault("F19", "a clock is ten minutes off, then steps back")
async def clock_skewed(nemesis: Nemesis, chance: random.Random) -> int:
    """The clock that a process gives to its parts, and Python's; libfaketime would stop librdkafka instead."""
    async with await nemesis.take_node(chance) as node:
        clock = nemesis.world.folder / f"{node.name}.clock"
        _set(clock, chance.choice((SKEW_SECONDS, -SKEW_SECONDS)))
        node.extra["CHAOS_CLOCK"] = str(clock)
        node.signal(SIGKILL)
        served = await node.until_it_serves()
        await asyncio.sleep(chance.uniform(2, 4))
        bit = served and node.is_busy()
        _set(clock, 0)
        await asyncio.sleep(chance.uniform(1, 3))
        node.extra.pop("CHAOS_CLOCK")
        node.signal(SIGKILL)
        await node.until_it_serves()
        return int(bit)


def _set(clock: Path, offset_s: int) -> None:
    clock.write_text(str(offset_s))


@fault("F30", "a rolling restart", takes="roll")
async def rolling_restart(nemesis: Nemesis, chance: random.Random) -> int:
    """Each process is told to stop, finishes what it has, and its successor starts, while people buy."""
    bites = 0
    nodes = list(nemesis.world.nodes)
    chance.shuffle(nodes)
    for node in nodes[: max(1, len(nodes) // 2)]:
        lock = nemesis.lock(node.name)
        if lock.locked():
            continue
        async with lock:
            bites += node.is_busy()
            node.signal(SIGTERM)
            if not await node.ended(30):
                node.signal(SIGKILL)
            await node.until_it_serves()
    return bites
