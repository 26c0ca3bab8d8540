"""What waits for a browser is bounded, a slow one starts anew, and connections are counted, kept alive and ended."""

import asyncio
import itertools
from contextlib import ExitStack
from uuid import uuid4

import pytest

from aisle.accounts.account import Actor, Role
from aisle.errors import Problem, StoreUnavailable
from aisle.live import sse
from aisle.live.connections import Connections, Limits
from aisle.live.mailbox import Mailbox, Message
from aisle.metrics import Metrics


def message(version: int) -> Message:
    return Message(b"%d " % version, version, 0.0)


def text(messages: list[Message]) -> bytes:
    return b"".join(m.data for m in messages)


async def test_everything_that_waits_is_taken_at_once_in_order():
    box = Mailbox(4)
    assert all(box.offer(message(n)) for n in (1, 2, 3))
    assert text(await box.take()) == b"1 2 3 "


async def test_a_taker_that_waits_is_woken():
    box = Mailbox(4)
    taker = asyncio.create_task(box.take())
    await asyncio.sleep(0)
    box.offer(message(1))
    assert text(await taker) == b"1 "


async def test_one_too_many_and_the_browser_starts_anew():
    box = Mailbox(2)
    starts = []

    def start() -> None:
        starts.append(1)
        box.start_anew(message(9))

    box.when_lost(start)
    assert [box.offer(message(n)) for n in (1, 2, 3, 4)] == [True, True, False, True]
    assert starts == [], "nothing is made for a browser that does not read"
    assert text(await box.take()) == b"9 "
    box.offer(message(8))
    box.offer(message(10))
    assert text(await box.take()) == b"10 ", "what the fresh start contains is not told again"
    assert starts == [1]


async def test_a_start_that_takes_time_is_asked_for_once_and_waited_for():
    box = Mailbox(1)
    asked = []
    box.when_lost(lambda: asked.append(1))
    box.offer(message(1))
    box.offer(message(2))
    taker = asyncio.create_task(box.take())
    for n in range(3, 6):
        await asyncio.sleep(0)
        box.offer(message(n))
    assert (asked, taker.done()) == ([1], False)
    box.start_anew(message(6))
    assert text(await taker) == b"6 "


async def test_a_stream_ends_after_what_waits_has_gone_out():
    box = Mailbox(2)
    box.offer(message(1))
    box.end(b"bye")
    assert (text(await box.take()), await box.take(), box.last_words) == (b"1 ", [], b"bye")


async def test_news_for_an_idle_stream_is_written_past_it_and_nothing_overtakes():
    box, written, reads = Mailbox(4), [], True

    def write_now(one: Message) -> bool:
        if reads:
            written.append(one.version)
        return reads

    box.when_idle(write_now)
    box.offer(message(1))
    assert written == [], "nobody waits in `take` yet: the stream may be in the middle of writing"
    assert text(await box.take()) == b"1 "
    taker = asyncio.create_task(box.take())
    await asyncio.sleep(0)
    box.offer(message(2))
    assert (written, taker.done()) == ([2], False)
    reads = False
    box.offer(message(3))
    reads = True
    box.offer(message(4))
    assert written == [2], "4 waits behind 3"
    assert text(await taker) == b"3 4 "
    assert box.seen == 4


def connections(metrics: Metrics, clock=lambda: 0.0, still_valid=None, **limits: float) -> Connections:
    wanted = {"connections_max": 2, "queue_messages_max": 4, "recheck_seconds": 0.001, **limits}
    return Connections(Limits(**wanted), metrics, still_valid, clock=clock)


def somebody() -> Actor:
    return Actor(uuid4(), Role.BUYER, session=b"digest")


def refusal(crowd: Connections, actor: Actor | None) -> tuple[int, int | None]:
    with pytest.raises(Problem) as refused, crowd.admitted(actor):
        pass
    return refused.value.status, refused.value.retry_after_s


async def test_a_full_process_and_a_greedy_account_are_told_to_come_back(metrics):
    crowd = connections(metrics, connections_max=2, per_account_max=1)
    actor = somebody()
    with crowd.admitted(actor):
        assert refusal(crowd, actor) == (429, 5)
        with crowd.admitted(somebody()):
            assert refusal(crowd, None) == (503, 5)
        assert metrics.registry.get_sample_value("aisle_sse_connections") == 1
    with crowd.admitted(actor), crowd.admitted(None):
        pass
    assert metrics.registry.get_sample_value("aisle_sse_connections") == 0


async def test_a_drained_process_ends_every_stream_with_a_wait_of_its_own(metrics):
    crowd = connections(metrics, connections_max=100)
    with ExitStack() as stack:
        boxes = [stack.enter_context(crowd.admitted(None)) for _ in range(50)]
        crowd.drain()
        words = [(await box.take(), box.last_words) for box in boxes]
        assert all(taken == [] and last.startswith(b"retry: ") for taken, last in words)
        assert len({last for _, last in words}) > 25, "they do not all come back at the same moment"
        assert refusal(crowd, None) == (503, 1)


async def test_a_quiet_browser_gets_a_sign_of_life(metrics):
    crowd = connections(metrics, heartbeat_seconds=0.001)
    with crowd.admitted(None) as quiet:
        beats = asyncio.create_task(crowd.beat_for_ever())
        async with asyncio.timeout(30):
            assert text(await quiet.take()) == sse.HEARTBEAT
            assert text(await quiet.take()) == sse.HEARTBEAT
        beats.cancel()


async def test_private_streams_end_when_their_session_has_ended(metrics):
    gone, stays = somebody(), somebody()

    async def still_valid(actors):
        return [actor is not gone for actor in actors]

    crowd = connections(metrics, still_valid=still_valid, connections_max=3)
    with crowd.admitted(gone) as ended, crowd.admitted(stays) as kept, crowd.admitted(None) as public:
        check = asyncio.create_task(crowd.recheck_for_ever())
        async with asyncio.timeout(30):
            assert await ended.take() == []
        assert (kept.ended, public.ended) == (False, False)
        check.cancel()


async def test_sessions_that_cannot_be_looked_up_for_a_minute_end(metrics):
    seconds = itertools.count(0, 40)

    async def still_valid(actors):
        raise StoreUnavailable("down")

    crowd = connections(metrics, clock=lambda: float(next(seconds)), still_valid=still_valid)
    with crowd.admitted(somebody()) as box:
        check = asyncio.create_task(crowd.recheck_for_ever())
        async with asyncio.timeout(30):
            assert await box.take() == []
        check.cancel()
