"""What many people look at is read once for all of them; who asks alone sees what is there now."""

import asyncio

import pytest

from aisle.errors import Problem
from aisle.ticketing.shown import FEW, MOMENT_SECONDS, Shown


class Event:
    """Counts how often it was read; each read sees a newer state."""

    def __init__(self):
        self.now = 100.0
        self.reads = 0
        self.shown = Shown(self.read, clock=lambda: self.now)

    async def read(self, event: int) -> bytes:
        self.reads += 1
        mine = self.reads
        await asyncio.sleep(0)
        return b"%d" % mine

    async def asked(self, times: int) -> list[bytes]:
        return await asyncio.gather(*(self.shown.answer(1) for _ in range(times)))


async def test_whoever_asks_while_few_do_sees_what_is_there_now():
    event = Event()
    assert [await event.shown.answer(1) for _ in range(FEW)] == [b"%d" % (n + 1) for n in range(FEW)]


async def test_a_crowd_is_shown_one_read_a_moment_and_never_an_older_one():
    event = Event()
    await event.asked(1000)
    assert event.reads == FEW + 1
    for moment in range(1, 4):
        event.now += MOMENT_SECONDS
        assert set(await event.asked(1000)) == {b"%d" % (FEW + 1 + moment)}


async def test_when_the_crowd_has_gone_everybody_is_read_for_again():
    event = Event()
    await event.asked(1000)
    event.now += 3 * MOMENT_SECONDS
    before = event.reads
    await event.asked(2)
    assert event.reads == before + 2


async def test_one_who_goes_away_does_not_take_the_answer_from_the_others():
    event = Event()
    await event.asked(1000)
    event.now += MOMENT_SECONDS
    first = asyncio.create_task(event.shown.answer(1))
    await asyncio.sleep(0)
    others = asyncio.gather(*(event.shown.answer(1) for _ in range(20)))
    first.cancel()
    assert len(set(await others)) == 1


async def test_a_refusal_is_heard_by_all_who_asked_and_forgotten_after_the_moment():
    now, answers = [0.0], [Problem(503, "store_unavailable", "later")] * (FEW + 1) + [b"seats"]

    async def read(event: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Problem):
            raise answer
        return answer

    shown = Shown(read, clock=lambda: now[0])
    heard = await asyncio.gather(*(shown.answer(1) for _ in range(FEW + 5)), return_exceptions=True)
    assert {type(answer) for answer in heard} == {Problem}
    now[0] += MOMENT_SECONDS
    assert await shown.answer(1) == b"seats"
    with pytest.raises(IndexError):
        answers.pop()
