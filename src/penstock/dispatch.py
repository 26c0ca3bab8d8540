"""The one table of what this broker speaks, and the path of a request through it.

    key -> Api(key, name, lowest version, highest version, function, decodes_itself)

ApiVersions and docs/reference are generated from `APIS`; an API that is not here does not exist for clients.
Ranges and the traps behind them: a client drops whole features when a range is too narrow, so never narrow one.

To add an API: write `async def name(broker: Broker, request: Request) -> Answer` in `api/<family>.py` and add a row.
- `request.body` is the decoded request, a dict with kio's field names for that version; fields a version does not
  have are absent, so read them with `.get(name, default)`. Times are integers in ms, UUIDs 16 raw bytes, arrays lists.
- Return a dict with the response fields of the highest version; those a lower version lacks are left out when it is
  encoded, and `throttle_time` may be omitted. Error codes are kio's `ErrorCode` members. Return None for no answer,
  or the list of encoded body buffers (hot paths).
- `broker` (see `broker.Broker`) carries config, clock, store line, `scripts.run_many([Call(...)])`, `keys`, `topics`,
  `log`, `waiters`, `producer_ids`. Tasks that live as long as the broker are started in `serve.running_broker`.
- Requests of one connection run one after the other, those of different connections interleave at every await:
  decide and act in one script, never across an await. An awaiting function is cancelled when its client goes away.
- A `respline.ResplineError` that escapes closes the connection; turn it into `store_error_code(error)` (errors.py)
  where the response has a place for a code. Any other exception that escapes is a bug: it is logged with its
  traceback and the connection closed.
"""

import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from penstock.api import (
    authenticate,
    cluster,
    configs,
    coordinator,
    fetch,
    group_admin,
    groups,
    list_offsets,
    log_dirs,
    metadata,
    offsets,
    produce,
    producers,
    records,
    topics,
    transactions,
    versions,
)
from penstock.broker import Broker
from penstock.limits import COLD_FRAME_BYTES_MAX
from penstock.request import Answer, Buffers, Request, Session
from penstock.wire.read import Malformed, read_header, read_request
from penstock.wire.schema import request_plan, response_header_is_flexible
from penstock.wire.write import response_bytes

API_VERSIONS = 18
PRODUCE = 0
PRODUCE_KEY = PRODUCE.to_bytes(2, "big")
ROUTE = struct.Struct(">hhi")


class Api(NamedTuple):
    key: int
    name: str
    low: int
    high: int
    run: Callable[[Broker, Request], Awaitable[Answer]]
    decodes_itself: bool = False


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(0, "Produce", 0, 11, produce.produce, decodes_itself=True),  # librdkafka wants 0 listed; 0-2 are refused
        Api(1, "Fetch", 4, 16, fetch.fetch, decodes_itself=True),
        Api(2, "ListOffsets", 1, 8, list_offsets.list_offsets),
        Api(3, "Metadata", 0, 12, metadata.metadata),
        Api(8, "OffsetCommit", 2, 9, offsets.offset_commit),
        Api(9, "OffsetFetch", 1, 9, offsets.offset_fetch),
        Api(10, "FindCoordinator", 0, 5, coordinator.find_coordinator),
        Api(11, "JoinGroup", 0, 9, groups.join_group),  # old librdkafka wants 0 listed, kafka-go sends 1
        Api(12, "Heartbeat", 0, 4, groups.heartbeat),
        Api(13, "LeaveGroup", 0, 5, groups.leave_group),
        Api(14, "SyncGroup", 0, 5, groups.sync_group),
        Api(15, "DescribeGroups", 0, 5, group_admin.describe_groups),
        Api(16, "ListGroups", 0, 5, group_admin.list_groups),
        Api(17, "SaslHandshake", 0, 1, authenticate.sasl_handshake),  # this and 36 are listed only where users log in
        Api(18, "ApiVersions", 0, 4, versions.api_versions),
        Api(19, "CreateTopics", 2, 7, topics.create_topics),
        Api(20, "DeleteTopics", 1, 6, topics.delete_topics),
        Api(21, "DeleteRecords", 0, 2, records.delete_records),
        Api(22, "InitProducerId", 0, 4, producers.init_producer_id),
        Api(23, "OffsetForLeaderEpoch", 2, 4, list_offsets.offset_for_leader_epoch),  # librdkafka needs exactly 2
        Api(24, "AddPartitionsToTxn", 0, 3, transactions.add_partitions_to_txn),  # librdkafka and aiokafka send 0
        Api(25, "AddOffsetsToTxn", 0, 3, transactions.add_offsets_to_txn),
        Api(26, "EndTxn", 0, 3, transactions.end_txn),
        Api(28, "TxnOffsetCommit", 0, 3, transactions.txn_offset_commit),
        Api(32, "DescribeConfigs", 1, 4, configs.describe_configs),
        Api(33, "AlterConfigs", 0, 2, configs.alter_configs),
        Api(35, "DescribeLogDirs", 1, 4, log_dirs.describe_log_dirs),
        Api(36, "SaslAuthenticate", 0, 2, authenticate.sasl_authenticate),
        Api(37, "CreatePartitions", 0, 3, topics.create_partitions),
        Api(42, "DeleteGroups", 0, 2, group_admin.delete_groups),
        Api(44, "IncrementalAlterConfigs", 0, 1, configs.incremental_alter_configs),
        Api(47, "OffsetDelete", 0, 0, offsets.offset_delete),
        Api(60, "DescribeCluster", 0, 1, cluster.describe_cluster),
        Api(61, "DescribeProducers", 0, 0, log_dirs.describe_producers),
        Api(65, "DescribeTransactions", 0, 0, transactions.describe_transactions),
        Api(66, "ListTransactions", 0, 1, transactions.list_transactions),
    )
}


def belong_together(frame: bytes, following: bytes) -> bool:
    """Whether `answer` takes both at once: both append, in the same version."""
    return frame[:2] == PRODUCE_KEY and frame[:4] == following[:4]


async def answer(broker: Broker, session: Session, frames: Sequence[bytes]) -> Buffers | None:
    """The response frames of one request frame, or of several that belong together, as buffers; None when the protocol
    says nothing is sent.

    Raises Malformed for what Kafka answers by closing the connection; then nothing of any of them was done.
    """
    first = frames[0]
    if session.bare_tokens:
        return authenticate.bare_token(broker, session, first)
    api, version, correlation_id = _route(broker, session, first)
    if not api.low <= version <= api.high:
        # A client that is newer than we are learns from a version 0 answer which versions it may use.
        unsupported = {"error_code": ErrorCode.unsupported_version, "api_keys": versions.ranges([api])}
        return [response_bytes(API_VERSIONS, 0, correlation_id, unsupported)]
    if len(frames) > 1:
        return await _answer_appends(broker, session, frames)
    return _framed(api.key, version, correlation_id, await api.run(broker, _request(broker, session, api, first)))


async def _answer_appends(broker: Broker, session: Session, frames: Sequence[bytes]) -> Buffers | None:
    routes = [_route(broker, session, frame) for frame in frames]
    requests = [_request(broker, session, api, frame) for (api, _, _), frame in zip(routes, frames, strict=True)]
    buffers: Buffers = []
    for (api, version, correlation_id), reply in zip(routes, await produce.produce_all(broker, requests), strict=True):
        buffers += _framed(api.key, version, correlation_id, reply) or ()
    return buffers or None


def _route(broker: Broker, session: Session, frame: bytes) -> tuple[Api, int, int]:
    """Which API in which version is asked for, and the correlation id. Of ApiVersions a version may be unknown."""
    if len(frame) < ROUTE.size:
        raise Malformed(f"a request of {len(frame)} bytes")
    api_key, version, correlation_id = ROUTE.unpack_from(frame)
    api = APIS.get(api_key)
    if api is None:
        raise Malformed(f"unknown API key {api_key}")
    if not authenticate.may_ask(broker, session, api_key):
        raise Malformed(f"{api.name} before logging in" if broker.users else f"{api.name}, but nobody logs in here")
    if not api.low <= version <= api.high and api_key != API_VERSIONS:
        raise Malformed(f"{api.name} version {version} is not supported")
    return api, version, correlation_id


def _request(broker: Broker, session: Session, api: Api, frame: bytes) -> Request:
    if len(frame) > COLD_FRAME_BYTES_MAX and api.key != PRODUCE:
        raise Malformed(f"{api.name} request of {len(frame)} bytes")
    header = read_header(frame, _flexible)
    request = Request(api.key, header.version, header.client_id, session, frame, header.body_at)
    if not api.decodes_itself:
        request.body = read_request(api.key, header.version, frame, header.body_at)
    broker.metrics.requests[api.name] += 1
    return request


def _flexible(api_key: int, version: int) -> bool:
    # Produce 0 to 2 are listed and refused; kio no longer has their schemas.
    return not (api_key == PRODUCE and version < 3) and request_plan(api_key, version).flexible


def _framed(api_key: int, version: int, correlation_id: int, reply: Answer) -> Buffers | None:
    if reply is None:
        return None
    if isinstance(reply, dict):
        return [response_bytes(api_key, version, correlation_id, reply)]
    flexible = not (api_key == PRODUCE and version < 3) and response_header_is_flexible(api_key, version)
    size = 4 + flexible + sum(map(len, reply))
    head = struct.pack(">ii", size, correlation_id) + (b"\0" if flexible else b"")
    return [head, *reply]
