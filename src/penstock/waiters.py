"""Long polls: fetches that wait for records, woken by appends.

A connection watches the partitions of its fetches. The watch outlives the fetch, because an idle consumer asks the
same again and again: as long as nothing changed, its next fetch costs a future and a timer and looks at no partition.
A fetch says how many bytes it still wants and appends count them down, so a consumer with a large fetch.min.bytes is
not woken for every batch. Such a fetch need not even have a task that waits: it can be parked, and those whose time
is up in the same fiftieth of a second are answered together, from one timer. Nothing here touches the store.
"""

import asyncio
from collections.abc import Callable, Iterable

Key = tuple[bytes, int]  # topic id, partition
TICKS_PER_S = 50


class Watch:
    """Some partitions, and whether anything happened there since `changed` was last set to False."""

    __slots__ = ("_back", "_missing", "_waiters", "_woken", "changed", "keys", "tick")

    def __init__(self, waiters: "Waiters", keys: frozenset[Key]) -> None:
        self.keys = keys
        self.changed = False
        self._waiters = waiters
        self._missing = 0
        self._woken: asyncio.Future[None] | None = None
        self._back: Callable[[], None] | None = None
        self.tick = 0  # when a parked fetch is due

    async def wait(self, missing_bytes: int, timeout_s: float) -> None:
        """Until that many bytes arrived, something else changed, or time is up."""
        if self.changed or self._waiters.closed:
            return
        loop = asyncio.get_running_loop()
        self._missing = missing_bytes
        self._woken = loop.create_future()
        timer = loop.call_later(timeout_s, self.wake)
        try:
            await self._woken
        finally:
            timer.cancel()
            self._woken = None

    def park(self, missing_bytes: int, timeout_s: float, back: Callable[[], None]) -> None:
        """As `wait`, but `back` is called, at most a tick early. Not while something waits or is parked here."""
        self._missing = missing_bytes
        self._back = back
        self._waiters.call_at_tick(self, timeout_s)

    def unpark(self) -> None:
        """Whoever is parked is not called any more."""
        self._back = None

    def wake(self) -> None:
        if self._back:
            back, self._back = self._back, None
            back()
        if self._woken and not self._woken.done():
            self._woken.set_result(None)

    def count_down(self, size: int) -> None:
        self.changed = True
        self._missing -= size
        if self._missing <= 0:
            self.wake()


class Waiters:
    def __init__(self) -> None:
        self._watches: dict[Key, set[Watch]] = {}
        self._due: dict[int, list[Watch]] = {}  # tick -> who is parked until then
        self.closed = False

    def watch(self, keys: Iterable[Key]) -> Watch:
        """Must be given to `unwatch` in the end."""
        watch = Watch(self, frozenset(keys))
        for key in watch.keys:
            self._watches.setdefault(key, set()).add(watch)
        return watch

    def call_at_tick(self, watch: Watch, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        watch.tick = tick = int((loop.time() + timeout_s) * TICKS_PER_S)
        due = self._due.get(tick)
        if due is None:
            due = self._due[tick] = []
            loop.call_at(tick / TICKS_PER_S, self._ring, tick)
        due.append(watch)

    def _ring(self, tick: int) -> None:
        for watch in self._due.pop(tick):
            if watch.tick == tick:  # else it was woken before, and is parked again
                watch.wake()

    def unwatch(self, watch: Watch) -> None:
        watch.unpark()
        for key in watch.keys:
            watches = self._watches[key]
            watches.discard(watch)
            if not watches:
                del self._watches[key]

    def appended(self, key: Key, size: int) -> None:
        for watch in self._watches.get(key, ()):
            watch.count_down(size)

    def changed(self, key: Key) -> None:
        """Somebody should look again, whatever they wait for."""
        for watch in self._watches.get(key, ()):
            watch.changed = True
            watch.wake()

    def watched(self) -> list[Key]:
        return list(self._watches)

    def release_all(self) -> None:
        """The broker stops: nobody waits any more."""
        self.closed = True
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()
