"""Metadata: brokers, topics, partitions and their leaders; makes topics when asked to and allowed.

The answer for hundreds of topics takes milliseconds to encode and every client asks for it, so encoded bodies are kept
until the catalogue or the list of brokers changes.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

import respline
from penstock.api.cluster import NO_AUTHORIZATION
from penstock.broker import Broker
from penstock.limits import TOPIC_NAME_MAX, TOPICS_PER_REQUEST_MAX
from penstock.request import Answer, Request
from penstock.store.topics import NewTopic, Topic
from penstock.wire.write import response_writer

METADATA = 3
LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]+")
CACHED_MAX = 256
NULL_NAME_FROM = 12


async def metadata(broker: Broker, request: Request) -> Answer:
    asked = request.body["topics"]
    # Version 0 has no null: an empty list there means "all topics".
    if asked is None or (request.version == 0 and not asked):
        await _try_refresh(broker)
        return _encoded(broker, request.version, list(broker.topics.by_name.values()))
    if len(asked) > TOPICS_PER_REQUEST_MAX * 10:
        return _message(broker, [_absent(t.get("name") or "", b"", ErrorCode.invalid_request) for t in asked])
    found = [_lookup(broker, topic) for topic in asked]
    if None in found:
        await _try_refresh(broker)
        await _auto_create(broker, request, [topic for topic, known in zip(asked, found, strict=True) if not known])
        found = [_lookup(broker, topic) for topic in asked]
    known = [topic for topic in found if topic is not None]
    if len(known) == len(asked):
        return _encoded(broker, request.version, known)
    rows = [_described(broker, t) if t else _missing(a, request.version) for a, t in zip(asked, found, strict=True)]
    return _message(broker, rows)


def name_refusal(name: str) -> str | None:
    """Why a topic cannot have this name, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return '"." or ".." is not allowed'
    if len(name) > TOPIC_NAME_MAX:
        return f"the length of {len(name)} is longer than the max allowed length {TOPIC_NAME_MAX}"
    if not LEGAL_NAME.fullmatch(name):
        return f'"{name}" contains one or more characters other than ASCII alphanumerics, ".", "_" and "-"'
    return None


async def _try_refresh(broker: Broker) -> None:
    """A store that does not answer leaves us with what we know, which is better than nothing for running clients."""
    try:
        await broker.topics.refresh()
    except respline.ResplineError:
        broker.metrics.store_failures += 1


async def _auto_create(broker: Broker, request: Request, asked: Sequence[dict[str, Any]]) -> None:
    if not (broker.config.auto_create_topics and request.body.get("allow_auto_topic_creation", True)):
        return
    names = {topic["name"] for topic in asked if topic.get("name") and not _names_an_id(topic)}
    legal = sorted(name for name in names if not name_refusal(name))[:TOPICS_PER_REQUEST_MAX]
    if legal:
        try:
            await broker.topics.create([NewTopic(name, broker.config.default_partitions, {}) for name in legal])
        except respline.ResplineError:
            broker.metrics.store_failures += 1


def _names_an_id(topic: dict[str, Any]) -> bool:
    return any(topic.get("topic_id", b""))


def _lookup(broker: Broker, asked: dict[str, Any]) -> Topic | None:
    if _names_an_id(asked):
        return broker.topics.by_id.get(asked["topic_id"])
    return broker.topics.by_name.get(asked["name"] or "")


def _encoded(broker: Broker, version: int, topics: Sequence[Topic]) -> Answer:
    state = (broker.topics.epoch, broker.nodes.epoch)
    if broker.metadata_state != state:
        broker.metadata_cache.clear()
        broker.metadata_state = state
    key = (version, tuple(topic.name for topic in topics))
    body = broker.metadata_cache.get(key)
    if body is None:
        parts: list[bytes] = []
        message = _message(broker, [_described(broker, topic) for topic in topics])
        response_writer(METADATA, version)(parts, message)
        body = b"".join(parts)
        if len(broker.metadata_cache) < CACHED_MAX:
            broker.metadata_cache[key] = body
    return [body]


def _message(broker: Broker, rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {
        "brokers": [
            {"node_id": node.id, "host": node.host, "port": node.port, "rack": None} for node in broker.nodes.live
        ],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.nodes.live[0].id,
        "topics": list(rows),
        "cluster_authorized_operations": NO_AUTHORIZATION,
    }


def _described(broker: Broker, topic: Topic) -> dict[str, Any]:
    rows = []
    for partition in range(topic.partitions):
        leader = broker.nodes.leader(topic.name, partition).id
        rows.append(
            {
                "error_code": ErrorCode.none,
                "partition_index": partition,
                "leader_id": leader,
                "leader_epoch": 0,
                "replica_nodes": [leader],
                "isr_nodes": [leader],
                "offline_replicas": [],
            }
        )
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": False,
        "partitions": rows,
        "topic_authorized_operations": NO_AUTHORIZATION,
    }


def _missing(asked: dict[str, Any], version: int) -> dict[str, Any]:
    if _names_an_id(asked):
        return _absent(None if version >= NULL_NAME_FROM else "", asked["topic_id"], ErrorCode.unknown_topic_id)
    name = asked["name"] or ""
    if name_refusal(name):
        return _absent(name, b"", ErrorCode.invalid_topic_exception)
    # The retriable answer, and never LEADER_NOT_AVAILABLE, which some clients take for fatal.
    return _absent(name, b"", ErrorCode.unknown_topic_or_partition)


def _absent(name: str | None, topic_id: bytes, code: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id or bytes(16),
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": NO_AUTHORIZATION,
    }
