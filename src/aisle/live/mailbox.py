"""What waits for one browser, bounded. Whoever has news drops it in and goes on; the browser's stream takes it out.

A browser that does not keep up loses what waits for it and starts anew from a snapshot: it never sees a gap, it never
slows anybody down, and it never costs more memory than a full box. Messages are shared bytes.

    filling -- offer --> filling -- one too many --> lost -- its stream takes --> asks for a fresh start
       ^                                                                                |
       +--------------------------------- start_anew -----------------------------------+

While the stream has nothing to do and the browser reads, news is written to the connection at once: to wake the stream
for it would cost more than the writing.
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


# Writes a message to the browser now; False: it does not read at the moment.
WriteNow = Callable[[Message], bool]


class Mailbox:
    __slots__ = (
        "_asked",
        "_capacity",
        "_queue",
        "_start_again",
        "_waiter",
        "_write_now",
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
        self._write_now: WriteNow | None = None

    def when_lost(self, start_again: Callable[[], None]) -> None:
        """Called once each time the browser reads again after it has lost messages; `start_anew` must follow."""
        self._start_again = start_again

    def when_idle(self, write_now: WriteNow) -> None:
        """From now on what comes while `take` waits is written past it."""
        self._write_now = write_now

    def offer(self, message: Message) -> bool:
        """False if it does not fit, and with it everything that waited is dropped."""
        if self.lost or message.version <= self.seen:
            return True  # the fresh start will contain it, or already has
        if len(self._queue) >= self._capacity:
            self._queue.clear()
            self.lost = True
            return False
        self.seen = message.version
        self._send(message)
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
            self._send(Message(sse.HEARTBEAT, self.seen, now))

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

    def _send(self, message: Message) -> None:
        idle = self._waiter is not None and not self._waiter.done() and not self._queue
        if idle and self._write_now is not None and self._write_now(message):
            return
        self._queue.append(message)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
