"""Bring the schema up to date: numbered SQL files, each applied once, in order, in a transaction of its own.

Any number of processes may run this at the same moment; a session advisory lock lets them through one by one. A file
that changed after it was applied stops the run: the schema is what its history says, or nobody knows what it is.
"""

import hashlib
import re
from importlib.resources import files
from typing import NamedTuple

import asyncpg

from aisle.config import Config
from aisle.db import connect, require_version
from aisle.errors import StartupError
from aisle.limits import MIGRATION_LOCK_SECONDS_MAX

LOCK = 0x41_49_53_4C_45  # "AISLE"

CREATE_HISTORY = """
    create table if not exists public.aisle_migrations (
        name text primary key,
        checksum text not null,
        applied_at timestamptz not null default now()
    )
"""


class Migration(NamedTuple):
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def shipped_migrations() -> list[Migration]:
    folder = files("aisle") / "migrations"
    found = [Migration(f.name, f.read_text()) for f in folder.iterdir() if re.fullmatch(r"\d{4}_\w+\.sql", f.name)]
    return sorted(found)


async def migrate(config: Config, migrations: list[Migration] | None = None) -> list[str]:
    """Apply what is missing and return the names applied now."""
    connection = await connect(config)
    try:
        await require_version(connection)
        await _lock(connection)
        return await _apply_missing(connection, shipped_migrations() if migrations is None else migrations)
    finally:
        await connection.close()  # ends the database session, and the lock with it


async def pending_migrations(connection: asyncpg.Connection) -> list[str]:
    """Names of shipped migrations this database has not seen."""
    if not await connection.fetchval("select to_regclass('public.aisle_migrations')"):
        return [m.name for m in shipped_migrations()]
    applied = {row["name"] for row in await connection.fetch("select name from public.aisle_migrations")}
    return [m.name for m in shipped_migrations() if m.name not in applied]


async def _lock(connection: asyncpg.Connection) -> None:
    await connection.execute(f"set lock_timeout = '{MIGRATION_LOCK_SECONDS_MAX}s'")
    try:
        await connection.execute("select pg_advisory_lock($1)", LOCK)
    except asyncpg.LockNotAvailableError:
        raise StartupError(f"another process has been migrating for {MIGRATION_LOCK_SECONDS_MAX} s") from None


async def _apply_missing(connection: asyncpg.Connection, migrations: list[Migration]) -> list[str]:
    await connection.execute(CREATE_HISTORY)
    history = {
        r["name"]: r["checksum"] for r in await connection.fetch("select name, checksum from public.aisle_migrations")
    }
    applied = []
    for migration in migrations:
        if migration.name in history:
            if history[migration.name] != migration.checksum:
                raise StartupError(f"migration {migration.name} was changed after it had been applied")
            continue
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute(
                "insert into public.aisle_migrations (name, checksum) values ($1, $2)",
                migration.name,
                migration.checksum,
            )
        applied.append(migration.name)
    return applied
