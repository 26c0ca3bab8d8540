"""CreateTopics, DeleteTopics, CreatePartitions.

Replication lives in the store, so any replication factor is accepted and one replica is reported; manual replica
assignments only count their partitions.
"""

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

import respline
from penstock import topic_config
from penstock.api.metadata import name_refusal
from penstock.broker import Broker
from penstock.errors import store_error_code
from penstock.limits import PARTITIONS_PER_TOPIC_MAX, TOPICS_PER_REQUEST_MAX
from penstock.request import Answer, Request
from penstock.store.topics import NewTopic, Outcome, Topic

Refusal = tuple[ErrorCode, str]


async def create_topics(broker: Broker, request: Request) -> Answer:
    asked = request.body["topics"]
    await broker.topics.refresh()
    repeated = {name for name, times in Counter(row["name"] for row in asked).items() if times > 1}
    rows: dict[str, dict[str, Any]] = {}
    wanted: list[NewTopic] = []
    for row in asked:
        plan = _planned(broker, row, repeated, len(asked))
        if isinstance(plan, NewTopic) and not request.body.get("validate_only"):
            wanted.append(plan)
        elif isinstance(plan, NewTopic):
            rows[plan.name] = _created(plan, bytes(16))
        else:
            rows[row["name"]] = _not_created(row["name"], plan)
    for plan, refusal in zip(wanted, await _create(broker, wanted), strict=True):
        topic = broker.topics.by_name.get(plan.name)
        rows[plan.name] = (
            _not_created(plan.name, refusal) if refusal else _created(plan, topic.id if topic else bytes(16))
        )
    return {"topics": [rows[name] for name in dict.fromkeys(row["name"] for row in asked)]}


async def delete_topics(broker: Broker, request: Request) -> Answer:
    if request.version >= 6:
        asked = [(row["name"], row["topic_id"]) for row in request.body["topics"]]
    else:
        asked = [(name, bytes(16)) for name in request.body["topic_names"]]
    await broker.topics.refresh()
    found = [_find(broker, name, topic_id) for name, topic_id in asked]
    doomed = list({topic.name: topic for topic in found if topic}.values())[:TOPICS_PER_REQUEST_MAX]
    code = ErrorCode.none
    try:
        await broker.topics.delete(doomed)
    except respline.ResplineError as error:
        code = store_error_code(error)
    return {
        "responses": [
            {
                "name": topic.name if topic else name,
                "topic_id": topic.id if topic else topic_id,
                "error_code": code if topic else _unknown(topic_id),
                "error_message": None,
            }
            for (name, topic_id), topic in zip(asked, found, strict=True)
        ]
    }


async def create_partitions(broker: Broker, request: Request) -> Answer:
    await broker.topics.refresh()
    rows = []
    for row in request.body["topics"]:
        code, why = await _grow(broker, row, validate_only=request.body["validate_only"])
        rows.append({"name": row["name"], "error_code": code, "error_message": why})
    return {"results": rows}


def _planned(broker: Broker, row: dict[str, Any], repeated: set[str], asked: int) -> NewTopic | Refusal:
    name, configs = row["name"], {config["name"]: config["value"] for config in row["configs"]}
    count = len(row["assignments"]) or row["num_partitions"]
    if count == -1:
        count = broker.config.default_partitions
    if asked > TOPICS_PER_REQUEST_MAX:
        return ErrorCode.policy_violation, f"More than {TOPICS_PER_REQUEST_MAX} topics in one request."
    if name in repeated:
        return ErrorCode.invalid_request, "Duplicate topic name."
    if why := name_refusal(name):
        return ErrorCode.invalid_topic_exception, f"Topic name is invalid: {why}"
    if name in broker.topics.by_name:
        return ErrorCode.topic_already_exists, f"Topic '{name}' already exists."
    if row["assignments"] and row["num_partitions"] != -1:
        return ErrorCode.invalid_request, "Partitions and replica assignments cannot both be given."
    if not 1 <= count <= PARTITIONS_PER_TOPIC_MAX:
        return ErrorCode.invalid_partitions, f"Number of partitions must be from 1 to {PARTITIONS_PER_TOPIC_MAX}."
    if row["replication_factor"] < -1 or row["replication_factor"] == 0:
        return ErrorCode.invalid_replication_factor, "Replication factor must be larger than 0, or -1 for the default."
    if why := topic_config.refusal(configs):
        return ErrorCode.invalid_config, why
    return NewTopic(name, count, {key: value for key, value in configs.items() if value is not None})


async def _create(broker: Broker, wanted: list[NewTopic]) -> list[Refusal | None]:
    try:
        outcomes = await broker.topics.create(wanted)
    except respline.ResplineError as error:
        return [(store_error_code(error), "The store did not answer.")] * len(wanted)
    refusals: dict[Outcome, Refusal | None] = {
        Outcome.DONE: None,
        Outcome.EXISTS: (ErrorCode.topic_already_exists, "The topic already exists."),
        Outcome.TOO_MANY: (ErrorCode.policy_violation, "Too many partitions in this cluster."),
    }
    return [refusals[outcome] for outcome in outcomes]


def _created(plan: NewTopic, topic_id: bytes) -> dict[str, Any]:
    return {
        "name": plan.name,
        "topic_id": topic_id,
        "error_code": ErrorCode.none,
        "error_message": None,
        "num_partitions": plan.partitions,
        "replication_factor": 1,
        "configs": [
            {
                "name": name,
                "value": plan.configs.get(name, known.default),
                "read_only": False,
                "config_source": 1 if name in plan.configs else 5,
                "is_sensitive": False,
            }
            for name, known in topic_config.KNOWN.items()
        ],
    }


def _not_created(name: str, refusal: Refusal) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": bytes(16),
        "error_code": refusal[0],
        "error_message": refusal[1],
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }


def _find(broker: Broker, name: str | None, topic_id: bytes) -> Topic | None:
    return broker.topics.by_id.get(topic_id) if any(topic_id) else broker.topics.by_name.get(name or "")


def _unknown(topic_id: bytes) -> ErrorCode:
    return ErrorCode.unknown_topic_id if any(topic_id) else ErrorCode.unknown_topic_or_partition


async def _grow(broker: Broker, row: dict[str, Any], *, validate_only: bool) -> tuple[ErrorCode, str | None]:
    topic, count = broker.topics.by_name.get(row["name"]), row["count"]
    if topic is None:
        return ErrorCode.unknown_topic_or_partition, None
    if count <= topic.partitions:
        why = f"Topic currently has {topic.partitions} partitions, which is not fewer than the requested {count}."
        return ErrorCode.invalid_partitions, why
    if count > PARTITIONS_PER_TOPIC_MAX:
        return ErrorCode.invalid_partitions, f"At most {PARTITIONS_PER_TOPIC_MAX} partitions."
    if row["assignments"] is not None and len(row["assignments"]) != count - topic.partitions:
        return ErrorCode.invalid_replica_assignment, "One assignment per new partition is needed."
    if validate_only:
        return ErrorCode.none, None
    try:
        outcome = await broker.topics.alter(topic, partitions=count)
    except respline.ResplineError as error:
        return store_error_code(error), "The store did not answer."
    if outcome is Outcome.DONE:
        return ErrorCode.none, None
    if outcome is Outcome.TOO_MANY:
        return ErrorCode.policy_violation, "Too many partitions in this cluster."
    if outcome is Outcome.UNKNOWN:
        return ErrorCode.unknown_topic_or_partition, None
    return ErrorCode.invalid_request, "The topic was changed by somebody else at the same time; look again."
