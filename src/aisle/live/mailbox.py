"""What waits for one browser, bounded. Whoever has news drops it in and goes on; the browser's stream takes it out.

A browser that does not keep up loses what waits for it and starts anew from a snapshot: it never sees a gap, it never
slows anybody down, and it never costs more memory than a full box. Messages are shared bytes.

    filling -- offer --> filling -- one too many --> lost -- its stream takes --> asks for a fresh start
       ^                                                                                |
       +--------------------------------- start_anew -----------------------------------+
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from aisle.live import sse


class Message(NamedTuple):
    data: bytes
    version: int  # what the browser has seen once it has this
    made_at: float


class Mailbox:
    __slots__ = (
        "_asked",
        "_capacity",
        "_queue",
        "_start_again",
        "_waiter",
        "ended",
        "last_words",
        "lost",
        "number",
        "seen",
    )

    def __init__(self, capacity: int, number: int = 0) -> None:
        self.number = number
        self.seen = -1
        self.lost = False
        self.ended = False
        self.last_words = b""
        self._capacity = capacity
        self._queue: deque[Message] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._asked = False
        self._start_again: Callable[[], None] | None = None

    def when_lost(self, start_again: Callable[[], None]) -> None:
        """Called once each time the browser reads again after it has lost messages; `start_anew` must follow."""
        self._start_again = start_again

    def offer(self, message: Message) -> bool:
        """False if it does not fit, and with it everything that waited is dropped."""
        if self.lost or message.version <= self.seen:
            return True  # the fresh start will contain it, or already has
        if len(self._queue) >= self._capacity:
            self._queue.clear()
            self.lost = True
            return False
        self._queue.append(message)
        self.seen = message.version
        self._wake()
        return True

    def start_anew(self, message: Message) -> None:
        """Whatever waits is replaced by a message that stands for itself."""
        self._queue.clear()
        self._queue.append(message)
        self.seen = message.version
        self.lost = self._asked = False
        self._wake()

    def beat(self, now: float) -> None:
        """A sign of life, if nothing else is on its way."""
        if not self._queue and not self.lost:
            self._queue.append(Message(sse.HEARTBEAT, self.seen, now))
            self._wake()

    def end(self, last_words: bytes = b"") -> None:
        """The stream ends after what waits has gone out."""
        self.ended = True
        self.last_words = last_words
        self._wake()

    async def take(self) -> list[Message]:
        """Everything that waits, as soon as something does. Empty: the stream is over."""
        while not self._queue and not self.ended:
            if self.lost and not self._asked and self._start_again is not None:
                self._asked = True
                self._start_again()
            else:
                await self._wait()
        taken = list(self._queue)
        self._queue.clear()
        return taken

    async def filled(self) -> None:
        """Wait until there is something to begin with."""
        while not self._queue and not self.ended:
            await self._wait()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
