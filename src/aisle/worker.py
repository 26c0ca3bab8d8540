"""The loop every service's worker runs: read a batch, have its effects, publish what follows, then let it go.

At least once, by that order. A dependency that is away is waited for; the batch stays where it is. A message that
nobody can read, or that fails again and again although everything is there, is buried on the lane's dead-letter topic
with its reason, so that the partition goes on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import asyncpg
import msgspec
import structlog

from aisle.crash_points import crash_point
from aisle.db import is_away
from aisle.errors import Problem, StoreScriptFailed
from aisle.limits import WORKER_TRIES_MAX, WORKER_WAIT_SECONDS_MAX
from aisle.log import LogReader, LogUnavailable, LogWriter, Received
from aisle.messages import Message, decode

Handle = Callable[[Sequence[Message]], Awaitable[Sequence[Message]]]

# What may say that a dependency is away or busy, not that the message is bad; a Problem always does.
PERHAPS_AWAY = (Problem, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError,
                asyncpg.InternalClientError)  # fmt: skip
# What one message can cause that another would not.
POISON = (StoreScriptFailed, asyncpg.PostgresError, ValueError, LookupError, TypeError)

log = structlog.get_logger()


async def run_worker(
    name: str,
    lane: str,
    reader: LogReader,
    writer: LogWriter,
    handle: Handle,
    *,
    buried: Callable[[int], object] = lambda count: None,
) -> None:
    """For ever. A batch that is cut off by a cancellation is read again by the next owner."""
    while True:
        batch = await reader.batch()
        if batch:
            buried(await _handle_batch(name, lane, batch, writer, handle))
            crash_point(f"before_offsets_{name}")
            try:
                reader.done(batch)
            except LogUnavailable as error:
                log.warning("offsets_not_kept", worker=name, lane=lane, reason=str(error))


async def _handle_batch(name: str, lane: str, batch: Sequence[Received], writer: LogWriter, handle: Handle) -> int:
    """Returns how many of them were buried."""
    readable: list[tuple[Received, Message]] = []
    buried: list[tuple[Received, str, str]] = []
    for received in batch:
        try:
            readable.append((received, decode(received.value)))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            buried.append((received, lane, f"not readable: {error}"))
    buried += await _have_effects(name, lane, readable, writer, handle)
    if buried:
        log.error("messages_buried", worker=name, lane=lane, count=len(buried), first_reason=buried[0][2])
        await _patiently(name, lambda: writer.bury(buried))
    return len(buried)


async def _have_effects(
    name: str, lane: str, readable: Sequence[tuple[Received, Message]], writer: LogWriter, handle: Handle
) -> list[tuple[Received, str, str]]:
    """All together; if a message spoils the batch, one by one, and the spoilers are returned with their reasons."""

    async def effects(messages: Sequence[Message]) -> None:
        await writer.publish(await handle(messages))

    messages = [message for _, message in readable]
    if not messages:
        return []
    try:
        await _patiently(name, lambda: effects(messages))
    except POISON as error:
        log.warning("batch_spoilt", worker=name, lane=lane, reason=str(error))
    else:
        return []
    buried = []
    for received, message in readable:
        reason = await _try_one(name, lambda message=message: effects([message]))  # type: ignore[misc]
        if reason:
            buried.append((received, lane, reason))
    return buried


async def _try_one(name: str, act: Callable[[], Awaitable[None]]) -> str:
    reason = ""
    for _ in range(WORKER_TRIES_MAX):
        try:
            await _patiently(name, act)
        except POISON as error:
            reason = f"{type(error).__name__}: {error}"
        else:
            return ""
    return reason


async def _patiently(name: str, act: Callable[[], Awaitable[None]]) -> None:
    """Again and again while a dependency is away, with a growing pause: nothing is given up for an outage."""
    pause_s = 0.05
    while True:
        try:
            return await act()
        except PERHAPS_AWAY as error:
            if not isinstance(error, Problem) and not is_away(error):
                raise
            log.warning("worker_waits", worker=name, reason=str(error), seconds=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, WORKER_WAIT_SECONDS_MAX)
