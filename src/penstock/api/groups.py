"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the classic group protocol on the wire. Rules: `group_members`."""

import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.broker import Broker
from penstock.group_members import Claim, Join, Sync
from penstock.request import Answer, Request

KNOWS_ITS_ID, SKIPS_ASSIGNMENT, NULL_PROTOCOL, MANY_LEAVE = 4, 9, 7, 3  # first versions that do so


async def join_group(broker: Broker, request: Request) -> Answer:
    body = request.body
    instance_id = body.get("group_instance_id")
    client_id = request.client_id or ""
    asked = Join(
        member_id=body["member_id"],
        instance_id=instance_id,
        client_id=client_id,
        client_host=f"/{request.session.host}",
        session_ms=body["session_timeout"],
        rebalance_ms=max(body.get("rebalance_timeout", body["session_timeout"]), 0),
        protocol_type=body["protocol_type"],
        protocols=tuple({row["name"]: row["metadata"] for row in body["protocols"]}.items()),
        fresh_id=f"{client_id if instance_id is None else instance_id}-{uuid.uuid4()}",
        must_know_its_id=request.version >= KNOWS_ITS_ID,
        may_skip_assignment=request.version >= SKIPS_ASSIGNMENT,
    )
    joined = await broker.groups.join(body["group_id"], asked)
    nameless = None if request.version >= NULL_PROTOCOL else ""
    return {
        "error_code": joined.code,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol if joined.protocol is not None else nameless,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in joined.members
        ],
    }


async def sync_group(broker: Broker, request: Request) -> Answer:
    body = request.body
    asked = Sync(
        _claim(body),
        body.get("protocol_type"),
        body.get("protocol_name"),
        {row["member_id"]: row["assignment"] for row in body["assignments"]},
    )
    synced = await broker.groups.sync(body["group_id"], asked)
    return {
        "error_code": synced.code,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


async def heartbeat(broker: Broker, request: Request) -> Answer:
    return {"error_code": await broker.groups.heartbeat(request.body["group_id"], _claim(request.body))}


async def leave_group(broker: Broker, request: Request) -> Answer:
    body = request.body
    rows = body["members"] if request.version >= MANY_LEAVE else [{"member_id": body["member_id"]}]
    who = [(row["member_id"], row.get("group_instance_id")) for row in rows]
    codes = await broker.groups.leave(body["group_id"], who)
    if isinstance(codes, ErrorCode):
        return {"error_code": codes, "members": []}
    if request.version < MANY_LEAVE:
        return {"error_code": codes[0]}
    return {
        "error_code": ErrorCode.none,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": code}
            for (member_id, instance_id), code in zip(who, codes, strict=True)
        ],
    }


def _claim(body: dict[str, Any]) -> Claim:
    return Claim(body["member_id"], body.get("group_instance_id"), body["generation_id"])
