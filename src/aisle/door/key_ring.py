"""The ticket keys of this installation as a process knows them: read from PostgreSQL, kept for half a minute.

The newest key signs, every key that was not revoked verifies. A code with a key id that is not known makes the ring
look again, at most once a second, so a rotation reaches the doors at once and a flood of forgeries costs no queries.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import asyncpg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from aisle.door.keys import Sealer, TicketKey, public_key
from aisle.errors import Problem

FRESH_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 1.0

LOAD = """
    select id, public, private, sealed_with, created_at, revoked_at from ticketing.ticket_keys order by created_at desc
"""
INSERT = "insert into ticketing.ticket_keys (id, public, private, sealed_with) values ($1, $2, $3, $4)"


class Pen(NamedTuple):
    """What signs."""

    key_id: str
    private: Ed25519PrivateKey


class KeyRing:
    def __init__(self, database: asyncpg.Pool, sealer: Sealer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._sealer = sealer
        self._clock = clock
        self._keys: list[TicketKey] = []
        self._public: Mapping[str, Ed25519PublicKey] = {}
        self._pen: Pen | None = None
        self._read_at = float("-inf")

    async def pen(self) -> Pen:
        """Makes the first key of an installation."""
        await self._refresh(FRESH_SECONDS)
        if not self._keys:
            async with self._database.acquire() as connection, connection.transaction():
                # Processes that need the first key together wait here for each other, and one of them makes it.
                await connection.execute("lock table ticketing.ticket_keys in exclusive mode")
                if not [key for key in await load_keys(connection) if key.revoked_at is None]:
                    await add_key(connection, self._sealer.new_key())
            await self._refresh(0)
        if self._pen is None:
            raise Problem(503, "ticket_key_sealed", "AISLE_SECRET_KEY does not open the key that signs tickets")
        return self._pen

    async def published(self) -> list[TicketKey]:
        await self._refresh(FRESH_SECONDS)
        return self._keys

    async def public_keys(self, asked: Iterable[str | None]) -> Mapping[str, Ed25519PublicKey]:
        """What verifies; looked up again if a key id is asked for that was never seen."""
        unknown = {id for id in asked if id is not None} - self._public.keys()
        await self._refresh(LOOK_AGAIN_SECONDS if unknown else FRESH_SECONDS)
        return self._public

    async def _refresh(self, age_s: float) -> None:
        if self._clock() - self._read_at < age_s:
            return
        async with self._database.acquire() as connection:
            keys = [key for key in await load_keys(connection) if key.revoked_at is None]
        self._read_at = self._clock()
        private = self._sealer.open(keys[0]) if keys else None
        self._pen = Pen(keys[0].id, private) if private is not None else None
        self._public = {key.id: public_key(key) for key in keys}
        self._keys = keys


async def load_keys(connection: asyncpg.Connection) -> list[TicketKey]:
    """Newest first, revoked ones too."""
    return [TicketKey(**row) for row in await connection.fetch(LOAD)]


async def add_key(connection: asyncpg.Connection, key: TicketKey) -> None:
    await connection.execute(INSERT, key.id, key.public, key.private, key.sealed_with)


async def revoke_key(connection: asyncpg.Connection, id: str) -> bool:
    """Nothing this key signed counts from now on. False if there is no such key that still counted."""
    done = await connection.fetchval(
        "update ticketing.ticket_keys set revoked_at = now() where id = $1 and revoked_at is null returning true", id
    )
    return bool(done)
