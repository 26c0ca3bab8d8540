"""Trim logs by age and size, compact those that ask for it, and forget silent producers, a few partitions at a time.

Run by every broker for the partitions it leads, so brokers share the work; two that overlap do no harm, because the
trim script only ever moves a log's beginning forward to what its caller saw.
"""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any

import respline
from penstock.broker import Broker
from penstock.compaction import compact, is_dirty
from penstock.limits import PRODUCERS_PER_PARTITION_MAX
from penstock.store import by_time
from penstock.store.open_log import Ends
from penstock.store.scripts import Call
from penstock.store.topics import Topic

CHUNK = 200
PRODUCERS_WORTH_A_LOOK = 100
PRODUCER_SILENCE_MS = 24 * 3600 * 1000
Partition = tuple[Topic, int]


async def sweep(broker: Broker) -> None:
    """Look at every partition we lead once, spread out so that the store and other work never notice."""
    ours = iter(_led_by_us(broker))
    while chunk := list(islice(ours, CHUNK)):
        await sweep_some(broker, chunk)
        await asyncio.sleep(0)


async def sweep_some(broker: Broker, partitions: Sequence[Partition]) -> None:
    commands: list[tuple[Any, ...]] = []
    for topic, partition in partitions:
        keys = broker.keys.partition(topic.name, partition)
        commands.append(("HMGET", keys.m, "leo", "log_start", "bytes", "trimmed", "max_ts", "compacted_bytes"))
        commands.append(("ZRANGE", keys.tidx, 0, 0, "WITHSCORES"))
        commands.append(("HLEN", keys.pid))
    replies = await broker.store.call_many(commands)
    now_ms = broker.now_ms()
    for at, (topic, partition) in enumerate(partitions):
        meta, first_point, producers = replies[3 * at : 3 * at + 3]
        if isinstance(meta, respline.ServerError) or meta[0] is None:
            continue
        if topic.settings.open_layout:
            await _open_layout(broker, topic, partition, now_ms)
        elif topic.settings.deleted:
            await _by_age(broker, topic, partition, meta, first_point, now_ms)
            await _by_size(broker, topic, partition, meta)
        if topic.settings.compacted and is_dirty(topic, int(meta[2]), int(meta[5] or 0)):
            await compact(broker, topic, partition)
        if producers > PRODUCERS_WORTH_A_LOOK:
            keys = broker.keys.partition(topic.name, partition)
            silent = (now_ms - PRODUCER_SILENCE_MS, PRODUCERS_PER_PARTITION_MAX)
            await broker.scripts.run(Call("producers_expire", (keys.pid, keys.open, keys.txn), silent))


def _led_by_us(broker: Broker) -> list[Partition]:
    nodes = broker.nodes
    return [
        (topic, partition)
        for topic in broker.topics.by_name.values()
        for partition in range(topic.partitions)
        if nodes.alone or nodes.leader(topic.name, partition) == nodes.me
    ]


async def _by_age(
    broker: Broker, topic: Topic, partition: int, meta: list[bytes], first_point: list[bytes], now_ms: int
) -> None:
    cutoff = now_ms - topic.settings.retention_ms
    leo, log_start = int(meta[0]), int(meta[1])
    if topic.settings.retention_ms < 0 or log_start >= leo or meta[4] is None:
        return
    if first_point and float(first_point[1]) >= cutoff:  # the oldest batch is young enough
        return
    if int(meta[4]) < cutoff:
        await broker.log.trim(topic, partition, leo)
        return
    kept = await by_time.first_batch_at(broker.store, broker.keys.partition(topic.name, partition), cutoff)
    if kept:
        await broker.log.trim(topic, partition, kept[0], newest_ms=kept[1])


async def _open_layout(broker: Broker, topic: Topic, partition: int, now_ms: int) -> None:
    """By the time in the entries' ids, and by the average size of an entry."""
    settings = topic.settings
    if settings.retention_ms >= 0:
        [ends] = await broker.log.open.ends([(topic, partition)])
        cutoff = (now_ms - settings.retention_ms) << settings.sequence_bits
        if isinstance(ends, Ends) and ends.log_start < min(cutoff, ends.leo):
            await broker.log.trim(topic, partition, min(cutoff, ends.leo))
    if settings.retention_bytes >= 0:
        key = broker.keys.partition(topic.name, partition).m
        size, count = await broker.store.call("HMGET", key, "bytes", "entries")
        if count and int(count):
            keep = -(-settings.retention_bytes * int(count) // max(int(size), 1))
            await broker.log.open.trim(topic, partition, 0, keep)


async def _by_size(broker: Broker, topic: Topic, partition: int, meta: list[bytes]) -> None:
    keep = topic.settings.retention_bytes
    if keep < 0 or int(meta[2]) - int(meta[3] or 0) <= keep:
        return
    keys = broker.keys.partition(topic.name, partition)
    offset = await broker.scripts.run(Call("offset_at_bytes", (keys.log, keys.m), (topic.id_text, keep)))
    if offset >= 0:
        await broker.log.trim(topic, partition, offset)
