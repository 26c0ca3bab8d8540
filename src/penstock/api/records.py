"""DeleteRecords: move the beginning of a log forward."""

from typing import Any

from kio.schema.errors import ErrorCode

import respline
from penstock.broker import Broker
from penstock.errors import store_error_code
from penstock.request import Answer, Request

END = -1


async def delete_records(broker: Broker, request: Request) -> Answer:
    await broker.topics.refresh_if_stale()
    rows = []
    for topic in request.body["topics"]:
        partitions = [await _deleted(broker, topic["name"], row) for row in topic["partitions"]]
        rows.append({"name": topic["name"], "partitions": partitions})
    return {"topics": rows}


async def _deleted(broker: Broker, name: str, row: dict[str, Any]) -> dict[str, Any]:
    partition, offset = row["partition_index"], row["offset"]
    topic = broker.topics.by_name.get(name)
    code, low = ErrorCode.unknown_topic_or_partition, -1
    if topic and topic.settings.compacted and not topic.settings.deleted:
        code = ErrorCode.policy_violation
    elif topic and offset < END:
        code = ErrorCode.offset_out_of_range
    elif topic and 0 <= partition < topic.partitions:
        try:
            code, low = await broker.log.trim(topic, partition, offset)
        except respline.ResplineError as error:
            code = store_error_code(error)
    return {"partition_index": partition, "low_watermark": low if not code else -1, "error_code": code}
