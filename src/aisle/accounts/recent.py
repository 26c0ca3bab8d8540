"""Whom this process has recognised a moment ago, so that a burst of requests asks the store or the database once.

An entry lives two seconds at most: that is how long another process may still accept what was ended elsewhere. What
was ended here leaves a mark instead, and an answer that was already on its way when it ended cannot bring it back.
"""

from typing import NamedTuple

from aisle.accounts.account import Actor

LIFE_SECONDS_MAX = 2.0
ENTRIES_MAX = 20_000

# Longer than any read of the store or the database may take (their time-outs), so the mark outlives it.
ENDED_SECONDS = 30.0


class Entry(NamedTuple):
    actor: Actor | None  # None: ended here
    until: float


class RecentActors:
    """Digest of a session or token -> actor. Bounded; the oldest entry makes room."""

    def __init__(self, *, life_s: float = LIFE_SECONDS_MAX, entries_max: int = ENTRIES_MAX) -> None:
        self._life_s = min(life_s, LIFE_SECONDS_MAX)
        self._entries_max = entries_max
        self._entries: dict[bytes, Entry] = {}

    def get(self, digest: bytes, now: float) -> Entry | None:
        entry = self._entries.get(digest)
        # A clock that was set back must not prolong anything.
        if entry is None or not 0 < entry.until - now <= ENDED_SECONDS:
            return None
        return entry

    def remember(self, digest: bytes, actor: Actor, now: float) -> bool:
        """False if it was ended here meanwhile; then nothing is remembered."""
        entry = self.get(digest, now)
        if entry is not None and entry.actor is None:
            return False
        self._put(digest, Entry(actor, now + self._life_s))
        return True

    def end(self, digest: bytes, now: float) -> None:
        self._put(digest, Entry(None, now + ENDED_SECONDS))

    def __len__(self) -> int:
        return len(self._entries)

    def _put(self, digest: bytes, entry: Entry) -> None:
        self._entries.pop(digest, None)
        self._entries[digest] = entry
        if len(self._entries) > self._entries_max:
            del self._entries[next(iter(self._entries))]
