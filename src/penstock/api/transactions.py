"""AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn and the views of operators. Rules: `transactions`.

Clients older than a version of these APIs know a fenced producer by another code; `_told` picks it. A store that
failed is COORDINATOR_NOT_AVAILABLE, which every client answers by asking again; all of these may be repeated.
"""

from typing import Any

from kio.schema.errors import ErrorCode

import respline
from penstock.broker import Broker
from penstock.group_members import Claim
from penstock.limits import OFFSET_METADATA_MAX
from penstock.request import Answer, Request
from penstock.store.offsets import Offset, Position
from penstock.transactions import NONE, Partition, Producer, State, Transaction

KNOWS_FENCED = {22: 4, 24: 2, 25: 2, 26: 2}  # API key -> first version whose clients know PRODUCER_FENCED
AWAY = ErrorCode.coordinator_not_available


async def init_producer_id(broker: Broker, request: Request) -> Answer:
    """The transactional case; `api/producers` has the other."""
    body = request.body
    name, timeout_ms = body["transactional_id"], body["transaction_timeout"]
    expected = Producer(body.get("producer_id", NONE), body.get("producer_epoch", NONE))
    if not name:
        return {"error_code": ErrorCode.invalid_request, "producer_id": NONE, "producer_epoch": NONE}
    try:
        given = await broker.transactions.init_producer(name, timeout_ms, expected)
    except respline.ResplineError:
        broker.metrics.store_failures += 1
        given = AWAY
    if isinstance(given, ErrorCode):
        return {"error_code": _told(request, given), "producer_id": NONE, "producer_epoch": NONE}
    return {"error_code": ErrorCode.none, "producer_id": given.id, "producer_epoch": given.epoch}


async def add_partitions_to_txn(broker: Broker, request: Request) -> Answer:
    body = {name.removeprefix("v3_and_below_"): value for name, value in request.body.items()}
    asked = [(topic["name"], number) for topic in body["topics"] for number in topic["partitions"]]
    refused = {place: code for place in asked if (code := await _partition_refusal(broker, *place))}
    if not body["transactional_id"]:
        codes = dict.fromkeys(asked, ErrorCode.invalid_request)
    elif refused:
        codes = {place: refused.get(place, ErrorCode.operation_not_attempted) for place in asked}
    else:
        partitions = [Partition(name, broker.topics.by_name[name].id_text, number) for name, number in asked]
        codes = dict(zip(asked, await _added(broker, body, partitions), strict=True))
    rows = [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": number, "partition_error_code": _told(request, codes[topic["name"], number])}
                for number in topic["partitions"]
            ],
        }
        for topic in body["topics"]
    ]
    return {"results_by_topic_v3_and_below": rows}


async def add_offsets_to_txn(broker: Broker, request: Request) -> Answer:
    body = request.body
    if not body["transactional_id"]:
        return {"error_code": ErrorCode.invalid_request}
    if not body["group_id"]:
        return {"error_code": ErrorCode.invalid_group_id}
    try:
        code = await broker.transactions.add_group(body["transactional_id"], _producer(body), body["group_id"])
    except respline.ResplineError:
        broker.metrics.store_failures += 1
        code = AWAY
    return {"error_code": _told(request, code)}


async def end_txn(broker: Broker, request: Request) -> Answer:
    body = request.body
    if not body["transactional_id"]:
        return {"error_code": ErrorCode.invalid_request}
    try:
        code = await broker.transactions.end(body["transactional_id"], _producer(body), body["committed"])
    except respline.ResplineError:
        broker.metrics.store_failures += 1
        code = AWAY
    return {"error_code": _told(request, code)}


async def txn_offset_commit(broker: Broker, request: Request) -> Answer:
    body, now_ms = request.body, broker.now_ms()
    refused: dict[Position, ErrorCode] = {}
    accepted: dict[Position, Offset] = {}
    for topic in body["topics"]:
        for row in topic["partitions"]:
            position = Position(topic["name"], row["partition_index"])
            if code := await _offset_refusal(broker, position, row):
                refused[position] = code
                continue
            topic_id = broker.topics.by_name[position.topic].id_text
            epoch, metadata = row.get("committed_leader_epoch", -1), row["committed_metadata"] or ""
            accepted[position] = Offset(row["committed_offset"], epoch, now_ms, topic_id, metadata)
    claim = Claim(body.get("member_id", ""), body.get("group_instance_id"), body.get("generation_id", NONE))
    if not body["group_id"]:
        whole = ErrorCode.invalid_group_id
    else:
        whole = await _kept(broker, body, claim, accepted)
    rows = [
        {
            "name": topic["name"],
            "partitions": [
                {
                    "partition_index": row["partition_index"],
                    "error_code": whole or refused.get(Position(topic["name"], row["partition_index"]), whole),
                }
                for row in topic["partitions"]
            ],
        }
        for topic in body["topics"]
    ]
    return {"topics": rows}


async def describe_transactions(broker: Broker, request: Request) -> Answer:
    names = request.body["transactional_ids"]
    try:
        found = await broker.transactions.described(names)
    except respline.ResplineError:
        broker.metrics.store_failures += 1
        found = [AWAY] * len(names)
    return {"transaction_states": [_described(name, one) for name, one in zip(names, found, strict=True)]}


async def list_transactions(broker: Broker, request: Request) -> Answer:
    body = request.body
    states, producers = set(body["state_filters"]), set(body["producer_id_filters"])
    older_than_ms = body.get("duration_filter", NONE)
    unknown = sorted(states - {state.value for state in State})
    try:
        found = await broker.transactions.listed()
    except respline.ResplineError:
        broker.metrics.store_failures += 1
        return {"error_code": AWAY, "unknown_state_filters": [], "transaction_states": []}
    now_ms = broker.now_ms()
    rows = [
        {"transactional_id": name, "producer_id": one.producer_id, "transaction_state": one.state.value}
        for name, one in found
        if (not states or one.state.value in states)
        and (not producers or one.producer_id in producers)
        and (older_than_ms < 0 or (one.started_ms != NONE and now_ms - one.started_ms > older_than_ms))
    ]
    return {"error_code": ErrorCode.none, "unknown_state_filters": unknown, "transaction_states": rows}


def _producer(body: dict[str, Any]) -> Producer:
    return Producer(body["producer_id"], body["producer_epoch"])


def _told(request: Request, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.producer_fenced and request.version < KNOWS_FENCED[request.api_key]:
        return ErrorCode.invalid_producer_epoch
    return code


async def _added(broker: Broker, body: dict[str, Any], partitions: list[Partition]) -> list[ErrorCode]:
    try:
        return await broker.transactions.add_partitions(body["transactional_id"], _producer(body), partitions)
    except respline.ResplineError:
        broker.metrics.store_failures += 1
        return [AWAY] * len(partitions)


async def _kept(broker: Broker, body: dict[str, Any], claim: Claim, offsets: dict[Position, Offset]) -> ErrorCode:
    try:
        return await broker.transactions.keep_offsets(body["group_id"], claim, _producer(body), offsets)
    except respline.ResplineError:
        broker.metrics.store_failures += 1
        return AWAY


async def _partition_refusal(broker: Broker, name: str, number: int) -> ErrorCode:
    if name not in broker.topics.by_name:
        try:
            await broker.topics.refresh_if_stale()
        except respline.ResplineError:
            broker.metrics.store_failures += 1
    topic = broker.topics.by_name.get(name)
    if topic is None or not 0 <= number < topic.partitions:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.unsupported_for_message_format if topic.settings.open_layout else ErrorCode.none


async def _offset_refusal(broker: Broker, position: Position, row: dict[str, Any]) -> ErrorCode:
    if len(row["committed_metadata"] or "") > OFFSET_METADATA_MAX:
        return ErrorCode.offset_metadata_too_large
    code = await _partition_refusal(broker, *position)
    # Reading a topic in the open layout inside a transaction is fine: only the offset is part of it.
    return ErrorCode.none if code is ErrorCode.unsupported_for_message_format else code


def _described(name: str, found: Transaction | ErrorCode) -> dict[str, Any]:
    if isinstance(found, ErrorCode):
        empty = Transaction(NONE, NONE, State.EMPTY, NONE, NONE)
        return {**_described(name, empty), "error_code": found, "transaction_state": "", "transaction_timeout": 0}
    topics: dict[str, list[int]] = {}
    for partition in found.partitions:
        topics.setdefault(partition.topic, []).append(partition.number)
    return {
        "error_code": ErrorCode.none,
        "transactional_id": name,
        "transaction_state": found.state.value,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
    }
