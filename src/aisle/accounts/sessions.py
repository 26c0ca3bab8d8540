"""Sessions of browsers, kept in the hot store so that the server can end them.

    session:<sha256 of the reference>   string, TTL = idle time-out     {"account_id": ..., "role": ...}
    account_sessions:<account id>       zset, digest -> absolute end    what "log out everywhere" ends
    sessions_ended                      channel, digests ended: for whoever keeps a connection open

A text this process verified within the last two seconds is known; of any other the signature is checked, which needs
no I/O, and then the store is asked. A store that does not answer is a 503: nobody is let in because we could not look.
Another process accepts an ended session for two seconds at most.
"""

from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

import msgspec

from aisle.accounts.account import Actor, Role
from aisle.accounts.recent import LIFE_SECONDS_MAX, RecentActors
from aisle.accounts.tokens import Kind, Signer
from aisle.errors import StoreUnavailable
from aisle.store import Command, Store

SESSIONS_PER_ACCOUNT_MAX = 50


class Session(msgspec.Struct, frozen=True):
    account_id: UUID
    role: Role


_decode = msgspec.json.Decoder(Session).decode


class Sessions:
    def __init__(
        self, store: Store, signer: Signer, *, idle_s: float, lifetime_s: float, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._signer = signer
        self._idle_ms = int(idle_s * 1000)
        self._lifetime_ms = int(lifetime_s * 1000)
        self._clock = clock
        # With a short idle time-out two seconds would be a part of it worth counting.
        self.recent = RecentActors(life_s=min(LIFE_SECONDS_MAX, idle_s / 10))

    async def open(self, account_id: UUID, role: Role) -> str:
        """A new session under a new reference; returns what goes into the cookie."""
        now_ms = int(self._clock() * 1000)
        issued = self._signer.issue(Kind.SESSION, now_ms + self._lifetime_ms)
        digest = issued.reference.digest
        # Indexed first: a session that exists but is not in the index would survive "log out everywhere".
        await self._index(account_id, digest, now_ms)
        life_ms = min(self._idle_ms, self._lifetime_ms)
        await self._send(
            [("SET", self._key(digest), msgspec.json.encode(Session(account_id, role)), "PX", max(1, life_ms))]
        )
        return issued.text

    async def find(self, text: bytes) -> Actor | None:
        """Who this is, or None. Being seen starts the idle time anew, up to the absolute end."""
        now = self._clock()
        known = self.recent.get(text, now)
        if known is not None:
            return known
        now_ms = int(now * 1000)
        reference = self._signer.verify(Kind.SESSION, text, now_ms)
        if reference is None or self.recent.has_ended(reference.digest, now):
            return None
        key = self._key(reference.digest)
        life_ms = min(self._idle_ms, reference.expires_at_ms - now_ms)
        found, _ = await self._send([("GET", key), ("PEXPIRE", key, max(1, life_ms))])
        if found is None:
            return None
        session = _decode(found)
        actor = Actor(session.account_id, session.role, session=reference.digest)
        return actor if self.recent.remember(text, reference, actor, now) else None

    async def still_open(self, digests: Collection[bytes]) -> set[bytes]:
        """Those of the sessions that have not ended. Looking is not use: their idle time goes on."""
        if not digests:
            return set()
        asked = list(digests)
        found = await self._send([("EXISTS", self._key(digest)) for digest in asked])
        return {digest for digest, exists in zip(asked, found, strict=True) if exists}

    async def end(self, actor: Actor) -> None:
        assert actor.session is not None, "a program's token is no session"
        await self._end(actor.account_id, [actor.session])

    async def end_all(self, account_id: UUID) -> int:
        """Log out everywhere; returns how many sessions ended."""
        [digests] = await self._send([("ZRANGEBYSCORE", self._index_key(account_id), "-inf", "+inf")])
        await self._end(account_id, digests)
        return len(digests)

    async def _end(self, account_id: UUID, digests: list[bytes]) -> None:
        if not digests:
            return
        now = self._clock()
        for digest in digests:
            self.recent.end(digest, now)
        channel = f"{self._store.prefix}sessions_ended"
        await self._send([("DEL", self._key(digest)) for digest in digests])
        # Only what is certainly gone leaves the index: a failure above keeps it there for the next try.
        await self._send(
            [
                ("ZREM", self._index_key(account_id), *digests),
                *(("PUBLISH", channel, digest.hex()) for digest in digests),
            ]
        )

    async def _index(self, account_id: UUID, digest: bytes, now_ms: int) -> None:
        key = self._index_key(account_id)
        _, _, expired, live = await self._send(
            [
                ("ZADD", key, now_ms + self._lifetime_ms, digest),
                ("PEXPIRE", key, self._lifetime_ms),
                ("ZRANGEBYSCORE", key, "-inf", now_ms),
                ("ZRANGEBYSCORE", key, now_ms + 1, "+inf"),
            ]
        )
        # The oldest sessions give way, so that an account's share of the store has a limit.
        surplus = live[:-SESSIONS_PER_ACCOUNT_MAX]
        await self._end(account_id, [*expired, *surplus])

    async def _send(self, commands: list[Command]) -> list[Any]:
        replies = await self._store.call_many(commands)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise StoreUnavailable("the store refuses sessions") from reply
        return replies

    def _key(self, digest: bytes) -> str:
        return f"{self._store.prefix}session:{digest.hex()}"

    def _index_key(self, account_id: UUID) -> str:
        return f"{self._store.prefix}account_sessions:{account_id}"
