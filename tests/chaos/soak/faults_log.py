"""Faults of the log: broker and store killed, messages again, in another order, poisonous, partitions in motion."""

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from signal import SIGKILL
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from aisle.messages import BOOKING, RESERVATION, SHARED_LANE, TICKETING, group, topics, topics_to
from tests.chaos.soak.nemesis import Nemesis, fault

AGAIN_MAX = 400
EVERYTHING = 1_000_000_000
SERVICES = (BOOKING, RESERVATION, TICKETING)


def _is_busy(nemesis: Nemesis) -> bool:
    return nemesis.world.links["log"].was_busy(1)


@fault("F12", "the broker is killed and comes back", takes="log")
async def broker_killed(nemesis: Nemesis, chance: random.Random) -> int:
    bit, broker = _is_busy(nemesis), nemesis.world.broker
    await asyncio.to_thread(broker.kill)
    await asyncio.sleep(chance.uniform(0, 3))
    await nemesis.world.start_again(broker)
    return int(bit)


@fault("F12", "the store of the log is killed and comes back", takes="log")
async def log_store_killed(nemesis: Nemesis, chance: random.Random) -> int:
    bit, store = _is_busy(nemesis), nemesis.world.log_store
    await asyncio.to_thread(store.kill)
    await asyncio.sleep(chance.uniform(0, 2))
    if await nemesis.world.start_again(store):
        nemesis.sale.note("the log's file was spoilt and the log began anew")
    return int(bit)


@fault("F13", "messages come again, in another order", takes="log")
async def messages_again(nemesis: Nemesis, chance: random.Random) -> int:
    """What the log holds of a service's topics is published once more, shuffled, with its age."""
    return await asyncio.to_thread(_publish_again, nemesis, chance)


def _publish_again(nemesis: Nemesis, chance: random.Random) -> int:
    address = nemesis.world.config.kafka
    service = chance.choice(SERVICES)
    names = topics_to(service, SHARED_LANE)
    old = _read(address, names, AGAIN_MAX)
    if not old:
        return 0
    chance.shuffle(old)
    producer = Producer({"bootstrap.servers": address, "log_level": 0, "message.timeout.ms": 8000})
    for message in old[: chance.randrange(1, len(old) + 1)]:
        producer.produce(message.topic(), message.value(), message.key(), message.partition())
    producer.flush(10)
    nemesis.sale.sometimes["messages published again"] += len(old)
    return 1


def _read(address: str, names: list[str], most: int) -> list[Any]:
    """Some of the last messages of the topics."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": f"chaos-{secrets.token_hex(4)}", "enable.auto.commit": False,
         "log_level": 0}
    )  # fmt: skip
    try:
        parts = []
        for name in names:
            for number in consumer.list_topics(name, timeout=5).topics[name].partitions:
                low, high = consumer.get_watermark_offsets(TopicPartition(name, number), timeout=5)
                if high > low:
                    parts.append(TopicPartition(name, number, max(low, high - 60)))
        if not parts:
            return []
        consumer.assign(parts)
        found: list[Any] = []
        for _ in range(20):
            some = [message for message in consumer.consume(most, 0.3) if message.error() is None]
            found += some
            if len(found) >= most or (found and not some):
                break
        return found
    finally:
        consumer.close()


@fault("F13", "a service reads its messages from the beginning", takes="log")
async def offsets_back(nemesis: Nemesis, chance: random.Random) -> int:
    """The workers are killed, the group's offsets set back, and what was said comes again."""
    moved = await read_all_again(nemesis, chance.choice((20, 200, EVERYTHING)))
    nemesis.sale.sometimes["messages read again"] += moved
    return int(moved > 0)


async def read_all_again(nemesis: Nemesis, back: int = EVERYTHING) -> int:
    world = nemesis.world
    workers = [node for node in world.nodes if not node.serves]
    locks = [nemesis.lock(node.name) for node in workers]
    for lock in locks:
        await lock.acquire()
    moved = 0
    try:
        for node in workers:
            node.kept_down = True
            node.signal(SIGKILL)
        for service in SERVICES:
            moved += await asyncio.to_thread(_set_back, world.config.kafka, service, back)
    finally:
        for node in workers:
            node.kept_down = False
        for lock in locks:
            lock.release()
    await asyncio.gather(*(node.until_it_serves() for node in workers))
    return moved


def _set_back(address: str, service: str, back: int) -> int:
    """Wait until the group is empty, then move its offsets; returns by how many messages."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": group(service, SHARED_LANE), "enable.auto.commit": False,
         "log_level": 0}
    )  # fmt: skip
    try:
        moved, wanted = 0, []
        for name in topics_to(service, SHARED_LANE):
            parts = [TopicPartition(name, n) for n in consumer.list_topics(name, timeout=5).topics[name].partitions]
            for part in consumer.committed(parts, timeout=5):
                if part.offset > 0:
                    low, _ = consumer.get_watermark_offsets(TopicPartition(name, part.partition), timeout=5)
                    target = max(low, part.offset - back)
                    moved += part.offset - target
                    wanted.append(TopicPartition(name, part.partition, target))
        return moved if wanted and _commit(consumer, wanted) else 0
    finally:
        consumer.close()


def _commit(consumer: Consumer, wanted: list[TopicPartition]) -> bool:

    deadline = time.monotonic() + 12  # killed members are missed after six seconds
    while time.monotonic() < deadline:
        try:
            done = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            time.sleep(0.5)
            continue
        if all(part.error is None for part in done):
            return True
        time.sleep(0.5)
    return False


@fault("F14", "readers join and leave without end", takes="log")
async def rebalance_storm(nemesis: Nemesis, chance: random.Random) -> int:
    """Strangers in the group take partitions, read and do nothing with it; what they read comes again to the others."""
    return await asyncio.to_thread(_join_and_leave, nemesis.world.config.kafka, chance)


def _join_and_leave(address: str, chance: random.Random) -> int:
    taken = 0
    for _ in range(chance.randrange(2, 5)):
        service = chance.choice(SERVICES)
        consumer = Consumer(
            {"bootstrap.servers": address, "group.id": group(service, SHARED_LANE), "enable.auto.commit": False,
             "partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 6000, "log_level": 0,
             "heartbeat.interval.ms": 2000}
        )  # fmt: skip
        try:
            consumer.subscribe(topics_to(service, SHARED_LANE))
            for _ in range(chance.randrange(4, 16)):
                consumer.consume(20, 0.2)
                with suppress(KafkaException):
                    taken += len(consumer.assignment()) > 0
        finally:
            consumer.close()
    return int(taken > 0)


POISON: dict[str, Callable[[random.Random], bytes]] = {
    "bad JSON": lambda chance: b'{"type":"seats_res' + bytes(chance.randrange(256) for _ in range(20)),
    "unknown message": lambda chance: b'{"type":"from_the_future","version":99}',
    "no message": lambda chance: b"",
    "a megabyte": lambda chance: b'{"type":"booking_paid","booking":"' + b"x" * 900_000 + b'"}',
    "wrong types": lambda chance: b'{"type":"booking_paid","lane":7,"event":"one","parts":[null]}',
}


@fault("F15", "messages nobody can read", takes="log")
async def poison(nemesis: Nemesis, chance: random.Random) -> int:
    sent = await asyncio.to_thread(_poison, nemesis.world.config.kafka, chance)
    nemesis.shared["poison"] = nemesis.shared.get("poison", 0) + sent
    return int(sent > 0)


def _poison(address: str, chance: random.Random) -> int:
    delivered = []
    producer = Producer(
        {"bootstrap.servers": address, "log_level": 0, "message.timeout.ms": 8000, "message.max.bytes": 2_000_000,
         "enable.idempotence": True}
    )  # fmt: skip
    for _ in range(chance.randrange(1, 5)):
        kind = chance.choice(sorted(POISON))
        name = chance.choice(sorted(set(topics(SHARED_LANE))))
        producer.produce(
            name, POISON[kind](chance), partition=chance.randrange(10),
            on_delivery=lambda error, message: delivered.append(error is None),
        )  # fmt: skip
    producer.flush(10)
    return sum(delivered)


@fault("F20", "the disk of the log is full", takes="log")
async def log_disk_full(nemesis: Nemesis, chance: random.Random) -> int:
    world = nemesis.world
    if not world.has_disks:
        return 0
    bit = _is_busy(nemesis)
    filler = world.fill("log")
    await asyncio.sleep(chance.uniform(1, 4))
    filler.unlink()
    await asyncio.sleep(1)
    for server in (world.log_store, world.broker):
        if not server.running:
            nemesis.sale.note("the log died of its full disk")
            await world.start_again(server)
    return int(bit)
