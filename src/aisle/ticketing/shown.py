"""What an event shows to everybody who looks: read for each while few ask, read for all at once in a crowd.

Whoever asks alone sees what the store holds now. Where more than a few ask within a moment, what was read last is kept
for that moment, so that any number of people cost the store ten reads a second. Nobody is promised a seat by it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

MOMENT_SECONDS = 0.1
FEW = 10
EVENTS_KEPT_MAX = 10_000


class Shown:
    """`read` makes the answer of an event; it raises what the one who asks shall hear."""

    def __init__(self, read: Callable[[int], Awaitable[bytes]], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._moments: dict[int, _Moment] = {}

    async def answer(self, event: int) -> bytes:
        moment, now = self._moments.get(event), self._clock()
        if moment is None or now >= moment.until:
            if len(self._moments) >= EVENTS_KEPT_MAX:
                self._moments.clear()
            crowded = moment is not None and moment.asked > FEW and now < moment.until + MOMENT_SECONDS
            moment = self._moments[event] = _Moment(now + MOMENT_SECONDS, crowded)
        moment.asked += 1
        if not moment.crowded and moment.asked <= FEW:
            return await self._read(event)
        if moment.reading is None:
            moment.reading = asyncio.ensure_future(self._read(event))
        # One who goes away does not take the answer from the others.
        return await asyncio.shield(moment.reading)


class _Moment:
    __slots__ = ("asked", "crowded", "reading", "until")

    def __init__(self, until: float, crowded: bool) -> None:
        self.until = until
        self.crowded = crowded
        self.asked = 0
        self.reading: asyncio.Future[bytes] | None = None
