"""Many callers, one transaction: what has queued up while the last batch was being written goes into the next one.

Alone, a caller waits for nobody; under load the batch grows by itself and hundreds share a commit. A commit costs
the same for one row and for a hundred, so this is worth twenty times one transaction a request.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from aisle.errors import Problem

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Overloaded(Problem):
    def __init__(self) -> None:
        super().__init__(503, "overloaded", "too many requests are waiting; try again shortly", retry_after_s=1)


class GroupCommit(Generic[Item, Answer]):
    """`write` takes a list of items and returns as many answers; it is never called twice at the same time by one lane.

    Items with the same `apart` key never share a batch: one statement cannot touch the same row twice.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        apart: Callable[[Item], Hashable],
        batch_max: int,
        queue_max: int,
        lanes: int = 1,
    ) -> None:
        self._write = write
        self._apart = apart
        self._batch_max = batch_max
        self._queue_max = queue_max
        self._queue: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._idle_lanes = lanes
        self._writers: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item) -> Answer:
        if len(self._queue) >= self._queue_max:
            raise Overloaded
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append((item, future))
        if self._idle_lanes:
            self._idle_lanes -= 1
            writer = asyncio.create_task(self._write_until_empty())
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)
        return await future

    async def drain(self) -> None:
        """Wait until everything submitted has been written."""
        while self._writers:
            await asyncio.wait(self._writers)

    async def _write_until_empty(self) -> None:
        try:
            while self._queue:
                await self._write_batch(self._next_batch())
        finally:
            self._idle_lanes += 1

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Answer]]]:
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        seen: set[Hashable] = set()
        while self._queue and len(batch) < self._batch_max:
            item, future = self._queue.popleft()
            apart = self._apart(item)
            if apart in seen:
                waiting.append((item, future))
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
