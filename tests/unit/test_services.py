"""Work in the background does not stay dead, and a reader that the library has given up is exchanged for a new one."""

import asyncio
from types import SimpleNamespace

import asyncpg
import pytest
from confluent_kafka import KafkaError

from aisle import log, services
from aisle.log import LogReader, LogUnavailable


async def test_work_that_dies_of_something_unforeseen_is_begun_anew(monkeypatch):
    monkeypatch.setattr(services, "REVIVE_SECONDS", 0.001)
    begun, third = 0, asyncio.Event()

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress")
        if begun == 2:
            raise KeyError("nobody thought of this")
        third.set()
        await asyncio.Event().wait()

    kept = asyncio.create_task(services._kept_up("relay", work))
    await asyncio.wait_for(third.wait(), 30)
    kept.cancel()
    await asyncio.wait([kept])
    assert (begun, kept.cancelled()) == (3, True)


async def test_work_ends_with_the_process():
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    kept = asyncio.create_task(services._kept_up("relay", work))
    await asyncio.sleep(0.01)
    kept.cancel()
    await asyncio.wait([kept])
    assert ended.is_set()


class Consumer:
    """Tells of one error, then of nothing, as the library does."""

    code = KafkaError._TRANSPORT

    def __init__(self, settings) -> None:
        self._news = [SimpleNamespace(error=lambda: KafkaError(self.code), timestamp=lambda: (0, 0))]

    def subscribe(self, names) -> None: ...

    def poll(self, seconds):
        return self._news.pop() if self._news else None

    def consume(self, most, seconds):
        return []


async def read_twice(monkeypatch, code: int) -> list[object]:
    monkeypatch.setattr(Consumer, "code", code)
    monkeypatch.setattr(log, "Consumer", Consumer)
    reader = LogReader("nowhere", "group", ["topic"])
    assert await reader.batch() == []
    return await reader.batch()


@pytest.mark.parametrize("code", [KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.UNKNOWN, KafkaError._APPLICATION])
async def test_a_reader_whose_partition_the_library_leaves_alone_is_of_no_use(monkeypatch, code):
    with pytest.raises(LogUnavailable, match="begin anew"):
        await read_twice(monkeypatch, code)


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN])
async def test_what_the_library_gets_over_is_not_told(monkeypatch, code):
    assert await read_twice(monkeypatch, code) == []
