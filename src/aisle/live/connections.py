"""The browsers that are connected to this process: how many may be, signs of life, whether they still may, good-bye.

What they are told is decided elsewhere; nobody here waits for a browser.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import structlog

from aisle.accounts.account import Actor
from aisle.errors import Problem
from aisle.limits import (
    LIVE_DRAIN_RETRY_MS,
    LIVE_HEARTBEAT_SECONDS,
    LIVE_PER_ACCOUNT_MAX,
    LIVE_UNCHECKED_SECONDS_MAX,
)
from aisle.live import sse
from aisle.live.mailbox import Mailbox
from aisle.metrics import Metrics

# Which of these people's sessions and tokens still count.
StillValid = Callable[[Sequence[Actor]], Awaitable[list[bool]]]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Limits:
    connections_max: int
    queue_messages_max: int
    recheck_seconds: float
    per_account_max: int = LIVE_PER_ACCOUNT_MAX
    heartbeat_seconds: float = LIVE_HEARTBEAT_SECONDS


class Connections:
    def __init__(
        self, limits: Limits, metrics: Metrics, still_valid: StillValid, *, clock: Callable[[], float]
    ) -> None:
        self._limits = limits
        self._metrics = metrics
        self._still_valid = still_valid
        self._clock = clock
        self._open: set[Mailbox] = set()
        self._actors: dict[Mailbox, Actor] = {}
        self._per_account: Counter[UUID] = Counter()
        self._numbers = itertools.count()
        self._draining = False

    @contextmanager
    def admitted(self, actor: Actor | None) -> Iterator[Mailbox]:
        """A mailbox for as long as the block runs. `actor` is None where the stream tells nothing private."""
        self._refuse_surplus(actor)
        mailbox = Mailbox(self._limits.queue_messages_max, next(self._numbers))
        self._open.add(mailbox)
        if actor is not None:
            self._actors[mailbox] = actor
            self._per_account[actor.account_id] += 1
        self._metrics.sse_connections.set(len(self._open))
        try:
            yield mailbox
        finally:
            self._forget(mailbox)

    def drain(self) -> None:
        """Every stream ends, and each browser is told to come back after a wait of its own."""
        self._draining = True
        for mailbox in self._open:
            mailbox.end(sse.retry(*LIVE_DRAIN_RETRY_MS))

    async def beat_for_ever(self) -> None:
        """A slice of the browsers at a time: all of them at once would keep the process busy for a blink."""
        slices = 15
        for tick in itertools.count():
            await asyncio.sleep(self._limits.heartbeat_seconds / slices)
            now = self._clock()
            for mailbox in self._open:
                if mailbox.number % slices == tick % slices:
                    mailbox.beat(now)

    async def recheck_for_ever(self) -> None:
        """End the private streams of people who have logged out or whose token was revoked."""
        checked_at = self._clock()
        while True:
            await asyncio.sleep(self._limits.recheck_seconds)
            actors = dict(self._actors)
            try:
                valid = await self._still_valid(list(actors.values()))
            except Problem as error:
                log.warning("sessions_not_rechecked", reason=error.detail)
                # Those whom we could not look up for a minute are let in again only after we can.
                valid = [self._clock() - checked_at < LIVE_UNCHECKED_SECONDS_MAX] * len(actors)
            else:
                checked_at = self._clock()
            for mailbox, still in zip(actors, valid, strict=True):
                if not still:
                    mailbox.end()

    def _refuse_surplus(self, actor: Actor | None) -> None:
        if self._draining:
            raise Problem(503, "draining", "this process is about to end; connect again", retry_after_s=1)
        if len(self._open) >= self._limits.connections_max:
            raise Problem(503, "too_many_streams", "too many browsers are watching; try again", retry_after_s=5)
        if actor is not None and self._per_account[actor.account_id] >= self._limits.per_account_max:
            raise Problem(
                429,
                "too_many_streams",
                f"one account has at most {self._limits.per_account_max} streams at a time",
                retry_after_s=5,
            )

    def _forget(self, mailbox: Mailbox) -> None:
        self._open.discard(mailbox)
        actor = self._actors.pop(mailbox, None)
        if actor is not None:
            self._per_account[actor.account_id] -= 1
            if not self._per_account[actor.account_id]:
                del self._per_account[actor.account_id]
        self._metrics.sse_connections.set(len(self._open))
