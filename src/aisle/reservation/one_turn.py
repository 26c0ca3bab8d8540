"""Requests for the same place that arrive in one turn of the event loop share one script call, and all one round trip.

Used for holds, which come one by one over HTTP; messages come in batches already. The sweepers are told of a place
before a hold is taken there: a crash in between costs them a visit, never a buyer a seat.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from aisle.errors import StoreScriptFailed
from aisle.group_commit import GroupCommit
from aisle.limits import HOLD_BATCH_MAX, HOLD_QUEUE_MAX
from aisle.reservation.sweeper import IDLE_MS, Where, announce
from aisle.store import Store

# Sweepers strike a place off after IDLE_MS without an announcement; one well within that covers many holds.
ANNOUNCE_EVERY_SECONDS = IDLE_MS / 1000 / 4
ANNOUNCED_MAX = 100_000
LANES = 4

Spot = TypeVar("Spot", bound=Where)
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class One(NamedTuple, Generic[Spot, Asked]):
    place: Spot
    epoch: int
    id: str
    asked: Asked


class OneTurn(Generic[Spot, Asked, Answer]):
    """`ask` sends what was asked of one place in one epoch, and returns as many answers."""

    def __init__(
        self,
        store: Store,
        ask: Callable[[Spot, Sequence[Asked], int], Awaitable[list[Answer]]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._ask = ask
        self._clock = clock
        self._announced: dict[tuple[Spot, int], float] = {}
        self._connected: tuple[int, ...] = ()
        self._commit: GroupCommit[One[Spot, Asked], Answer | StoreScriptFailed] = GroupCommit(
            self._send,
            apart=lambda one: (one.place, one.id),
            batch_max=HOLD_BATCH_MAX,
            queue_max=HOLD_QUEUE_MAX,
            lanes=LANES,
        )

    async def submit(self, place: Spot, epoch: int, id: str, asked: Asked) -> Answer:
        answer = await self._commit.submit(One(place, epoch, id, asked))
        if isinstance(answer, StoreScriptFailed):
            raise answer
        return answer

    async def drain(self) -> None:
        await self._commit.drain()

    async def _send(self, batch: Sequence[One[Spot, Asked]]) -> list[Answer | StoreScriptFailed]:
        """A call a place, all in one round trip. A damaged place spoils no other."""
        by_place: dict[tuple[Spot, int], list[int]] = defaultdict(list)
        for n, one in enumerate(batch):
            by_place[one.place, one.epoch].append(n)
        await self._announce(set(by_place))
        calls = [self._ask(place, [batch[n].asked for n in ns], epoch) for (place, epoch), ns in by_place.items()]
        answers: dict[int, Answer | StoreScriptFailed] = {}
        for numbers, found in zip(by_place.values(), await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(found, BaseException) and not isinstance(found, StoreScriptFailed):
                raise found
            for i, n in enumerate(numbers):
                answers[n] = found if isinstance(found, StoreScriptFailed) else found[i]
        return [answers[n] for n in range(len(batch))]

    async def _announce(self, spots: set[tuple[Spot, int]]) -> None:
        """A store that was left and found again, or rebuilt into another epoch, may have forgotten what it was told."""
        connected, now = tuple(node.counters.reconnects for node in self._store.nodes), self._clock()
        if connected != self._connected or len(self._announced) > ANNOUNCED_MAX:
            self._announced.clear()
        due = [spot for spot in spots if self._announced.get(spot, float("-inf")) + ANNOUNCE_EVERY_SECONDS <= now]
        if due:
            await announce(self._store, [place for place, _ in due])
            self._connected = connected
            self._announced.update(dict.fromkeys(due, now))
