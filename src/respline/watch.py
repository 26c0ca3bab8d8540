"""Decides when a silent server has been silent for too long. Pure: no clock and no timer; `Connection` ticks it.

Counting ticks costs nothing per command. It also means that a process which was stalled, and therefore runs a single
tick when it wakes, does not take its own sleep for a silent server.
"""

import math
from collections import deque
from enum import StrEnum

# A time-out is noticed at most an eighth late.
_TICKS_PER_TIMEOUT = 8


class Verdict(StrEnum):
    FINE = "fine"
    PROBE = "probe"
    OVERDUE = "the oldest command got no reply in time"
    SILENT = "no answer to a health check"


class Watch:
    def __init__(self, timeout: float | None, health_check_interval: float | None, patience: float) -> None:
        """`timeout` bounds the age of the oldest command, `patience` that of a probe sent after a silence."""
        periods = [period for period in (timeout, health_check_interval) if period is not None]
        self.seconds_per_tick = min(periods) / _TICKS_PER_TIMEOUT if periods else None
        tick = self.seconds_per_tick or math.inf
        self._timeout_ticks = math.ceil(timeout / tick) if timeout is not None else None
        self._health_ticks = math.ceil(health_check_interval / tick) if health_check_interval is not None else math.inf
        self._dead_ticks = self._health_ticks + max(1, math.ceil(patience / tick))
        self._accepted_then: deque[int] = deque()
        self._silent_ticks = 0
        self._probing = False

    def tick(self, accepted: int, answered: int, heard: bool) -> Verdict:
        """`accepted` and `answered` count the commands of the connection; `heard`: bytes came since the last tick."""
        if self._timeout_ticks is not None:
            self._accepted_then.append(accepted)
            if len(self._accepted_then) > self._timeout_ticks and self._accepted_then.popleft() > answered:
                return Verdict.OVERDUE
        if heard:
            self._silent_ticks, self._probing = 0, False
            return Verdict.FINE
        self._silent_ticks += 1
        if self._probing:
            return Verdict.SILENT if self._silent_ticks >= self._dead_ticks else Verdict.FINE
        # While a command is in flight its own time-out counts; on a line for blocking reads silence is normal then.
        if self._silent_ticks >= self._health_ticks and accepted == answered:
            self._probing = True
            return Verdict.PROBE
        return Verdict.FINE
