"""Who watches their own bookings, and the one listener that hears of changes for all of them.

Whoever moves a booking says so with NOTIFY in the transaction that moves it (`booking/store.py`), so a change that
is heard has happened and one that was rolled back is not heard. What the booking is now is read from the table.

One reader, one query at a time, delivers in the order it reads: a buyer never sees a booking go back. When the
listening connection was lost, everybody starts anew from what the table says; there is no gap.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import structlog

from aisle.errors import Problem, StartupError
from aisle.ids import as_id
from aisle.limits import (
    LIVE_CHANGES_MAX,
    LIVE_FIRST_ANSWER_SECONDS_MAX,
    LIVE_LISTEN_PING_SECONDS,
    LIVE_READ_BUYERS_MAX,
    LIVE_RECONNECT_SECONDS_MAX,
)
from aisle.live import sse
from aisle.live.mailbox import Mailbox, Message
from aisle.metrics import Metrics

CHANNEL = "bookings"

_DATABASE_ERRORS = (Problem, StartupError, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)

log = structlog.get_logger()


class Owned(NamedTuple):
    """A booking as its buyer may see it: anything that becomes JSON."""

    buyer: UUID
    booking: Any


@dataclass(frozen=True, slots=True)
class Bookings:
    """What is read, given by the composition root."""

    # A connection of our own, outside the pool.
    connect: Callable[[], Awaitable[asyncpg.Connection]]
    # These bookings as they are now.
    changed: Callable[[Sequence[UUID]], Awaitable[Sequence[Owned]]]
    # The bookings of these buyers that are live or ended a moment ago, newest first.
    current: Callable[[Sequence[UUID]], Awaitable[Sequence[Owned]]]


class BookingWatch:
    def __init__(self, bookings: Bookings, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._bookings = bookings
        self._metrics = metrics
        self._clock = clock
        self._watchers: dict[UUID, set[Mailbox]] = {}
        self._changed: dict[UUID, UUID] = {}  # booking -> buyer
        self._starting: dict[Mailbox, tuple[UUID, str]] = {}  # -> buyer, why it starts anew
        self._wake = asyncio.Event()
        # Above what an earlier process may have given: a browser takes its last id along.
        self._ids = itertools.count(time.time_ns() // 1000)

    async def join(self, mailbox: Mailbox, buyer: UUID, last_id: str | None) -> None:
        """Put the buyer's bookings into the mailbox; all later changes follow by themselves."""
        self._watchers.setdefault(buyer, set()).add(mailbox)
        mailbox.when_lost(lambda: self._start(mailbox, buyer, "slow"))
        self._start(mailbox, buyer, "resume_unsupported" if last_id is not None else "")
        try:
            async with asyncio.timeout(LIVE_FIRST_ANSWER_SECONDS_MAX):
                await mailbox.filled()
        except TimeoutError:
            raise Problem(503, "database_unavailable", "bookings cannot be read now", retry_after_s=1) from None

    def leave(self, mailbox: Mailbox, buyer: UUID) -> None:
        self._starting.pop(mailbox, None)
        watchers = self._watchers.get(buyer, set())
        watchers.discard(mailbox)
        if not watchers:
            self._watchers.pop(buyer, None)

    async def listen_for_ever(self) -> None:
        for tries in itertools.count():
            try:
                await self._listen()
            except _DATABASE_ERRORS as error:
                log.warning("bookings_not_heard", reason=str(error) or type(error).__name__)
            await asyncio.sleep(min(0.05 * 2 ** min(tries, 10), LIVE_RECONNECT_SECONDS_MAX))

    async def read_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            changed, self._changed = self._changed, {}
            starting, self._starting = self._starting, {}
            try:
                await self._deliver(changed)
                await self._deliver_starts(starting)
            except _DATABASE_ERRORS as error:
                log.warning("bookings_not_read", reason=str(error) or type(error).__name__)
                self._changed = {**changed, **self._changed}
                self._starting = {**starting, **self._starting}
                await asyncio.sleep(LIVE_RECONNECT_SECONDS_MAX / 4)
                self._wake.set()

    async def _listen(self) -> None:
        connection = await self._bookings.connect()
        gone = asyncio.Event()
        connection.add_termination_listener(lambda _: gone.set())
        try:
            await connection.execute("set application_name = 'aisle live'")
            await connection.add_listener(CHANNEL, self._heard)
            # What happened while nobody listened was not heard.
            self._start_all("connection_lost")
            while not gone.is_set():
                # A connection that died without a word is found out by asking.
                await connection.execute("select 1", timeout=LIVE_LISTEN_PING_SECONDS)
                try:
                    await asyncio.wait_for(gone.wait(), LIVE_LISTEN_PING_SECONDS)
                except TimeoutError:
                    continue
        finally:
            connection.terminate()

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        for pair in payload.split(","):
            buyer, _, booking = pair.partition(":")
            owner = as_id(buyer)
            if owner in self._watchers:
                self._changed[as_id(booking)] = owner
        if len(self._changed) > LIVE_CHANGES_MAX:
            self._changed.clear()
            self._start_all("too_many_changes")
        if self._changed:
            self._wake.set()

    def _start_all(self, reason: str) -> None:
        for buyer, watchers in self._watchers.items():
            for mailbox in watchers:
                # One that waits for its first snapshot gets it without being told that it missed something.
                self._starting.setdefault(mailbox, (buyer, reason))
        if self._starting:
            self._wake.set()

    def _start(self, mailbox: Mailbox, buyer: UUID, reason: str) -> None:
        self._starting[mailbox] = (buyer, reason)
        self._wake.set()

    async def _deliver(self, changed: dict[UUID, UUID]) -> None:
        if not changed:
            return
        told: dict[UUID, list[bytes]] = {}
        number = 0
        for buyer, booking in await self._bookings.changed(list(changed)):
            number = next(self._ids)
            told.setdefault(buyer, []).append(sse.event("booking", booking, number))
        made_at = self._clock()
        for buyer, events in told.items():
            message = Message(b"".join(events), number, made_at)
            for mailbox in self._watchers.get(buyer, ()):
                self._metrics.sse_events_total.labels("booking").inc(len(events))
                if not mailbox.offer(message):
                    self._metrics.sse_dropped_total.labels("slow").inc()

    async def _deliver_starts(self, starting: dict[Mailbox, tuple[UUID, str]]) -> None:
        buyers = list({buyer for buyer, _ in starting.values()})
        for n in range(0, len(buyers), LIVE_READ_BUYERS_MAX):
            part = buyers[n : n + LIVE_READ_BUYERS_MAX]
            snapshots: dict[UUID, list[Any]] = {buyer: [] for buyer in part}
            for buyer, booking in await self._bookings.current(part):
                snapshots[buyer].append(booking)
            for mailbox, (buyer, reason) in starting.items():
                if buyer in snapshots:
                    self._restart(mailbox, snapshots[buyer], reason)

    def _restart(self, mailbox: Mailbox, bookings: list[Any], reason: str) -> None:
        number = next(self._ids)
        data = sse.event("snapshot", {"bookings": bookings}, number)
        self._metrics.sse_events_total.labels("snapshot").inc()
        if reason:
            data = sse.reset(reason) + data
            self._metrics.sse_events_total.labels("reset").inc()
        mailbox.start_anew(Message(data, number, self._clock()))
