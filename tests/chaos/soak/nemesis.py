"""Draws faults from a seed and lets them happen, a few at a time, while people buy.

A fault is a coroutine that does harm, undoes it, and returns how often it really bit: a request or a worker was in
flight and saw it. What it needs for itself (`takes`) is locked, so that two faults do not start and stop one server.
"""

import asyncio
import random
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.soak.buyers import Sale
from tests.chaos.soak.history import History
from tests.chaos.soak.world import Node, World

Act = Callable[["Nemesis", random.Random], Awaitable[int]]


@dataclass(frozen=True)
class Fault:
    name: str
    ids: tuple[str, ...]
    takes: tuple[str, ...]
    act: Act
    crowd: bool
    weight: int


FAULTS: dict[str, Fault] = {}


def fault(ids: str, name: str, *, takes: str = "", crowd: bool = False, weight: int = 1) -> Callable[[Act], Act]:
    """Puts a coroutine into the list. `crowd`: it comes from people, and needs no server for itself."""

    def add(act: Act) -> Act:
        assert name not in FAULTS, name
        FAULTS[name] = Fault(name, tuple(ids.split()), tuple(takes.split()), act, crowd, weight)
        return act

    return add


@dataclass
class Planned:
    fault: Fault
    seed: int
    at: float = 0.0
    seconds: float = 0.0
    bites: int = -1
    error: str = ""


def draw_plan(seed: int, names: list[str], rounds: int) -> list[Planned]:
    """Every fault once a round (or as often as it weighs), in an order and with details that the seed decides."""
    chance = random.Random(seed)
    plan = []
    for _ in range(rounds):
        some = [name for name in names for _ in range(FAULTS[name].weight)]
        chance.shuffle(some)
        plan += [Planned(FAULTS[name], chance.randrange(2**32)) for name in some]
    return plan


@dataclass
class Nemesis:
    world: World
    sale: Sale
    locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    happened: list[Planned] = field(default_factory=list)
    points: Counter[str] = field(default_factory=Counter)
    shared: dict[str, Any] = field(default_factory=dict)
    started: float = 0.0

    @property
    def history(self) -> History:
        return self.sale.history

    def lock(self, name: str) -> asyncio.Lock:
        return self.locks.setdefault(name, asyncio.Lock())

    def bitten(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for planned in self.happened:
            counts[planned.fault.name] += max(0, planned.bites)
        return counts

    def troubled(self, since: float) -> int:
        return self.history.troubled_since(since)

    async def rage(self, plan: list[Planned], seconds: float, *, at_once: int) -> None:
        """Until the time is over; what is under way is brought to its end."""
        self.started = time.monotonic()
        deadline = self.started + seconds
        machines = [planned for planned in plan if not planned.fault.crowd]
        crowds = [planned for planned in plan if planned.fault.crowd]
        lanes = [self._lane(machines, deadline) for _ in range(at_once)]
        await asyncio.gather(*lanes, self._lane(crowds, deadline))

    async def _lane(self, plan: list[Planned], deadline: float) -> None:
        while plan and time.monotonic() < deadline:
            planned = plan.pop(0)
            async with AsyncExitStack() as stack:
                for name in sorted(planned.fault.takes):
                    await stack.enter_async_context(self.lock(name))
                await self._happens(planned)
            await asyncio.sleep(random.Random(planned.seed).uniform(0.2, 1.5))

    async def _happens(self, planned: Planned) -> None:
        planned.at = time.monotonic() - self.started
        try:
            planned.bites = await planned.fault.act(self, random.Random(planned.seed))
        except Exception:  # noqa: BLE001 - a fault that cannot be made is reported, and the run goes on
            planned.error = traceback.format_exc()
        planned.seconds = time.monotonic() - self.started - planned.at
        self.happened.append(planned)

    async def take_node(self, chance: random.Random, kind: str = "") -> "TakenNode":
        """A process that no other fault deals with now."""
        nodes = [node for node in self.world.nodes if node.name.startswith(kind)]
        while True:
            for node in chance.sample(nodes, len(nodes)):
                lock = self.lock(node.name)
                if not lock.locked():
                    await lock.acquire()
                    return TakenNode(node, lock)
            await asyncio.sleep(0.1)


class TakenNode:
    def __init__(self, node: Node, lock: asyncio.Lock) -> None:
        self.node, self._lock = node, lock

    async def __aenter__(self) -> Node:
        return self.node

    async def __aexit__(self, *error: object) -> None:
        self._lock.release()
