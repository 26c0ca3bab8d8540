"""Tokens of programs: made once, shown once, kept as a digest in PostgreSQL, listed and revoked by their account.

Checked like a session: what this process has just verified, the signature, then the database. Another process accepts
a revoked token for two seconds at most.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from aisle.accounts.account import Actor
from aisle.accounts.recent import RecentActors
from aisle.accounts.store import TOKENS_PER_ACCOUNT_MAX, AccountsStore, Token
from aisle.accounts.tokens import Kind, Signer
from aisle.errors import Problem
from aisle.group_commit import GroupCommit
from aisle.ids import new_id
from aisle.limits import BEARER_BATCH_MAX, BEARER_QUEUE_MAX


class NewToken(NamedTuple):
    token: Token
    text: str


class BearerTokens:
    def __init__(self, accounts: AccountsStore, signer: Signer, *, clock: Callable[[], float]) -> None:
        self._accounts = accounts
        self._signer = signer
        self._clock = clock
        self.recent = RecentActors()
        # Those who come back in the same moment are looked up together.
        self._looking: GroupCommit[bytes, Actor | None] = GroupCommit(
            self._look, apart=lambda _: object(), batch_max=BEARER_BATCH_MAX, queue_max=BEARER_QUEUE_MAX
        )

    async def issue(self, account_id: UUID, name: str, days: int) -> NewToken:
        now = self._now()
        expires_at = now + timedelta(days=days)
        issued = self._signer.issue(Kind.BEARER, int(expires_at.timestamp() * 1000))
        token = Token(new_id(now), name, now, expires_at)
        if not await self._accounts.insert_token(token, account_id, issued.reference.digest):
            raise Problem(409, "too_many_tokens", f"an account has at most {TOKENS_PER_ACCOUNT_MAX} tokens; revoke one")
        return NewToken(token, issued.text)

    async def find(self, text: bytes) -> Actor | None:
        now = self._clock()
        known = self.recent.get(text, now)
        if known is not None:
            return known
        reference = self._signer.verify(Kind.BEARER, text, int(now * 1000))
        if reference is None or self.recent.has_ended(reference.digest, now):
            return None
        actor = await self._looking.submit(reference.digest)
        if actor is None or not self.recent.remember(text, reference, actor, now):
            return None
        return actor

    async def _look(self, digests: Sequence[bytes]) -> list[Actor | None]:
        found = await self._accounts.find_bearers(digests, self._now())
        return [found.get(digest) for digest in digests]

    async def unrevoked(self, token_ids: Collection[UUID]) -> set[UUID]:
        """Those of the tokens that still count."""
        return await self._accounts.live_tokens(list(token_ids), self._now()) if token_ids else set()

    async def live(self, account_id: UUID) -> list[Token]:
        return await self._accounts.list_tokens(account_id, self._now())

    async def revoke(self, account_id: UUID, token_id: UUID) -> bool:
        """False if this account has no such token."""
        digest = await self._accounts.delete_token(account_id, token_id)
        if digest is None:
            return False
        self.recent.end(digest, self._clock())
        return True

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)
