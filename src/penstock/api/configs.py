"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

A topic answers with every config there is, defaults included: tools copy them. Brokers are configured by flags, so
theirs can be read and not changed.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from kio.schema.errors import ErrorCode

import respline
from penstock import topic_config
from penstock.broker import Broker
from penstock.errors import store_error_code
from penstock.request import Answer, Request
from penstock.store.topics import Outcome
from penstock.topic_config import KNOWN, Kind

TOPIC, BROKER = 2, 4
SET_ON_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5
ATTEMPTS = 5
Refusal = tuple[ErrorCode, str | None]
Configs = dict[str, str]


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def describe_configs(broker: Broker, request: Request) -> Answer:
    await broker.topics.refresh_if_stale()
    synonyms = request.body.get("include_synonyms", False)
    return {"results": [_described(broker, row, synonyms) for row in request.body["resources"]]}


async def alter_configs(broker: Broker, request: Request) -> Answer:
    """The old form: the configs given replace all that were set."""

    def replaced(row: dict[str, Any]) -> Callable[[Configs], Configs | Refusal]:
        wanted = {config["name"]: config["value"] for config in row["configs"] if config["value"] is not None}
        return lambda current: {**_fixed(current), **wanted}

    return await _altered(broker, request, replaced)


async def incremental_alter_configs(broker: Broker, request: Request) -> Answer:
    return await _altered(broker, request, lambda row: lambda current: _changed(current, row["configs"]))


async def _altered(
    broker: Broker, request: Request, change_of: Callable[[dict[str, Any]], Callable[[Configs], Configs | Refusal]]
) -> Answer:
    rows = []
    for row in request.body["resources"]:
        code, why = await _apply(broker, row, change_of(row), request.body["validate_only"])
        named = {"resource_type": row["resource_type"], "resource_name": row["resource_name"]}
        rows.append({"error_code": code, "error_message": why, **named})
    return {"responses": rows}


async def _apply(
    broker: Broker, row: dict[str, Any], change: Callable[[Configs], Configs | Refusal], validate_only: bool
) -> Refusal:
    if row["resource_type"] != TOPIC:
        return ErrorCode.invalid_request, "Only topics can be configured here; brokers are configured by flags."
    try:
        for _ in range(ATTEMPTS):
            await broker.topics.refresh()
            topic = broker.topics.by_name.get(row["resource_name"])
            if topic is None:
                return ErrorCode.unknown_topic_or_partition, None
            wanted = change(topic.configs)
            if isinstance(wanted, tuple):
                return wanted
            if why := topic_config.refusal(dict(wanted)):
                return ErrorCode.invalid_config, why
            if _fixed(wanted) != _fixed(topic.configs):
                return ErrorCode.invalid_config, "The layout of a topic is chosen when it is created."
            if validate_only or wanted == topic.configs:
                return ErrorCode.none, None
            if await broker.topics.alter(topic, configs=wanted) is not Outcome.RACED:
                return ErrorCode.none, None
    except respline.ResplineError as error:
        return store_error_code(error), "The store did not answer."
    return ErrorCode.invalid_request, "The topic was changed by somebody else at the same time; look again."


def _fixed(configs: Configs) -> Configs:
    return {name: value for name, value in configs.items() if name in KNOWN and KNOWN[name].fixed}


def _changed(current: Configs, rows: list[dict[str, Any]]) -> Configs | Refusal:
    wanted = dict(current)
    if len({row["name"] for row in rows}) != len(rows):
        return ErrorCode.invalid_request, "A config is named twice."
    for row in rows:
        name, operation, value = row["name"], row["config_operation"], row["value"]
        if name not in KNOWN:
            return ErrorCode.invalid_config, f"Unknown topic config name: {name}"
        if operation == Operation.DELETE:
            wanted.pop(name, None)
        elif value is None:
            return ErrorCode.invalid_request, f"{name} has no value."
        elif operation == Operation.SET:
            wanted[name] = value
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            if KNOWN[name].kind is not Kind.LIST:
                return ErrorCode.invalid_config, f"{name} is not a list."
            wanted[name] = _list_changed(wanted.get(name, KNOWN[name].default), value, operation)
        else:
            return ErrorCode.invalid_request, f"Unknown operation {operation}."
    return wanted


def _list_changed(current: str, value: str, operation: int) -> str:
    words, given = [w for w in current.split(",") if w], value.split(",")
    if operation == Operation.APPEND:
        return ",".join(words + [word for word in given if word not in words])
    return ",".join(word for word in words if word not in given)


def _described(broker: Broker, row: dict[str, Any], synonyms: bool) -> dict[str, Any]:
    kind, name, only = row["resource_type"], row["resource_name"], row["configuration_keys"]
    answer = {"error_code": ErrorCode.none, "error_message": None, "resource_type": kind, "resource_name": name}
    if kind == TOPIC:
        topic = broker.topics.by_name.get(name)
        if topic is None:
            return {**answer, "error_code": ErrorCode.unknown_topic_or_partition, "configs": []}
        rows = [
            _config(
                key, topic.configs.get(key, known.default), known, SET_ON_TOPIC if key in topic.configs else DEFAULT
            )
            for key, known in KNOWN.items()
        ]
    elif kind == BROKER and name in ("", *(str(node.id) for node in broker.nodes.live)):
        rows = [_config(key, value, known, STATIC_BROKER) for key, value, known in _broker_configs(broker)]
    else:
        return {**answer, "error_code": ErrorCode.invalid_request, "error_message": "No such resource.", "configs": []}
    rows = [config for config in rows if only is None or config["name"] in only]
    for config in rows if synonyms else ():
        config["synonyms"] = [{"name": config["name"], "value": config["value"], "source": config["config_source"]}]
    return {**answer, "configs": rows}


def _config(name: str, value: str, known: topic_config.Known, source: int) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "read_only": known.fixed,
        "config_source": source,
        "is_default": source == DEFAULT,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": known.kind,
        "documentation": None,
    }


def _broker_configs(broker: Broker) -> list[tuple[str, str, topic_config.Known]]:
    def row(name: str, kind: Kind, value: object) -> tuple[str, str, topic_config.Known]:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return name, text, topic_config.Known(kind, text, fixed=True)

    config = broker.config
    return [
        row("broker.id", Kind.INT, config.node_id),
        row("advertised.listeners", Kind.STRING, f"PLAINTEXT://{broker.advertised.host}:{broker.advertised.port}"),
        row("auto.create.topics.enable", Kind.BOOLEAN, config.auto_create_topics),
        row("num.partitions", Kind.INT, config.default_partitions),
        row("default.replication.factor", Kind.INT, 1),
        row("min.insync.replicas", Kind.INT, 1),
        row("message.max.bytes", Kind.INT, KNOWN["max.message.bytes"].default),
        row("log.retention.ms", Kind.LONG, KNOWN["retention.ms"].default),
        row("socket.request.max.bytes", Kind.INT, config.frame_bytes_max),
        row("log.message.format.version", Kind.STRING, KNOWN["message.format.version"].default),
        row("delete.topic.enable", Kind.BOOLEAN, True),
    ]
