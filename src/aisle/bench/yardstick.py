"""How long the usual design takes for the same rush on the same PostgreSQL, in the same run: `yardstick_app.py`."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from urllib.parse import urlsplit

import asyncpg
import msgspec

from aisle.bench.load import Result
from aisle.bench.rush import Wanted
from aisle.embedded.server import free_port
from aisle.errors import StartupError

START_SECONDS_MAX = 30.0
WORKERS = 2
# Connections of each worker, all opened before it serves.
POOL = 10
DATABASE = "yardstick"

POOLED = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"

SCHEMA = """
    create table tickets (
        event_id bigint, section text, subsection int, seat int, row_no int, seat_no int, price bigint,
        status text not null default 'AVAILABLE', booking_id uuid, updated_at timestamptz,
        primary key (event_id, section, subsection, seat)
    );
    create table bookings (
        id uuid primary key, event_id bigint, section text, subsection int, quantity int, seats text[], total bigint,
        status text not null, created_at timestamptz not null default now()
    );
"""
HALL = """
    insert into tickets (event_id, section, subsection, seat, row_no, seat_no, price)
    select 1, section, subsection, row_no * $4 + seat_no, row_no + 1, seat_no + 1, 3000
    from unnest($1::text[]) section, generate_series(1, $2) subsection,
         generate_series(0, $3 - 1) row_no, generate_series(0, $4 - 1) seat_no
"""


class Booked(msgspec.Struct):
    """What an answer says of seats; a refusal says nothing."""

    seats: list[str] = []


# Sends requests to a port and returns the answers.
Send = Callable[[int, list[bytes]], Awaitable[Result]]


async def seconds_of_the_usual_design(
    database_url: str, sections: Sequence[str], shape: tuple[int, int, int], deck: Sequence[Wanted], send: Send
) -> float | None:
    """None where FastAPI is not installed. `shape` is subsections a section, rows, seats a row."""
    if find_spec("fastapi") is None:
        return None
    url = urlsplit(database_url)._replace(path=f"/{DATABASE}").geturl()
    await _prepare(database_url, url, sections, shape)
    async with _serving(url) as port:
        answers = await send(port, [_request(wanted) for wanted in deck])
    connection = await asyncpg.connect(url)
    try:
        reserved = await connection.fetchval("select count(*) from tickets where status = 'RESERVED'")
    finally:
        await connection.close()
    if reserved != sum(len(msgspec.json.decode(body, type=Booked).seats) for body in answers.bodies):
        raise StartupError(f"the yardstick is broken: {reserved} seats for {answers.statuses}")
    return answers.seconds


async def _prepare(database_url: str, url: str, sections: Sequence[str], shape: tuple[int, int, int]) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(f"drop database if exists {DATABASE}")
        await connection.execute(f"create database {DATABASE}")
    finally:
        await connection.close()
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(SCHEMA)
        await connection.execute(HALL, list(sections), *shape)
        await connection.execute("analyze")
    finally:
        await connection.close()


@asynccontextmanager
async def _serving(url: str) -> AsyncIterator[int]:
    port = free_port()
    options = ["--port", str(port), "--workers", str(WORKERS), "--no-access-log", "--log-level", "error"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "aisle.bench.yardstick_app:app", *options),
        env={"YARDSTICK_DATABASE": url, "YARDSTICK_POOL": str(POOL)},
    )
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            await _until_all_workers_serve(url, port)
        yield port
    finally:
        process.terminate()
        await process.wait()


async def _until_all_workers_serve(url: str, port: int) -> None:
    """The supervisor of the workers listens before they do; a worker serves when its pool of connections is full."""
    connection = await asyncpg.connect(url)
    try:
        while await connection.fetchval(POOLED) < WORKERS * POOL:  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.05)
    finally:
        await connection.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /openapi.json HTTP/1.1\r\nhost: yardstick\r\nconnection: close\r\n\r\n")
    await reader.read()
    writer.close()


def _request(wanted: Wanted) -> bytes:
    body = b'{"event_id":1,"section":"%s","subsection":%d,"quantity":%d}'
    body = body % (wanted.section.encode(), wanted.subsection, wanted.party)
    head = f"POST /book HTTP/1.1\r\nhost: yardstick\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body
