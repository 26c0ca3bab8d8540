"""Events as buyers and the booking path see them: read once from PostgreSQL, then kept for a moment.

Two grades. A process keeps an event for a second, so that a rush does not ask the database at all; the hot store keeps
its details for an hour, dropped on every change, for processes that meet it for the first time. What is sold is decided
by the scripts and the constraints, never by a copy.
"""

import time
from collections.abc import Callable

import asyncpg
import msgspec

from aisle.errors import Problem
from aisle.store import Store
from aisle.ticketing import store
from aisle.ticketing.event import Subhall
from aisle.ticketing.pool import Pool

FRESH_SECONDS = 1.0
STORE_CACHE_MS = 3_600_000
EVENTS_KEPT_MAX = 10_000
EVENT_ID_MAX = 2**63 - 1


class Listing(msgspec.Struct, frozen=True):
    """An event with its hall and its pools."""

    event: store.Event
    sections: tuple[store.Section, ...]
    halls: tuple[Subhall, ...]
    pools: tuple[Pool, ...] = ()


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

    async def find(self, event_id: int) -> Listing:
        """Raises 404 for an event that does not exist."""
        check_event_id(event_id)
        kept = self._kept.get(event_id)
        if kept is not None and self._clock() < kept[0]:
            return kept[1]
        listing = await self._from_store(event_id) or await self._from_database(event_id)
        if len(self._kept) >= EVENTS_KEPT_MAX:
            self._kept.clear()
        self._kept[event_id] = (self._clock() + FRESH_SECONDS, listing)
        return listing

    async def changed(self, event_id: int) -> None:
        """Forget the copies of an event that was changed."""
        self._kept.pop(event_id, None)
        await self._hot_store.call("DEL", self._key(event_id))

    async def _from_store(self, event_id: int) -> Listing | None:
        packed = await self._hot_store.call("GET", self._key(event_id))
        if packed is None:
            return None
        try:
            return _decode(packed)
        except msgspec.MsgspecError:
            return None  # written by another version; the database has it

    async def _from_database(self, event_id: int) -> Listing:
        async with self._database.acquire() as connection:
            event = await store.event_of(connection, event_id)
            if event is None:
                raise Problem(404, "not_found", "no such event")
            sections = tuple(await store.sections_of(connection, event_id))
            halls, pools = await store.halls_of(connection, event_id), await store.pools_of(connection, event_id)
            listing = Listing(event, sections, tuple(halls), tuple(pools))
        await self._hot_store.call("SET", self._key(event_id), _encode(listing), "PX", STORE_CACHE_MS)
        return listing

    def _key(self, event_id: int) -> str:
        return f"{self._hot_store.prefix}event:cache:{event_id}"


def check_event_id(event_id: int) -> None:
    """A number that the database could not even hold is no event."""
    if not 0 < event_id <= EVENT_ID_MAX:
        raise Problem(404, "not_found", "no such event")
