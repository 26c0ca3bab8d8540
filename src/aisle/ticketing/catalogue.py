"""Events as buyers and the booking path see them: read once from PostgreSQL, then kept for a moment.

Two grades. A process keeps an event for a second, so that a rush does not ask the database at all; the hot store keeps
its details for an hour, dropped on every change, for processes that meet it for the first time. What is sold is decided
by the scripts and the constraints, never by a copy.
"""

import asyncio
import secrets
import time
from collections.abc import Callable

import asyncpg
import msgspec

from aisle.errors import Problem
from aisle.scripts import load_script
from aisle.store import Store
from aisle.ticketing import store
from aisle.ticketing.event import Subhall
from aisle.ticketing.pool import Pool

FRESH_SECONDS = 1.0
STORE_CACHE_MS = 3_600_000
# Longer than a read of the database can take.
CHANGED_MS = 60_000
EVENTS_KEPT_MAX = 10_000
EVENT_ID_MAX = 2**63 - 1
# No JSON begins like this.
CHANGED = b"changed "


class Listing(msgspec.Struct, frozen=True):
    """An event with its hall and its pools."""

    event: store.Event
    sections: tuple[store.Section, ...]
    halls: tuple[Subhall, ...]
    pools: tuple[Pool, ...] = ()


KEEP_COPY = load_script("aisle.ticketing", "keep_copy")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Listing).decode


class Catalogue:
    def __init__(
        self, database: asyncpg.Pool, hot_store: Store, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._hot_store = hot_store
        self._clock = clock
        self._kept: dict[int, tuple[float, Listing]] = {}
        self._loading: dict[int, asyncio.Task[Listing]] = {}

    async def find(self, event_id: int) -> Listing:
        """Raises 404 for an event that does not exist."""
        check_event_id(event_id)
        kept = self._kept.get(event_id)
        if kept is not None and self._clock() < kept[0]:
            return kept[1]
        loading = self._loading.get(event_id)
        if loading is None:
            # One look for all who ask at the same moment: in a rush that is everybody, once a second.
            loading = self._loading[event_id] = asyncio.create_task(self._load(event_id))
        return await asyncio.shield(loading)

    async def _load(self, event_id: int) -> Listing:
        try:
            found = await self._hot_store.call("GET", self._key(event_id)) or b""
            listing = _copied(found) or await self._from_database(event_id, found)
            # What was read before a change is answered to those who asked before it, and not kept.
            if self._loading.get(event_id) is asyncio.current_task():
                if len(self._kept) >= EVENTS_KEPT_MAX:
                    self._kept.clear()
                self._kept[event_id] = (self._clock() + FRESH_SECONDS, listing)
            return listing
        finally:
            if self._loading.get(event_id) is asyncio.current_task():
                del self._loading[event_id]

    async def changed(self, event_id: int) -> None:
        """Forget the copies of an event that was changed."""
        self._kept.pop(event_id, None)
        self._loading.pop(event_id, None)
        # A mark in the place of the copy: somebody who looked before the change, and so may have read the database
        # before it, finds something else than then and does not put what it said here.
        await self._hot_store.call("SET", self._key(event_id), CHANGED + secrets.token_bytes(8), "PX", CHANGED_MS)

    async def _from_database(self, event_id: int, found: bytes) -> Listing:
        listing = await self._listing_of(event_id)
        await self._hot_store.run(KEEP_COPY, [self._key(event_id)], [found, _encode(listing), STORE_CACHE_MS])
        return listing

    async def _listing_of(self, event_id: int) -> Listing:
        async with self._database.acquire() as connection:
            event = await store.event_of(connection, event_id)
            if event is None:
                raise Problem(404, "not_found", "no such event")
            sections = tuple(await store.sections_of(connection, event_id))
            halls, pools = await store.halls_of(connection, event_id), await store.pools_of(connection, event_id)
        return Listing(event, sections, tuple(halls), tuple(pools))

    def _key(self, event_id: int) -> str:
        return f"{self._hot_store.prefix}event:cache:{event_id}"


def _copied(found: bytes) -> Listing | None:
    if not found or found.startswith(CHANGED):
        return None
    try:
        return _decode(found)
    except msgspec.MsgspecError:
        return None  # written by another version; the database has it


def check_event_id(event_id: int) -> None:
    """A number that the database could not even hold is no event."""
    if not 0 < event_id <= EVENT_ID_MAX:
        raise Problem(404, "not_found", "no such event")
