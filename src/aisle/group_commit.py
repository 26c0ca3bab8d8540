"""Many callers, one transaction: what has queued up while the last batch was being written goes into the next one.

Alone, a caller waits for nobody; under load the batch grows by itself and hundreds share a commit. A commit costs
the same for one row and for a hundred, so this is worth twenty times one transaction a request. Whoever would have to
wait too long, by how fast the last batches went, is told so at once: a queue that is not written in time helps nobody.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from aisle.errors import Overloaded

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class GroupCommit(Generic[Item, Answer]):
    """`write` takes a list of items and returns as many answers; it is never called twice at the same time by one lane.

    Items with the same `apart` key never share a batch: one statement cannot touch the same row twice. An item that
    would have to wait longer than `wait_s_max` is refused when it comes, and one that did, when its turn comes.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        apart: Callable[[Item], Hashable],
        batch_max: int,
        queue_max: int,
        lanes: int = 1,
        wait_s_max: float = math.inf,
    ) -> None:
        self._write = write
        self._apart = apart
        self._batch_max = batch_max
        self._queue_max = queue_max
        self._wait_s_max = wait_s_max
        # How long a batch took lately.
        self._batch_s = 0.0
        self._queue: deque[tuple[Item, asyncio.Future[Answer], float]] = deque()
        self._idle_lanes = lanes
        self._writers: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item) -> Answer:
        if self.is_full():
            raise Overloaded
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append((item, future, time.monotonic()))
        if self._idle_lanes:
            self._idle_lanes -= 1
            writer = asyncio.create_task(self._write_until_empty())
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)
        return await future

    def is_full(self) -> bool:
        """Whether the next one would be refused. One batch may always wait: it goes with the next commit."""
        waiting = len(self._queue)
        if waiting < self._batch_max:
            return False
        return waiting >= self._queue_max or (waiting // self._batch_max + 1) * self._batch_s > self._wait_s_max

    async def drain(self) -> None:
        """Wait until everything submitted has been written."""
        while self._writers:
            await asyncio.wait(self._writers)

    async def _write_until_empty(self) -> None:
        try:
            while self._queue:
                began = time.monotonic()
                batch = self._next_batch(began - self._wait_s_max)
                if batch:
                    await self._write_batch(batch)
                    self._batch_s += (time.monotonic() - began - self._batch_s) / 2
        finally:
            self._idle_lanes += 1

    def _next_batch(self, not_before: float) -> list[tuple[Item, asyncio.Future[Answer]]]:
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        waiting: list[tuple[Item, asyncio.Future[Answer], float]] = []
        seen: set[Hashable] = set()
        while self._queue and len(batch) < self._batch_max:
            item, future, came_at = self._queue.popleft()
            apart = self._apart(item)
            if came_at < not_before:
                if not future.done():
                    future.set_exception(Overloaded())
            elif apart in seen:
                waiting.append((item, future, came_at))
            else:
                seen.add(apart)
                batch.append((item, future))
        self._queue.extendleft(reversed(waiting))
        return batch

    async def _write_batch(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._write([item for item, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)
