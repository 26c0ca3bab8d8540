"""Circuit breaker: stop asking a store that does not answer, and find out by itself when it answers again.

    CLOSED    calls pass; half of the last ten failed  ->  OPEN
    OPEN      calls are refused for a while (30 s)     ->  HALF_OPEN
    HALF_OPEN three probes pass, the rest are refused; three successes -> CLOSED, one failure -> OPEN

Pure: the clock is passed in. Only transport failures count; a refusal by a script is an answer.
"""

from collections import deque
from collections.abc import Callable
from enum import StrEnum

from aisle.limits import BREAKER_FAILURE_RATIO, BREAKER_PROBES, BREAKER_WINDOW_CALLS


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    def __init__(self, clock: Callable[[], float], open_seconds: float) -> None:
        self._clock = clock
        self._open_seconds = open_seconds
        self._outcomes: deque[bool] = deque(maxlen=BREAKER_WINDOW_CALLS)
        self._opened_at = 0.0
        self._probes_started = 0
        self._probes_succeeded = 0
        self.state = BreakerState.CLOSED

    def allows(self) -> bool:
        """May a call be made now? In HALF_OPEN a yes spends one of the probes."""
        if self.state is BreakerState.CLOSED:
            return True
        if self.state is BreakerState.OPEN:
            if self._clock() - self._opened_at < self._open_seconds:
                return False
            self.state = BreakerState.HALF_OPEN
            self._probes_started = self._probes_succeeded = 0
        if self._probes_started >= BREAKER_PROBES:
            return False
        self._probes_started += 1
        return True

    def succeeded(self) -> None:
        if self.state is BreakerState.CLOSED:
            self._outcomes.append(True)
        elif self.state is BreakerState.HALF_OPEN:
            self._probes_succeeded += 1
            if self._probes_succeeded >= BREAKER_PROBES:
                self.state = BreakerState.CLOSED
                self._outcomes.clear()

    def failed(self) -> None:
        if self.state is BreakerState.HALF_OPEN:
            self._open()
        elif self.state is BreakerState.CLOSED:
            self._outcomes.append(False)
            failures = self._outcomes.count(False)
            if len(self._outcomes) == BREAKER_WINDOW_CALLS and failures >= BREAKER_WINDOW_CALLS * BREAKER_FAILURE_RATIO:
                self._open()

    def abandoned(self) -> None:
        """The caller went away before the outcome was known. A probe is given back, or HALF_OPEN could get stuck."""
        if self.state is BreakerState.HALF_OPEN:
            self._probes_started -= 1

    def retry_after_s(self) -> int:
        if self.state is not BreakerState.OPEN:
            return 1
        return max(1, round(self._open_seconds - (self._clock() - self._opened_at)))

    def _open(self) -> None:
        self.state = BreakerState.OPEN
        self._opened_at = self._clock()
        self._outcomes.clear()
