"""ListOffsets and OffsetForLeaderEpoch: where logs begin and end, and which offset belongs to a time.

These always ask the store: tools compare the numbers with what they just wrote through another broker.
"""

from typing import Any

from kio.schema.errors import ErrorCode

import respline
from penstock.api.fetch import LEADER_EPOCH, epoch_refusal
from penstock.broker import Broker
from penstock.errors import store_error_code
from penstock.request import Answer, Request
from penstock.store.log import View
from penstock.store.topics import Topic

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def list_offsets(broker: Broker, request: Request) -> Answer:
    committed = request.body.get("isolation_level", 0) == 1
    rows = [(topic["name"], topic["partitions"]) for topic in request.body["topics"]]
    known = await _current_views(broker, [(name, [p["partition_index"] for p in parts]) for name, parts in rows])
    answered = []
    for name, partitions in rows:
        listed = [await _listed(broker, known.get((name, p["partition_index"])), p, committed) for p in partitions]
        answered.append({"name": name, "partitions": listed})
    return {"topics": answered}


async def offset_for_leader_epoch(broker: Broker, request: Request) -> Answer:
    rows = [(topic["topic"], topic["partitions"]) for topic in request.body["topics"]]
    known = await _current_views(broker, [(name, [p["partition"] for p in parts]) for name, parts in rows])
    return {
        "topics": [
            {"topic": name, "partitions": [_epoch_end(known.get((name, p["partition"])), p) for p in partitions]}
            for name, partitions in rows
        ]
    }


Found = tuple[Topic, View | ErrorCode]


async def _current_views(broker: Broker, asked: list[tuple[str, list[int]]]) -> dict[tuple[str, int], Found]:
    wanted = []
    for name, partitions in asked:
        topic = broker.topics.by_name.get(name)
        if topic is None:
            try:
                await broker.topics.refresh_if_stale()
            except respline.ResplineError:
                broker.metrics.store_failures += 1
            topic = broker.topics.by_name.get(name)
        if topic:
            wanted += [(topic, partition) for partition in partitions if 0 <= partition < topic.partitions]
    if not broker.nodes.alone:
        for topic, partition in wanted:
            broker.log.expire_view(topic, partition)
    views = await broker.log.views(wanted)
    return {(topic.name, p): (topic, view) for (topic, p), view in zip(wanted, views, strict=True)}


async def _listed(broker: Broker, found: Found | None, row: dict[str, Any], committed: bool) -> dict[str, Any]:
    partition = row["partition_index"]
    if found is None:
        return _row(partition, ErrorCode.unknown_topic_or_partition)
    topic, view = found
    if not isinstance(view, View):
        return _row(partition, view)
    if code := epoch_refusal(row.get("current_leader_epoch", -1)):
        return _row(partition, code)
    when = row["timestamp"]
    end = view.lso if committed else view.leo
    if when == LATEST:
        return _row(partition, offset=end)
    if when == EARLIEST:
        return _row(partition, offset=view.log_start)
    try:
        if when == MAX_TIMESTAMP:
            hit = await broker.log.newest_record(topic, partition)
        elif when >= 0:
            hit = await broker.log.first_record_at(topic, partition, when)
        else:
            return _row(partition, ErrorCode.unsupported_version)
    except respline.ResplineError as error:
        return _row(partition, store_error_code(error))
    if hit is None or hit[0] >= end:
        return _row(partition)
    return _row(partition, offset=hit[0], timestamp=hit[1])


def _row(partition: int, code: ErrorCode = ErrorCode.none, *, offset: int = -1, timestamp: int = -1) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "error_code": code,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": LEADER_EPOCH if offset >= 0 else -1,
    }


def _epoch_end(found: Found | None, row: dict[str, Any]) -> dict[str, Any]:
    answer = {"partition": row["partition"], "leader_epoch": -1, "end_offset": -1, "error_code": ErrorCode.none}
    if found is None:
        return {**answer, "error_code": ErrorCode.unknown_topic_or_partition}
    view = found[1]
    if not isinstance(view, View):
        return {**answer, "error_code": view}
    if code := epoch_refusal(row["current_leader_epoch"]):
        return {**answer, "error_code": code}
    if row["leader_epoch"] > LEADER_EPOCH:
        return answer
    return {**answer, "leader_epoch": LEADER_EPOCH, "end_offset": view.leo}
