"""Whom this process has recognised a moment ago, so that a burst of requests asks the store or the database once.

An entry is found by the whole text of a token whose signature was checked when it was put here, so a hit needs no
second check. It lives two seconds at most: that is how long another process may still accept what was ended elsewhere.
What was ended here is marked, and an answer that was already on its way when it ended cannot bring it back.
"""

from typing import Any, NamedTuple

from aisle.accounts.account import Actor
from aisle.accounts.tokens import Reference

LIFE_SECONDS_MAX = 2.0
ENTRIES_MAX = 20_000

# Longer than any read of the store or the database may take (their time-outs), so the mark outlives it.
ENDED_SECONDS = 30.0


class Entry(NamedTuple):
    actor: Actor
    digest: bytes
    until: float


class RecentActors:
    """Text of a session or token -> actor. Bounded; the oldest entry makes room."""

    def __init__(self, *, life_s: float = LIFE_SECONDS_MAX, entries_max: int = ENTRIES_MAX) -> None:
        self._life_s = min(life_s, LIFE_SECONDS_MAX)
        self._entries_max = entries_max
        self._entries: dict[bytes, Entry] = {}
        self._ended: dict[bytes, float] = {}

    def get(self, text: bytes, now: float) -> Actor | None:
        entry = self._entries.get(text)
        # A clock that was set back must not prolong anything.
        if entry is None or not 0 < entry.until - now <= LIFE_SECONDS_MAX or self.has_ended(entry.digest, now):
            return None
        return entry.actor

    def remember(self, text: bytes, reference: Reference, actor: Actor, now: float) -> bool:
        """False if it was ended here meanwhile; then nothing is remembered. `now` is when the question was asked."""
        if self.has_ended(reference.digest, now):
            return False
        until = min(now + self._life_s, reference.expires_at_ms / 1000)
        self._put(self._entries, text, Entry(actor, reference.digest, until))
        return True

    def end(self, digest: bytes, now: float) -> None:
        self._put(self._ended, digest, now + ENDED_SECONDS)

    def has_ended(self, digest: bytes, now: float) -> bool:
        return digest in self._ended and self._ended[digest] > now

    def __len__(self) -> int:
        return len(self._entries)

    def _put(self, kept: dict[bytes, Any], key: bytes, value: Any) -> None:
        kept.pop(key, None)
        kept[key] = value
        if len(kept) > self._entries_max:
            del kept[next(iter(kept))]
