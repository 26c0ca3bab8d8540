"""The gate before every claim: shut while the store may not be the one that was last verified.

    generation   hash   installation -> id of the row in PostgreSQL     run:<run id> -> verified at, ms

    the hash is missing          unmarked    a new store, or one that was flushed
    another installation         foreign     somebody else's store: the process must not start
    a run is not in it           restarted   the server was started again, or a replica took over
    else                         verified

A run is a server's process and its term as primary: a replica that takes over begins a new one, also where it had been
the primary before. Every greeting of a connection names the run, so a restart is seen before the first claim can be
sent to the new one. The hash itself is read again after every reconnect, and now and then. What the gate cannot see:
one node of a cluster that was flushed, or that takes over while a claim is being redirected to it. A flushed subsection
has no configuration, so claims there are refused anyway; what the other gives away, PostgreSQL refuses.
"""

import asyncio
import time
from collections.abc import Callable
from enum import StrEnum

import respline
from aisle.errors import StartupError, StoreUnverified
from aisle.reservation.keys import generation
from aisle.scripts import load_script
from aisle.store import Store

ADMIT = load_script("aisle.reservation", "admit")

RUNS_REMEMBERED_MAX = 64
RECHECK_SECONDS = 1.0
TERM_CHARS = 12

Connected = tuple[tuple[str, int], ...]


class Standing(StrEnum):
    UNCHECKED = "unchecked"
    VERIFIED = "verified"
    UNMARKED = "unmarked"
    FOREIGN = "foreign"
    RESTARTED = "restarted"


class Gate:
    """One a process. `installation` is the id that PostgreSQL holds; the store must carry the same."""

    def __init__(self, store: Store, installation: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.standing = Standing.UNCHECKED
        self._store = store
        self._installation = installation
        self._clock = clock
        self._seen: Connected = ()
        self._seen_at = float("-inf")
        self._checking = asyncio.Lock()

    async def is_open(self) -> bool:
        """True if claims may be sent now. Costs a round trip after a reconnect and once a second, else nothing."""
        if self._is_stale():
            async with self._checking:
                if self._is_stale():
                    await self.check()
        # A connection made while we were looking has not been looked at.
        return self.standing is Standing.VERIFIED and self._seen == self.connected()

    async def require_open(self) -> None:
        if not await self.is_open():
            raise StoreUnverified(self.standing)

    async def check(self) -> Standing:
        """Look again whether the servers we are connected to are the verified ones."""
        connected, at = self.connected(), self._clock()
        flat = await self._store.call("HGETALL", generation(self._store.prefix))
        found = {
            name.decode(errors="backslashreplace"): value for name, value in zip(flat[::2], flat[1::2], strict=True)
        }
        self.standing = self._judge(found, connected)
        self._seen, self._seen_at = connected, at
        return self.standing

    async def require_ours(self) -> Standing:
        """For the start of a process: like `check`, but another installation's store ends it."""
        if await self.check() is Standing.FOREIGN:
            raise StartupError("store: it belongs to another installation; set AISLE_STORE_PREFIX or another store")
        return self.standing

    def connected(self) -> Connected:
        """The run of each server and how often we came back to it: changes whenever a connection is made anew."""
        return tuple((_run(node), node.counters.reconnects) for node in self._store.nodes)

    async def admit(self, verified: Connected, *, fresh: bool = False) -> Standing:
        """Let claims through after a clean verification of what was `connected()` when it began.

        `fresh` marks an unmarked store as ours: only who knows from PostgreSQL that there is nothing to rebuild, or has
        rebuilt it, may say so. A server that came back meanwhile was not verified, and nothing is admitted.
        """
        runs = sorted({run for run, _ in verified})
        if verified == self.connected() and runs:
            args: list[str | int] = [self._installation, int(fresh), RUNS_REMEMBERED_MAX, *runs]
            await self._store.run(ADMIT, (generation(self._store.prefix),), args)
        return await self.check()

    def _is_stale(self) -> bool:
        return self._clock() - self._seen_at >= RECHECK_SECONDS or self._seen != self.connected()

    def _judge(self, found: dict[str, bytes], connected: Connected) -> Standing:
        owner = found.get("installation")
        if owner is None:
            return Standing.UNMARKED
        if owner.decode(errors="backslashreplace") != self._installation:
            return Standing.FOREIGN
        is_verified = bool(connected) and all(f"run:{run}" in found for run, _ in connected)
        return Standing.VERIFIED if is_verified else Standing.RESTARTED


def _run(node: respline.Line) -> str:
    """A server that does not tell its run id is known by its process, which also changes when it is started again.

    The replication id changes when a replica takes over. Two servers that take turns keep their processes: without it,
    one that was verified in its first term would pass in its second, whatever it missed in between.
    """
    info = node.server_info
    process = info.get("run_id") or f"pid-{info.get('process_id', 'unknown')}"
    term = info.get("master_replid", "")
    return f"{process}.{term[:TERM_CHARS]}" if term else process
