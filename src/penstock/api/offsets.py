"""OffsetCommit, OffsetFetch, OffsetDelete: where a group's readers are. Rules: `offsets`."""

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

import respline
from penstock.broker import Broker
from penstock.group_members import Claim
from penstock.limits import OFFSET_METADATA_MAX
from penstock.request import Answer, Request
from penstock.store.offsets import Offset, Position

MANY_GROUPS = 8  # the first version of OffsetFetch that asks for several
Found = dict[Position, Offset]


async def offset_commit(broker: Broker, request: Request) -> Answer:
    body, now_ms = request.body, broker.now_ms()
    await _look_for(broker, [topic["name"] for topic in body["topics"]])
    refused: dict[Position, ErrorCode] = {}
    accepted: dict[Position, Offset] = {}
    for topic in body["topics"]:
        for row in topic["partitions"]:
            position = Position(topic["name"], row["partition_index"])
            if code := _commit_refusal(broker, position, row):
                refused[position] = code
            else:
                topic_id = broker.topics.by_name[position.topic].id_text
                epoch, metadata = row.get("committed_leader_epoch", -1), row["committed_metadata"] or ""
                accepted[position] = Offset(row["committed_offset"], epoch, now_ms, topic_id, metadata)
    claim = Claim(body["member_id"], body.get("group_instance_id"), body["generation_id_or_member_epoch"])
    try:
        code = await broker.offsets.commit(body["group_id"], claim, accepted)
    except respline.ResplineError:
        broker.metrics.store_failures += 1
        # Unknown or refused, it is for the client to say it again; it does so for this code.
        code = ErrorCode.coordinator_not_available
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": row["partition_index"],
                        "error_code": code or refused.get(Position(topic["name"], row["partition_index"]), code),
                    }
                    for row in topic["partitions"]
                ],
            }
            for topic in body["topics"]
        ]
    }


async def offset_fetch(broker: Broker, request: Request) -> Answer:
    rows = request.body["groups"] if request.version >= MANY_GROUPS else [request.body]
    asked = [(row["group_id"], _positions(row["topics"])) for row in rows]
    try:
        found = await broker.offsets.fetch(asked)
        unstable = await _unstable(broker, request, asked)
        await _look_for(broker, {position.topic for one in found if isinstance(one, dict) for position in one})
    except respline.ResplineError:
        broker.metrics.store_failures += 1
        found = [ErrorCode.coordinator_not_available] * len(asked)
        unstable = [set() for _ in asked]
    answers = [
        _fetched(broker, name, wanted, one, waiting)
        for (name, wanted), one, waiting in zip(asked, found, unstable, strict=True)
    ]
    if request.version >= MANY_GROUPS:
        return {"groups": answers}
    if request.version < 2 and (code := answers[0]["error_code"]):  # no place for it but the partitions
        topics = [(name, [_unset(p, code) for p in indexes]) for name, indexes in _by_topic(asked[0][1] or [])]
        return {"topics": [{"name": name, "partitions": partitions} for name, partitions in topics]}
    return answers[0]


async def offset_delete(broker: Broker, request: Request) -> Answer:
    topics = request.body["topics"]
    positions = [Position(topic["name"], row["partition_index"]) for topic in topics for row in topic["partitions"]]
    await _look_for(broker, [topic["name"] for topic in topics])
    known = [position for position in positions if _exists(broker, position)]
    try:
        codes = await broker.offsets.delete(request.body["group_id"], known)
    except respline.ResplineError:
        broker.metrics.store_failures += 1
        codes = ErrorCode.coordinator_not_available
    if isinstance(codes, ErrorCode):
        return {"error_code": codes, "topics": []}
    outcome = dict(zip(known, codes, strict=True))
    rows = [
        {
            "name": topic["name"],
            "partitions": [
                {
                    "partition_index": row["partition_index"],
                    "error_code": outcome.get(
                        Position(topic["name"], row["partition_index"]), ErrorCode.unknown_topic_or_partition
                    ),
                }
                for row in topic["partitions"]
            ],
        }
        for topic in topics
    ]
    return {"error_code": ErrorCode.none, "topics": rows}


async def _look_for(broker: Broker, names: Sequence[str] | set[str]) -> None:
    """A topic we have not heard of may have been made through another broker a moment ago."""
    if any(name not in broker.topics.by_name for name in names):
        try:
            await broker.topics.refresh_if_stale()
        except respline.ResplineError:
            broker.metrics.store_failures += 1


def _exists(broker: Broker, position: Position) -> bool:
    topic = broker.topics.by_name.get(position.topic)
    return topic is not None and 0 <= position.partition < topic.partitions


def _commit_refusal(broker: Broker, position: Position, row: dict[str, Any]) -> ErrorCode:
    if not _exists(broker, position):
        return ErrorCode.unknown_topic_or_partition
    if len(row["committed_metadata"] or "") > OFFSET_METADATA_MAX:
        return ErrorCode.offset_metadata_too_large
    return ErrorCode.none


def _positions(topics: list[dict[str, Any]] | None) -> list[Position] | None:
    """None asks for all of the group."""
    if topics is None:
        return None
    return [Position(topic["name"], partition) for topic in topics for partition in topic["partition_indexes"]]


async def _unstable(broker: Broker, request: Request, asked: Sequence[tuple[str, object]]) -> list[set[Position]]:
    """The partitions of each group whose offset a transaction may still change, if the client wants to know."""
    if not request.body.get("require_stable", False):
        return [set() for _ in asked]
    return await broker.transactions.waiting_offsets([name for name, _ in asked])


def _fetched(
    broker: Broker, group: str, wanted: list[Position] | None, found: ErrorCode | Found, unstable: set[Position]
) -> dict[str, Any]:
    if isinstance(found, ErrorCode):
        return {"group_id": group, "error_code": found, "topics": []}
    current = {position: offset for position, offset in found.items() if _of_this_topic(broker, position, offset)}
    topics = [
        {
            "name": name,
            "partitions": [
                _unset(p, ErrorCode.unstable_offset_commit)
                if Position(name, p) in unstable
                else _partition(p, current.get(Position(name, p)))
                for p in partitions
            ],
        }
        for name, partitions in _by_topic(sorted(unstable | set(current)) if wanted is None else wanted)
    ]
    return {"group_id": group, "error_code": ErrorCode.none, "topics": topics}


def _of_this_topic(broker: Broker, position: Position, offset: Offset) -> bool:
    """A topic that was deleted took its offsets with it, also when a new one has its name."""
    topic = broker.topics.by_name.get(position.topic)
    return topic is not None and topic.id_text == offset.topic_id


def _by_topic(positions: Sequence[Position]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for position in positions:
        topics.setdefault(position.topic, []).append(position.partition)
    return list(topics.items())


def _partition(partition: int, offset: Offset | None) -> dict[str, Any]:
    if offset is None:
        return _unset(partition, ErrorCode.none)
    return {
        "partition_index": partition,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
        "error_code": ErrorCode.none,
    }


def _unset(partition: int, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": code,
    }
