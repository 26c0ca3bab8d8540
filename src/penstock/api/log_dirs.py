"""DescribeLogDirs and DescribeProducers: how large partitions are, and who writes to them."""

from typing import Any

from kio.schema.errors import ErrorCode

import respline
from penstock.broker import Broker
from penstock.errors import store_error_code
from penstock.request import Answer, Request
from penstock.store.topics import Topic

LOG_DIR = "store"  # there are no directories; tools want a name
CHUNK = 500


async def describe_log_dirs(broker: Broker, request: Request) -> Answer:
    asked = request.body["topics"]
    if asked is None:
        wanted = [(topic, p) for topic in broker.topics.by_name.values() for p in range(topic.partitions)]
    else:
        named = [(broker.topics.by_name.get(row["topic"]), row["partitions"]) for row in asked]
        wanted = [(topic, p) for topic, rows in named if topic for p in rows if 0 <= p < topic.partitions]
    try:
        sizes = await _sizes(broker, wanted)
    except respline.ResplineError as error:
        result = {"error_code": store_error_code(error), "log_dir": LOG_DIR, "topics": []}
        return {"error_code": ErrorCode.none, "results": [result]}
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), size in zip(wanted, sizes, strict=True):
        row = {"partition_index": partition, "partition_size": size, "offset_lag": 0, "is_future_key": False}
        topics.setdefault(topic.name, []).append(row)
    rows = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    result = {"error_code": ErrorCode.none, "log_dir": LOG_DIR, "topics": rows}
    return {"error_code": ErrorCode.none, "results": [{**result, "total_bytes": -1, "usable_bytes": -1}]}


async def describe_producers(broker: Broker, request: Request) -> Answer:
    rows = []
    for asked in request.body["topics"]:
        topic = broker.topics.by_name.get(asked["name"])
        partitions = [await _producers(broker, topic, partition) for partition in asked["partition_indexes"]]
        rows.append({"name": asked["name"], "partitions": partitions})
    return {"topics": rows}


async def _sizes(broker: Broker, partitions: list[tuple[Topic, int]]) -> list[int]:
    sizes: list[int] = []
    for at in range(0, len(partitions), CHUNK):
        chunk = partitions[at : at + CHUNK]
        keys = [broker.keys.partition(topic.name, partition).m for topic, partition in chunk]
        replies = await broker.store.call_many([("HMGET", key, "bytes", "trimmed") for key in keys])
        for reply in replies:
            if isinstance(reply, respline.ServerError):
                raise reply
            sizes.append(int(reply[0] or 0) - int(reply[1] or 0))
    return sizes


async def _producers(broker: Broker, topic: Topic | None, partition: int) -> dict[str, Any]:
    answer: dict[str, Any] = {"partition_index": partition, "error_code": ErrorCode.none, "active_producers": []}
    if topic is None or not 0 <= partition < topic.partitions:
        return {**answer, "error_code": ErrorCode.unknown_topic_or_partition}
    keys = broker.keys.partition(topic.name, partition)
    try:
        states, opened = (
            await broker.store.call("HGETALL", keys.pid),
            await broker.store.call("ZRANGE", keys.open, 0, -1, "WITHSCORES"),
        )
    except respline.ResplineError as error:
        return {**answer, "error_code": store_error_code(error)}
    first_offsets = dict(zip(opened[::2], opened[1::2], strict=True))
    for producer_id, state in zip(states[::2], states[1::2], strict=True):
        epoch, last_ms, *batches = state.split()
        row = {
            "producer_id": int(producer_id),
            "producer_epoch": int(epoch),
            "last_sequence": int(batches[-1].split(b":")[1]) if batches else -1,
            "last_timestamp": int(last_ms),
            "coordinator_epoch": -1,
            "current_txn_start_offset": int(float(first_offsets.get(producer_id, -1))),
        }
        answer["active_producers"].append(row)
    return answer
