"""Looks at every part, at most every two seconds whoever asks; a part that does not answer is part of the report."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TypeVar

import asyncpg

from aisle import __version__
from aisle.audit import Row, latest
from aisle.errors import AisleError
from aisle.ops import store
from aisle.ops.report import Buried, DatabaseView, Part, Report, StoreView, alarms

FRESH_SECONDS = 2.0
PATIENCE_SECONDS = 5.0
DEAD_LETTERS_FRESH_SECONDS = 15.0

Seen = TypeVar("Seen")


class OpsDesk:
    def __init__(
        self,
        database: asyncpg.Pool,
        look_at_store: Callable[[], Awaitable[StoreView]],
        breaker: Callable[[], str],
        count_dead_letters: Callable[[], Mapping[str, int]],
        clock: Callable[[], datetime],
        *,
        dead_letters_fresh_s: float = DEAD_LETTERS_FRESH_SECONDS,
    ) -> None:
        """`count_dead_letters` blocks; it is run beside the loop."""
        self._dead_letters_fresh_s = dead_letters_fresh_s
        self._database = database
        self._look_at_store = look_at_store
        self._breaker = breaker
        self._count_dead_letters = count_dead_letters
        self._clock = clock
        self._report: Report | None = None
        self._looked_at = float("-inf")
        self._buried: list[Buried] = []
        self._buried_at = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def report(self) -> Report:
        async with self._one_at_a_time:
            if self._report is None or time.monotonic() - self._looked_at >= FRESH_SECONDS:
                self._report = await self._look()
                self._looked_at = time.monotonic()
            return self._report

    async def deeds(self, *, before: int | None, limit: int) -> list[Row]:
        async with self._database.acquire(timeout=PATIENCE_SECONDS) as connection:
            return await latest(connection, before=before, limit=limit)

    async def _look(self) -> Report:
        (database, in_database), (hot, in_store), (buried, in_log) = await asyncio.gather(
            _asked("database", self._read_database()),
            _asked("store", self._look_at_store()),
            _asked("log", self._dead_letters()),
        )
        parts, breaker = [database, hot, buried], self._breaker()
        return Report(
            at=self._clock(),
            version=__version__,
            breaker=breaker,
            parts=parts,
            alarms=alarms(parts, breaker, in_store, in_database, in_log),
            store=in_store,
            database=in_database,
            dead_letters=in_log,
        )

    async def _read_database(self) -> DatabaseView:
        async with self._database.acquire(timeout=PATIENCE_SECONDS) as connection:
            return await store.look(connection, self._clock())

    async def _dead_letters(self) -> list[Buried]:
        """Asked less often than the rest: it takes a consumer of its own for every lane that has some."""
        if time.monotonic() - self._buried_at >= self._dead_letters_fresh_s:
            found = await asyncio.to_thread(self._count_dead_letters)
            self._buried = [Buried(lane, waiting) for lane, waiting in sorted(found.items())]
            self._buried_at = time.monotonic()
        return self._buried


async def _asked(name: str, look: Awaitable[Seen]) -> tuple[Part, Seen | None]:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return Part(name, True, ""), await look
    except TimeoutError:
        return Part(name, False, f"no answer within {PATIENCE_SECONDS:g} s"), None
    except (AisleError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return Part(name, False, str(error) or type(error).__name__), None
