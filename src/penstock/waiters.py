"""Long polls: fetches that wait for records, woken by appends.

A fetch waits on all its partitions at once and says how many bytes it still wants; appends count them down, so a
consumer with a large fetch.min.bytes is not woken for every batch. Nothing here touches the store.
"""

import asyncio
from collections.abc import Iterable

Key = tuple[bytes, int]  # topic id, partition


class Waiter:
    __slots__ = ("missing", "woken")

    def __init__(self, missing: int, woken: "asyncio.Future[None]") -> None:
        self.missing = missing
        self.woken = woken

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class Waiters:
    def __init__(self) -> None:
        self._waiting: dict[Key, set[Waiter]] = {}
        self.closed = False

    async def wait(self, keys: Iterable[Key], missing_bytes: int, timeout_s: float) -> None:
        """Until that many bytes arrived on these partitions, something else changed there, or time is up."""
        if self.closed:
            return
        loop = asyncio.get_running_loop()
        waiter = Waiter(missing_bytes, loop.create_future())
        timer = loop.call_later(timeout_s, waiter.wake)
        keys = set(keys)
        for key in keys:
            self._waiting.setdefault(key, set()).add(waiter)
        try:
            await waiter.woken
        finally:  # also when the client went away and the task is cancelled
            timer.cancel()
            for key in keys:
                waiting = self._waiting[key]
                waiting.discard(waiter)
                if not waiting:
                    del self._waiting[key]

    def appended(self, key: Key, size: int) -> None:
        for waiter in self._waiting.get(key, ()):
            waiter.missing -= size
            if waiter.missing <= 0:
                waiter.wake()

    def changed(self, key: Key) -> None:
        """Somebody should look again, whatever they wait for."""
        for waiter in self._waiting.get(key, ()):
            waiter.wake()

    def waited_on(self) -> list[Key]:
        return list(self._waiting)

    def release_all(self) -> None:
        """The broker stops: nobody waits any more."""
        self.closed = True
        for waiting in self._waiting.values():
            for waiter in waiting:
                waiter.wake()
