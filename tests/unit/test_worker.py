"""Who is buried by a worker: the message that cannot be handled, never one that met a dependency in trouble."""

import asyncio

import asyncpg
import pytest

from aisle.errors import StoreScriptFailed, StoreUnavailable
from aisle.limits import WORKER_TRIES_MAX
from aisle.log import Received
from aisle.messages import BookingExpired, encode
from aisle.worker import run_worker

MESSAGE = BookingExpired(
    id="m", lane="shared", event=1, section="A", partition=0, epoch=1, booking="b", buyer="c", parts=()
)
RECEIVED = Received("topic", 0, 7, encode(MESSAGE))

IN_TROUBLE = [
    asyncpg.AdminShutdownError("terminating connection due to administrator command"),
    asyncpg.CrashShutdownError("another server process exited abnormally"),
    asyncpg.DiskFullError("No space left on device"),
    asyncpg.LockNotAvailableError("canceling statement due to lock timeout"),
    asyncpg.TooManyConnectionsError("sorry, too many clients already"),
    asyncpg.InterfaceError("connection is closed"),
    StoreUnavailable("the store refuses: OOM"),
    TimeoutError(),
    ConnectionResetError(),
]
BAD = [
    ValueError("no such seat"),
    asyncpg.UniqueViolationError("duplicate key"),
    StoreScriptFailed("settle", "DRIFT", "a counter would become negative"),
]


class OneBatch:
    """A reader with one batch; the worker has it done when `asked` is set."""

    def __init__(self) -> None:
        self.left, self.asked = [[RECEIVED]], asyncio.Event()

    async def batch(self):
        if self.left:
            return self.left.pop()
        return await asyncio.Event().wait()

    def done(self, batch):
        self.asked.set()


class Writer:
    def __init__(self) -> None:
        self.buried, self.published = [], []

    async def publish(self, messages):
        self.published += messages

    async def bury(self, buried):
        self.buried += buried


async def handled(error: Exception, times: int, monkeypatch) -> tuple[Writer, int]:
    """The writer and how often the message was tried, when the first `times` tries fail with `error`."""
    monkeypatch.setattr("aisle.worker.WORKER_WAIT_SECONDS_MAX", 0.001)
    reader, writer, tries = OneBatch(), Writer(), 0

    async def handle(messages):
        nonlocal tries
        tries += 1
        if tries <= times:
            raise error
        return []

    worker = asyncio.create_task(run_worker("booking-service", "shared", reader, writer, handle))
    await asyncio.wait_for(reader.asked.wait(), 30)
    worker.cancel()
    await asyncio.wait([worker])
    return writer, tries


@pytest.mark.parametrize("error", IN_TROUBLE, ids=lambda error: type(error).__name__)
async def test_a_message_waits_until_a_dependency_is_out_of_trouble(error, monkeypatch):
    times = 2 * WORKER_TRIES_MAX + 1
    writer, tries = await handled(error, times, monkeypatch)
    assert writer.buried == []
    assert tries == times + 1


@pytest.mark.parametrize("error", BAD, ids=lambda error: type(error).__name__)
async def test_a_message_that_cannot_be_handled_is_buried_with_its_reason(error, monkeypatch):
    writer, _ = await handled(error, 100, monkeypatch)
    [(received, lane, reason)] = writer.buried
    assert (received, lane) == (RECEIVED, "shared")
    assert str(error) in reason
