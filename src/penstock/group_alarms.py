"""One timer for all groups: a heap of (time, group), and one call of the loop at the earliest of them.

Heartbeats never touch it: they move a deadline in the member, and the group finds out when its alarm rings.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from penstock.group_state import NEVER


class Alarms:
    def __init__(self, clock_ms: Callable[[], int], ring: Callable[[str], None]) -> None:
        self._clock_ms = clock_ms
        self._ring = ring
        self._at: dict[str, int] = {}  # group -> when; an entry of the heap that says otherwise is out of date
        self._heap: list[tuple[int, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER

    def set(self, name: str, when: int) -> None:
        """Ring for this group at `when`, or earlier if an earlier time was set."""
        if when >= self._at.get(name, NEVER):
            return
        self._at[name] = when
        heappush(self._heap, (when, name))
        self._arm()

    def forget(self, name: str) -> None:
        self._at.pop(name, None)

    def close(self) -> None:
        self._at.clear()
        self._heap.clear()
        if self._timer:
            self._timer.cancel()

    def _arm(self) -> None:
        when = self._heap[0][0]
        if when >= self._timer_at:
            return
        if self._timer:
            self._timer.cancel()
        delay_s = max(when - self._clock_ms(), 1) / 1000
        self._timer_at = when
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._rings)

    def _rings(self) -> None:
        self._timer, self._timer_at = None, NEVER
        now = self._clock_ms()
        while self._heap and self._heap[0][0] <= now:
            when, name = heappop(self._heap)
            if self._at.get(name) == when:
                del self._at[name]
                self._ring(name)
        if self._heap:
            self._arm()
