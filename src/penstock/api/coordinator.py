"""FindCoordinator: which broker keeps a group or a transactional id."""

from typing import Any

from kio.schema.errors import ErrorCode

from penstock.broker import Broker
from penstock.request import Answer, Request

GROUP, TRANSACTION = 0, 1


async def find_coordinator(broker: Broker, request: Request) -> Answer:
    kind = request.body.get("key_type", GROUP)
    if request.version >= 4:
        return {"coordinators": [_coordinator(broker, kind, key) for key in request.body["coordinator_keys"]]}
    return _coordinator(broker, kind, request.body["key"])


def _coordinator(broker: Broker, kind: int, key: str) -> dict[str, Any]:
    if kind not in (GROUP, TRANSACTION):
        return _refused(key, ErrorCode.invalid_request, f"Unknown coordinator type {kind}.")
    if not key and kind == TRANSACTION:
        return _refused(key, ErrorCode.invalid_request, "A transactional id must not be empty.")
    node = broker.coordination.node_for(key)
    return {
        "key": key,
        "node_id": node.id,
        "host": node.host,
        "port": node.port,
        "error_code": ErrorCode.none,
        "error_message": None,
    }


def _refused(key: str, code: ErrorCode, why: str) -> dict[str, Any]:
    return {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": why}
