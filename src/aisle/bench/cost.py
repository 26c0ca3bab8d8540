"""What a stretch of work costs: its rate, and the CPU time it takes in this process and in the store's.

Rates depend on what else the machine does; CPU microseconds per operation hardly do. The store reports its own CPU
time to the microsecond (INFO cpu), all its threads and its share of the kernel included, so no pid has to be watched.
"""

import re
import statistics
import time
from collections.abc import Awaitable, Sequence

import msgspec

from aisle.store import Store

CPU = re.compile(rb"used_cpu_(?:sys|user):([\d.]+)")


class Cost(msgspec.Struct, frozen=True):
    per_s: float
    server_us: float
    client_us: float

    @property
    def cpu_us(self) -> float:
        return self.server_us + self.client_us


async def cost_of(store: Store, work: Awaitable[int]) -> Cost:
    """Await the work, which returns how many operations it did."""
    server, client, wall = await server_cpu(store), time.process_time(), time.perf_counter()
    operations = await work
    wall, client = time.perf_counter() - wall, time.process_time() - client
    server = await server_cpu(store) - server
    return Cost(operations / wall, server / operations * 1e6, client / operations * 1e6)


async def server_cpu(store: Store) -> float:
    return sum(float(seconds) for seconds in CPU.findall(await store.call("INFO", "cpu")))


def median(costs: Sequence[Cost]) -> Cost:
    """Field by field: the round with the middling rate need not be the one with the middling CPU time."""
    return Cost(
        round(statistics.median(cost.per_s for cost in costs), 1),
        round(statistics.median(cost.server_us for cost in costs), 2),
        round(statistics.median(cost.client_us for cost in costs), 2),
    )


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that at least `percent` of them do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]
