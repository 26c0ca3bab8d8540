"""A change that is made once, however often it is asked for under the same Idempotency-Key.

The key is claimed and the answer kept in the transaction that makes the change. A twin that comes meanwhile waits at
the key's row; a crash takes the key back together with the change. A refusal changes nothing and is not kept, so the
same request may succeed later. Answers are kept for a week, and never one that holds a secret (decision 0008).
"""

import hashlib
from datetime import datetime, timedelta
from typing import Annotated, TypeVar
from uuid import UUID

import asyncpg
import msgspec
from litestar.params import HeaderParameter

from aisle.errors import Problem

KEPT = timedelta(days=7)
FORGET_ROWS_MAX = 5_000

Key = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=8,
        max_length=64,
        pattern="^[A-Za-z0-9_-]+$",
        required=False,
        description="Makes a repeat harmless: the same key with the same request is the same change and answer.",
    ),
]

CLAIM = """
    insert into public.answers (account, key, digest, asked_at) values ($1, $2, $3, $4)
    on conflict (account, key) do nothing returning 1
"""

Answer = TypeVar("Answer")


class Asked(msgspec.Struct, frozen=True):
    """One request under its key; without a key nothing is remembered."""

    account: UUID
    key: str | None
    digest: bytes


def asked(account: UUID, key: str | None, route: str, body: object = None) -> Asked:
    digest = hashlib.blake2b(msgspec.json.encode((route, body)), digest_size=16).digest()
    return Asked(account, key, digest)


async def recall(connection: asyncpg.Connection, request: Asked, kind: type[Answer], *, now: datetime) -> Answer | None:
    """The answer of an earlier request with this key, or None: then the caller makes the change and calls `remember`.

    All in the caller's transaction.
    """
    if request.key is None:
        return None
    row = None
    while row is None:  # again only if the earlier answer was forgotten between the two statements
        if await connection.fetchval(CLAIM, request.account, request.key, request.digest, now):
            return None
        row = await connection.fetchrow(
            "select digest, answer from public.answers where account = $1 and key = $2", request.account, request.key
        )
    if bytes(row["digest"]) != request.digest:
        raise Problem(422, "key_reused", "this Idempotency-Key was used for another request")
    return msgspec.json.decode(row["answer"], type=kind)


async def remember(connection: asyncpg.Connection, request: Asked, answer: object) -> None:
    if request.key is not None:
        await connection.execute(
            "update public.answers set answer = $3 where account = $1 and key = $2",
            request.account,
            request.key,
            msgspec.json.encode(answer),
        )


async def forget_old_answers(database: asyncpg.Pool, *, now: datetime) -> None:
    await database.execute(
        """delete from public.answers where (account, key) in (
               select account, key from public.answers where asked_at < $1 order by asked_at limit $2)""",
        now - KEPT,
        FORGET_ROWS_MAX,
    )
