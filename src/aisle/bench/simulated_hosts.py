"""Hosts, processes and wires of `aisle bench capacity`, on a clock of its own: what a machine does with work.

A process works on one thing at a time; a host runs as many of them as it has cores, in turn, a
slice each, as an operating system does. A wire carries one thing after the other. A heap of sixty lines: a simulation
library would bring resources that know neither slices nor turns.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

SLICE_SECONDS = 0.003

Then = Callable[[], None]


class Clock:
    """What happens when. Two things of the same moment happen in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Then]] = []
        self._order = count()

    def after(self, seconds: float, then: Then) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._order), then))

    def run(self) -> None:
        while self._due:
            self.now, _, then = heapq.heappop(self._due)
            then()


@dataclass
class Host:
    clock: Clock
    name: str
    cores: int
    bytes_per_s: float = float("inf")
    wire_free_at: float = 0.0
    sent_bytes: float = 0.0
    _running: int = 0
    _ready: "deque[Process]" = field(default_factory=deque)

    def ready(self, process: "Process") -> None:
        self._ready.append(process)
        self._fill_cores()

    def _fill_cores(self) -> None:
        while self._ready and self._running < self.cores:
            self._running += 1
            process = self._ready.popleft()
            self.clock.after(process.next_slice(), partial(self._slice_ends, process))

    def _slice_ends(self, process: "Process") -> None:
        self._running -= 1
        process.slice_ended()
        self._fill_cores()

    def send(self, to: "Host", size: float, latency: float, then: Then) -> None:
        """On one host nothing waits; between two, a wire carries one thing after the other."""
        if to is self:
            then()
            return
        self.sent_bytes += size
        self.wire_free_at = max(self.wire_free_at, self.clock.now) + size / self.bytes_per_s
        self.clock.after(self.wire_free_at - self.clock.now + latency, then)


@dataclass
class Process:
    """Does its work in the order it came."""

    host: Host
    name: str
    busy_seconds: float = 0.0
    waiting_seconds: float = 0.0
    _work: "deque[tuple[float, Then]]" = field(default_factory=deque)
    _left: float = 0.0
    _then: Then | None = None

    def do(self, seconds: float, then: Then) -> None:
        self._work.append((seconds, then))
        self.waiting_seconds += seconds
        if self._then is None:
            self._begin()

    def _begin(self) -> None:
        self._left, self._then = self._work.popleft()
        self.host.ready(self)

    def next_slice(self) -> float:
        spent = min(self._left, SLICE_SECONDS)
        self._left -= spent
        self.busy_seconds += spent
        self.waiting_seconds -= spent
        return spent

    def slice_ended(self) -> None:
        if self._left > 0:
            self.host.ready(self)
            return
        assert self._then is not None
        then, self._then = self._then, None
        if self._work:
            self._begin()
        then()
