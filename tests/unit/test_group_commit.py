"""Group commit: nobody waits for nothing, nobody is forgotten, what must stay apart stays apart."""

import asyncio

import pytest

from aisle.group_commit import GroupCommit, Overloaded


class Writer:
    """Records batches and writes only when told to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = asyncio.Event()

    async def __call__(self, items):
        self.batches.append(list(items))
        await self.gate.wait()
        return [item.upper() for item in items]


def group(writer, **changes) -> GroupCommit[str, str]:
    return GroupCommit(writer, **{"apart": lambda item: item, "batch_max": 3, "queue_max": 10, **changes})


async def test_what_queues_up_during_a_write_shares_the_next_one():
    writer = Writer()
    commit = group(writer)
    first = asyncio.create_task(commit.submit("a"))
    await asyncio.sleep(0)
    rest = [asyncio.create_task(commit.submit(item)) for item in "bcde"]
    await asyncio.sleep(0)
    writer.gate.set()
    assert await asyncio.gather(first, *rest) == ["A", "B", "C", "D", "E"]
    assert writer.batches == [["a"], ["b", "c", "d"], ["e"]]


async def test_items_of_one_key_never_share_a_batch_and_keep_their_order():
    writer = Writer()
    commit = group(writer, apart=lambda item: item[0])
    tasks = [asyncio.create_task(commit.submit(item)) for item in ("x0", "a1", "a2", "b1", "a3")]
    await asyncio.sleep(0)
    writer.gate.set()
    await asyncio.gather(*tasks)
    assert all(len({item[0] for item in batch}) == len(batch) for batch in writer.batches)
    order = [item for batch in writer.batches for item in batch if item[0] == "a"]
    assert order == ["a1", "a2", "a3"]


async def test_a_full_queue_refuses_at_once():
    writer = Writer()
    commit = group(writer, batch_max=1, queue_max=2)
    tasks = [asyncio.create_task(commit.submit("a"))]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(commit.submit(item)) for item in "bc"]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await commit.submit("d")
    writer.gate.set()
    assert await asyncio.gather(*tasks) == ["A", "B", "C"]


async def test_a_failed_write_fails_its_batch_and_the_next_one_goes_on():
    calls = []

    async def write(items):
        calls.append(items)
        if len(calls) == 1:
            raise ConnectionError("gone")
        return items

    commit = group(write)
    with pytest.raises(ConnectionError):
        await commit.submit("a")
    assert await commit.submit("b") == "b"


async def test_a_caller_that_goes_away_does_not_spoil_the_batch():
    writer = Writer()
    commit = group(writer)
    leaving = asyncio.create_task(commit.submit("a"))
    staying = asyncio.create_task(commit.submit("b"))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.sleep(0)
    writer.gate.set()
    assert await staying == "B"
    await commit.drain()


async def test_who_would_wait_too_long_is_refused_when_they_come_and_one_batch_may_always_wait():
    async def write(items):
        await asyncio.sleep(0.05)
        return items

    commit = group(write, queue_max=1_000, wait_s_max=0.12)
    assert await commit.submit("first") == "first"
    answers = await asyncio.gather(*(commit.submit(str(n)) for n in range(60)), return_exceptions=True)
    assert {type(answer) for answer in answers if not isinstance(answer, str)} == {Overloaded}
    assert 3 <= len([answer for answer in answers if isinstance(answer, str)]) < 30
    await commit.drain()
    assert await commit.submit("again") == "again"


async def test_who_has_waited_too_long_is_refused_when_their_turn_comes():
    """Nothing was known of how slow the database has become when they came."""
    writer = Writer()
    commit = group(writer, wait_s_max=0.05)
    tasks = [asyncio.create_task(commit.submit(item)) for item in "abcde"]
    await asyncio.sleep(0.1)
    writer.gate.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert answers[:3] == ["A", "B", "C"]
    assert [type(answer) for answer in answers[3:]] == [Overloaded, Overloaded]
    assert writer.batches == [["a", "b", "c"]], "what was refused is not written"
    await commit.drain()
