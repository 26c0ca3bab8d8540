"""Who watches which event, and the one reader that looks at the hot store for all of them.

Four times a second the versions of every watched subsection are read in one round trip, then the seats of those that
changed. Truth is polled, so whatever moved a seat shows, and nothing can be missed. An event that nobody watches is
not read; what is known of it stays for a while, so that a browser that lost its connection can resume.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import structlog

from aisle.errors import Problem, StoreScriptFailed
from aisle.limits import (
    LIVE_BROADCAST_SLICE,
    LIVE_EVENTS_MAX,
    LIVE_POLL_SECONDS,
    LIVE_READ_PLACES_MAX,
    LIVE_RECENT_BYTES_MAX,
    LIVE_RECENT_UPDATES_MAX,
)
from aisle.live import sse
from aisle.live.fold import TAGS, Body, Fold, Update
from aisle.live.hall import BadMap, SeatMap, Subsection
from aisle.live.mailbox import Mailbox, Message
from aisle.metrics import Metrics

# A watched event is read by the poll; a newcomer reads it only if the poll seems to be stuck.
POLL_STUCK_SECONDS = 4 * LIVE_POLL_SECONDS

RESUMED = b": resumed\n\n"

Found = TypeVar("Found")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Upstream:
    """What is read, given by the composition root."""

    # Raises 404 if there is no such event, or none that the public may see.
    check_public: Callable[[int], Awaitable[None]]
    # The subsections of an event, best first.
    subsections: Callable[[int], Awaitable[Sequence[Subsection]]]
    # None where the store knows no such subsection.
    versions: Callable[[Sequence[Subsection]], Awaitable[Sequence[int | None]]]
    maps: Callable[[Sequence[Subsection]], Awaitable[Sequence[SeatMap | None]]]


class Wish(NamedTuple):
    """What a browser wants to watch, and the last message it has."""

    event: int
    section: str | None = None  # None: all of it
    with_seats: bool = False
    last_id: str | None = None


@dataclass(slots=True)
class Channel:
    fold: Fold
    read_at: float
    # By section; None is the whole event.
    watchers: dict[str | None, set[Mailbox]] = field(default_factory=dict)


class SeatWatch:
    def __init__(self, upstream: Upstream, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._upstream = upstream
        self._metrics = metrics
        self._clock = clock
        self._channels: dict[int, Channel] = {}
        # Two readers could apply what they read in the wrong order.
        self._one_reader = asyncio.Lock()

    async def hall(self, event: int) -> Body:
        """Every seat of an event, at most a poll's interval old."""
        return (await self._fresh(event)).fold.hall()

    async def join(self, mailbox: Mailbox, wish: Wish) -> None:
        """Put into the mailbox what the browser starts from; all later changes follow by themselves."""
        channel = await self._fresh(wish.event)
        fold = channel.fold
        if not fold.subsections(wish.section):
            raise Problem(404, "unknown_section", f"there is no section {wish.section!r}")
        # From here to the end nothing is awaited: no change can fall between the snapshot and the first delta.
        missed = fold.after(wish.last_id, wish.section) if wish.last_id is not None else None
        if missed is None:
            self._start(mailbox, channel.fold, wish, reset="unknown_id" if wish.last_id is not None else "")
        else:
            data = RESUMED + b"".join(update.data for update in missed)
            mailbox.start_anew(Message(data, fold.version, self._clock()))
        mailbox.when_lost(lambda: self._start(mailbox, fold, wish, reset="slow"))
        channel.watchers.setdefault(wish.section, set()).add(mailbox)

    def leave(self, mailbox: Mailbox, wish: Wish) -> None:
        channel = self._channels.get(wish.event)
        watchers = channel.watchers.get(wish.section, set()) if channel is not None else set()
        watchers.discard(mailbox)
        if channel is not None and not watchers:
            channel.watchers.pop(wish.section, None)

    async def poll_for_ever(self) -> None:
        while True:
            started = self._clock()
            watched = [channel for channel in self._channels.values() if channel.watchers]
            try:
                if watched:
                    async with self._one_reader:
                        await self._refresh(watched)
            except (Problem, StoreScriptFailed) as error:
                log.warning("seats_not_read", reason=str(error))
            took = self._clock() - started
            # However much there is to tell, others get their turn as well.
            await asyncio.sleep(max(LIVE_POLL_SECONDS - took, min(LIVE_POLL_SECONDS, took)))

    def _start(self, mailbox: Mailbox, fold: Fold, wish: Wish, *, reset: str) -> None:
        data = fold.snapshot(wish.section, with_seats=wish.with_seats)
        self._metrics.sse_events_total.labels("snapshot").inc()
        if reset:
            data = sse.reset(reset) + data
            self._metrics.sse_events_total.labels("reset").inc()
        mailbox.start_anew(Message(data, fold.version, self._clock()))

    async def _fresh(self, event: int) -> Channel:
        """The event as the store had it a moment ago. Any number of callers cause one read."""
        await self._upstream.check_public(event)
        channel = self._channels.get(event)
        if channel is not None and self._is_fresh(channel):
            return channel
        async with self._one_reader:
            channel = self._channels.get(event)
            if channel is None:
                channel = await self._load(event)
            elif not self._is_fresh(channel):
                await self._refresh([channel])
        return channel

    def _is_fresh(self, channel: Channel) -> bool:
        return self._clock() - channel.read_at < (POLL_STUCK_SECONDS if channel.watchers else LIVE_POLL_SECONDS)

    async def _load(self, event: int) -> Channel:
        self._make_room()
        found = await self._read(self._upstream.maps, await self._upstream.subsections(event))
        if None in found.values() or not found:
            raise Problem(503, "seats_unknown", "the seats of this event are not in the store now", retry_after_s=1)
        known = {subsection: seats for subsection, seats in found.items() if seats is not None}
        fold = Fold(
            event,
            known,
            tag=secrets.randbelow(TAGS),
            updates_max=LIVE_RECENT_UPDATES_MAX,
            bytes_max=LIVE_RECENT_BYTES_MAX,
        )
        channel = self._channels[event] = Channel(fold, self._clock())
        return channel

    def _make_room(self) -> None:
        if len(self._channels) < LIVE_EVENTS_MAX:
            return
        idle = next((event for event, channel in self._channels.items() if not channel.watchers), None)
        if idle is None:
            raise Problem(503, "too_many_streams", "too many events are being watched", retry_after_s=5)
        del self._channels[idle]

    async def _refresh(self, channels: Sequence[Channel]) -> None:
        everything = [subsection for channel in channels for subsection in channel.fold.subsections()]
        versions = {s: v for s, v in (await self._read(self._upstream.versions, everything)).items() if v is not None}
        stale = []
        for channel in channels:
            mine = channel.fold.subsections()
            stale += channel.fold.stale({s: versions[s] for s in mine if s in versions})
        found = {s: m for s, m in (await self._read(self._upstream.maps, stale)).items() if m is not None}
        for channel in channels:
            channel.read_at = self._clock()
            try:
                updates = channel.fold.apply({s: found[s] for s in channel.fold.subsections() if s in found})
            except BadMap as error:
                log.error("seat_map_unusable", event_id=channel.fold.event, reason=str(error))
                continue
            await self._tell(channel, updates)

    async def _read(
        self, read: Callable[[Sequence[Subsection]], Awaitable[Sequence[Found]]], subsections: Sequence[Subsection]
    ) -> dict[Subsection, Found]:
        found: dict[Subsection, Found] = {}
        for n in range(0, len(subsections), LIVE_READ_PLACES_MAX):
            part = subsections[n : n + LIVE_READ_PLACES_MAX]
            found.update(zip(part, await read(part), strict=True))
        return found

    async def _tell(self, channel: Channel, updates: Sequence[Update]) -> None:
        made_at = self._clock()
        for section, watchers in list(channel.watchers.items()):
            mine = [update for update in updates if section is None or update.section == section]
            if not mine:
                continue
            message = Message(b"".join(update.data for update in mine), mine[-1].version, made_at)
            told = list(watchers)
            for n in range(0, len(told), LIVE_BROADCAST_SLICE):
                for mailbox in told[n : n + LIVE_BROADCAST_SLICE]:
                    if not mailbox.offer(message):
                        self._metrics.sse_dropped_total.labels("slow").inc()
                await asyncio.sleep(0)  # requests that came meanwhile are answered between the slices
            self._metrics.sse_events_total.labels("delta").inc(len(mine) * len(told))
