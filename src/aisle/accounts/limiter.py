"""How often somebody may try: token buckets in the store, shared by all processes, on the store's clock.

Fails closed: without the store there is no log-in and no registration, because a guesser would wait for that moment.
Subjects are hashed into the key, so no address or e-mail lies in the store and none can forge a key.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from aisle.errors import Problem, StoreUnavailable
from aisle.scripts import load_script
from aisle.store import Store

_BUCKET = load_script("aisle.accounts", "bucket")


class Attempt(NamedTuple):
    """`scope` names the rule, `subject` whom it counts; `per_minute` is the size of the bucket and its refill."""

    scope: str
    subject: str
    per_minute: int


class Limiter:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def allow(self, attempts: Sequence[Attempt]) -> None:
        """Take a token from each bucket in one round trip; raise 429 if one of them is empty."""
        calls = [([self._key(a)], [a.per_minute, round(60_000 / a.per_minute, 3)]) for a in attempts]
        waits = await self._store.run_many(_BUCKET, calls)
        for wait in waits:
            if isinstance(wait, BaseException):
                raise StoreUnavailable("the store cannot count attempts") from wait
        longest_ms = max(waits)
        if longest_ms > 0:
            seconds = -(-longest_ms // 1000)
            raise Problem(
                429, "too_many_requests", f"too many attempts; try again in {seconds} s", retry_after_s=seconds
            )

    def per_minute(self, scope: str, per_minute: int) -> Callable[[UUID], Awaitable[None]]:
        """A rule about one account at a time."""

        async def allow(account: UUID) -> None:
            await self.allow([Attempt(scope, str(account), per_minute)])

        return allow

    def _key(self, attempt: Attempt) -> str:
        subject = hashlib.sha256(attempt.subject.encode()).hexdigest()[:32]
        return f"{self._store.prefix}bucket:{attempt.scope}:{subject}"
