"""The log edge against a real broker: confirmed means kept, an uncommitted batch comes again, poison is set aside."""

import asyncio

import pytest

from aisle.embedded.server import free_port
from aisle.errors import StartupError
from aisle.log import LogUnavailable, Received, ensure_lane, open_reader, open_writer, require_log
from aisle.messages import BookingFailed, dead_letters, decode, topic, topics
from tests.apache_kafka import ON_KAFKA

pytestmark = ON_KAFKA


@pytest.fixture
def bootstrap(kafka):
    return kafka


def failed(n: int, lane: str) -> BookingFailed:
    return BookingFailed(
        id=f"m{n}", lane=lane, event=1, section="A", partition=n % 10, epoch=1, booking=f"b{n}", reason="sold_out"
    )


async def read(bootstrap: str, group: str, names: list[str], count: int, *, commit: bool) -> list[Received]:
    found: list[Received] = []
    async with asyncio.timeout(60), open_reader(bootstrap, group, names) as reader:
        while len(found) < count:
            batch = await reader.batch()
            found += batch
            if commit and batch:
                reader.done(batch)
    return found


async def test_confirmed_messages_are_read_in_order_of_their_partition(bootstrap):
    await ensure_lane(bootstrap, "order")
    await ensure_lane(bootstrap, "order")
    async with open_writer(bootstrap) as writer:
        await asyncio.gather(*(writer.publish([failed(n, "order"), failed(n + 500, "order")]) for n in range(500)))
    found = await read(bootstrap, "g", [topic(BookingFailed, "order")], 1000, commit=True)
    assert {decode(one.value).booking for one in found} == {f"b{n}" for n in range(1000)}
    for partition in range(10):
        offsets = [one.offset for one in found if one.partition == partition]
        assert offsets == list(range(100))


async def test_an_uncommitted_batch_comes_again_and_a_committed_one_does_not(bootstrap):
    await ensure_lane(bootstrap, "again")
    async with open_writer(bootstrap) as writer:
        await writer.publish([failed(n, "again") for n in range(20)])
    name = topic(BookingFailed, "again")
    first = await read(bootstrap, "g", [name], 20, commit=False)
    second = await read(bootstrap, "g", [name], 20, commit=True)
    assert sorted(one.value for one in first) == sorted(one.value for one in second)
    async with open_writer(bootstrap) as writer:
        await writer.publish([failed(99, "again")])
    [new] = await read(bootstrap, "g", [name], 1, commit=True)
    assert decode(new.value).booking == "b99"


async def test_a_rush_on_a_new_lane_asks_for_its_topics_once(bootstrap, monkeypatch):
    from aisle import log as log_module

    asked = []

    async def count(address: str, lane: str) -> None:
        asked.append(lane)
        await ensure_lane(address, lane)

    monkeypatch.setattr(log_module, "ensure_lane", count)
    async with open_writer(bootstrap) as writer:
        await asyncio.gather(*(writer.publish([failed(n, "rush")]) for n in range(100)))
    assert asked == ["rush"]


async def test_a_lane_has_a_topic_for_every_message_and_one_for_dead_letters(bootstrap):
    await ensure_lane(bootstrap, "whole")
    from confluent_kafka.admin import AdminClient

    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
    assert {name: len(found[name].partitions) for name in topics("whole")} == dict.fromkeys(topics("whole"), 10)
    assert len(found[dead_letters("whole")].partitions) == 1


async def test_what_cannot_be_handled_is_buried_with_its_reason(bootstrap):
    await ensure_lane(bootstrap, "grave")
    poison = Received("some-topic", 3, 42, b"\xff not json")
    async with open_writer(bootstrap) as writer:
        await writer.bury([(poison, "grave", "not JSON")])
    [buried] = await read(bootstrap, "g", [dead_letters("grave")], 1, commit=True)
    assert buried.value == poison.value


async def test_a_log_that_is_not_there_is_said_in_one_sentence():
    with pytest.raises(StartupError, match=r"Kafka at 127\.0\.0\.1:\d+ does not answer"):
        await require_log(f"127.0.0.1:{free_port()}", timeout_s=1)


async def test_publishing_without_a_log_fails_in_bounded_time(monkeypatch):
    from aisle import log as log_module

    monkeypatch.setitem(log_module.RELIABLE, "delivery.timeout.ms", 500)
    monkeypatch.setattr(log_module, "LOG_ADMIN_SECONDS_MAX", 1)
    async with open_writer(f"127.0.0.1:{free_port()}") as writer:
        with pytest.raises(LogUnavailable):
            async with asyncio.timeout(30):
                await writer.publish([failed(1, "nowhere")])
