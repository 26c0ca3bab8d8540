"""DescribeGroups, ListGroups, DeleteGroups: what tools ask. Each broker speaks for the groups it coordinates."""

from typing import Any

from kio.schema.errors import ErrorCode

from penstock.api.cluster import NO_AUTHORIZATION
from penstock.broker import Broker
from penstock.group_state import Group, State
from penstock.request import Answer, Request

CLASSIC = "classic"


async def describe_groups(broker: Broker, request: Request) -> Answer:
    return {"groups": [await _described(broker, name) for name in request.body["groups"]]}


async def list_groups(broker: Broker, request: Request) -> Answer:
    states = {state.lower() for state in request.body.get("states_filter", [])}
    types = {kind.lower() for kind in request.body.get("types_filter", [])}
    if types and CLASSIC not in types:
        return {"error_code": ErrorCode.none, "groups": []}
    rows = [
        {
            "group_id": group.name,
            "protocol_type": group.protocol_type or "",
            "group_state": group.state,
            "group_type": CLASSIC,
        }
        for held in broker.groups.in_memory()
        for group in held.groups.values()
        if not states or group.state.lower() in states
    ]
    return {"error_code": ErrorCode.none, "groups": rows}


async def delete_groups(broker: Broker, request: Request) -> Answer:
    names = dict.fromkeys(request.body["groups_names"])
    return {"results": [{"group_id": name, "error_code": await broker.groups.delete(name)} for name in names]}


async def _described(broker: Broker, name: str) -> dict[str, Any]:
    held = await broker.groups.coordinated(name)
    if isinstance(held, ErrorCode):
        return _row(name, held)
    group = held.groups.get(name)
    if group is None:  # Kafka calls a group that does not exist dead, not an error
        return _row(name, ErrorCode.none, State.DEAD)
    row = _row(name, ErrorCode.none, group.state)
    row["protocol_type"] = group.protocol_type or ""
    row["protocol_data"] = (group.protocol or "") if group.state is State.STABLE else ""
    row["members"] = _members(group)
    return row


def _row(name: str, code: ErrorCode, state: str = "") -> dict[str, Any]:
    return {
        "error_code": code,
        "group_id": name,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": NO_AUTHORIZATION,
    }


def _members(group: Group) -> list[dict[str, Any]]:
    settled = group.state is State.STABLE  # while a rebalance runs, who does what is not known
    return [
        {
            "member_id": member.id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_metadata": member.metadata(group.protocol) if settled else b"",
            "member_assignment": member.assignment if settled else b"",
        }
        for member in group.members.values()
    ]
