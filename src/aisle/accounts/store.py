"""Accounts, tokens and signing keys in PostgreSQL: every SQL statement of this slice.

A database that does not answer is a 503 for the caller; nobody is ever taken for somebody because we could not look.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from aisle.accounts.account import Account, Actor, Role
from aisle.accounts.tokens import SigningKey, new_signing_key
from aisle.audit import Deed, note
from aisle.errors import Problem

CONNECTION_WAIT_SECONDS = 5.0
TOKENS_PER_ACCOUNT_MAX = 50

# While two processes hold different sets of keys, a key only one of them knows must not sign yet: a new one waits a
# minute, twice as long as the others need to hear of it. The very first one has nobody to wait for.
LOAD_KEYS = """
    select id, secret from accounts.signing_keys, lateral (select created_at > now() - interval '1 minute' as young) y
    order by young, case when young then created_at end, created_at desc
"""

# The row of the account is locked first, so that two requests cannot both find room for the last token.
LOCK_ACCOUNT = "select 1 from accounts.accounts where id = $1 for update"
INSERT_BEARER = """
    insert into accounts.tokens (id, account_id, name, digest, created_at, expires_at)
    select $1, $2, $3, $4, $5, $6
    where (select count(*) from accounts.tokens where account_id = $2 and expires_at > $5) < $7
    returning id
"""


class Login(NamedTuple):
    account: Account
    password_hash: str


class Token(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    created_at: datetime
    expires_at: datetime


class AccountsStore:
    def __init__(self, database: asyncpg.Pool) -> None:
        self._database = database

    async def insert(self, account: Account, password_hash: str, *, by: UUID | None = None) -> bool:
        """False if the e-mail is taken: the constraint decides, not a look beforehand."""
        async with self._connection() as connection, connection.transaction():
            inserted = await connection.fetchval(
                """insert into accounts.accounts (id, email, role, password_hash, created_at)
                   values ($1, $2, $3, $4, $5) on conflict (email) do nothing returning true""",
                account.id, account.email, account.role.value, password_hash, account.created_at,
            )  # fmt: skip
            if inserted:
                detail = {"role": account.role}
                await note(connection, Deed.ACCOUNT_CREATED, actor=by, subject=account.id, detail=detail)
        return bool(inserted)

    async def find_login(self, email: str) -> Login | None:
        async with self._connection() as connection:
            row = await connection.fetchrow("select * from accounts.accounts where email = $1", email)
        return Login(_account(row), row["password_hash"]) if row else None

    async def find(self, account_id: UUID) -> Account | None:
        async with self._connection() as connection:
            row = await connection.fetchrow("select * from accounts.accounts where id = $1", account_id)
        return _account(row) if row else None

    async def replace_hash(self, account_id: UUID, old: str, new: str) -> None:
        """Only over the hash that was checked: a password changed meanwhile stays changed."""
        async with self._connection() as connection:
            await connection.execute(
                "update accounts.accounts set password_hash = $3 where id = $1 and password_hash = $2",
                account_id, old, new,
            )  # fmt: skip

    async def insert_token(self, token: Token, account_id: UUID, digest: bytes) -> bool:
        """False if the account has as many live tokens as it may have."""
        async with self._connection() as connection, connection.transaction():
            await connection.execute(LOCK_ACCOUNT, account_id)
            inserted = await connection.fetchval(
                INSERT_BEARER, token.id, account_id, token.name, digest, token.created_at, token.expires_at,
                TOKENS_PER_ACCOUNT_MAX,
            )  # fmt: skip
            await connection.execute(
                "delete from accounts.tokens where account_id = $1 and expires_at <= $2", account_id, token.created_at
            )
            if inserted is not None:
                await note(connection, Deed.TOKEN_MADE, actor=account_id, subject=token.id)
        return inserted is not None

    async def list_tokens(self, account_id: UUID, now: datetime) -> list[Token]:
        async with self._connection() as connection:
            rows = await connection.fetch(
                """select id, name, created_at, expires_at from accounts.tokens
                   where account_id = $1 and expires_at > $2 order by created_at desc, id limit $3""",
                account_id, now, TOKENS_PER_ACCOUNT_MAX,
            )  # fmt: skip
        return [Token(**row) for row in rows]

    async def delete_token(self, account_id: UUID, token_id: UUID) -> bytes | None:
        """The digest of the token that is gone now, or None if this account has no such token."""
        async with self._connection() as connection, connection.transaction():
            digest: bytes | None = await connection.fetchval(
                "delete from accounts.tokens where id = $1 and account_id = $2 returning digest", token_id, account_id
            )
            if digest is not None:
                await note(connection, Deed.TOKEN_REVOKED, actor=account_id, subject=token_id)
        return digest

    async def find_bearers(self, digests: Sequence[bytes], now: datetime) -> dict[bytes, Actor]:
        """Whose tokens these are; digests that are not a live token are missing."""
        async with self._connection() as connection:
            rows = await connection.fetch(
                """select t.digest, t.id, t.account_id, a.role
                   from accounts.tokens t join accounts.accounts a on a.id = t.account_id
                   where t.digest = any($1::bytea[]) and t.expires_at > $2""",
                digests, now,
            )  # fmt: skip
        return {row["digest"]: Actor(row["account_id"], Role(row["role"]), token_id=row["id"]) for row in rows}

    async def live_tokens(self, ids: Sequence[UUID], now: datetime) -> set[UUID]:
        """Those of the tokens that are neither revoked nor expired."""
        async with self._connection() as connection:
            rows = await connection.fetch(
                "select id from accounts.tokens where id = any($1::uuid[]) and expires_at > $2", ids, now
            )
        return {row["id"] for row in rows}

    async def note(self, what: Deed, account_id: UUID | None, **detail: str) -> None:
        """For what has no transaction of its own, because it happens in the hot store."""
        async with self._connection() as connection:
            await note(connection, what, actor=account_id, subject=account_id or "", detail=detail)

    async def signing_keys(self) -> list[SigningKey]:
        """The one to sign with first; one is made if there is none."""
        async with self._connection() as connection:
            if keys := await _load_keys(connection):
                return keys
            async with connection.transaction():
                # Processes that start together wait here for each other, so that only one of them makes the first key.
                await connection.execute("lock table accounts.signing_keys in exclusive mode")
                if not await _load_keys(connection):
                    await _add_key(connection, new_signing_key())
            return await _load_keys(connection)

    async def add_signing_key(self, key: SigningKey) -> None:
        async with self._connection() as connection:
            await _add_key(connection, key)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection]:
        try:
            async with self._database.acquire(timeout=CONNECTION_WAIT_SECONDS) as connection:
                yield connection
        except asyncpg.InterfaceError as error:
            if isinstance(error, ValueError):  # a value that does not fit its column is our bug, not an outage
                raise
            raise _unavailable() from None
        except (
            OSError,
            TimeoutError,
            asyncpg.PostgresConnectionError,
            asyncpg.OperatorInterventionError,
            asyncpg.InsufficientResourcesError,
        ):
            raise _unavailable() from None


def _account(row: Any) -> Account:
    return Account(row["id"], row["email"], Role(row["role"]), row["created_at"])


async def _load_keys(connection: asyncpg.Connection) -> list[SigningKey]:
    return [SigningKey(row["id"].encode(), row["secret"]) for row in await connection.fetch(LOAD_KEYS)]


async def _add_key(connection: asyncpg.Connection, key: SigningKey) -> None:
    await connection.execute(
        "insert into accounts.signing_keys (id, secret) values ($1, $2)", key.id.decode(), key.secret
    )


def _unavailable() -> Problem:
    return Problem(503, "database_unavailable", "the database is not answering", retry_after_s=1)
