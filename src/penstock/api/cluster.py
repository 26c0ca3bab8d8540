"""DescribeCluster: who is in it."""

from kio.schema.errors import ErrorCode

from penstock.broker import Broker
from penstock.request import Answer, Request

NO_AUTHORIZATION = -(2**31)  # "operations not asked for": there are no ACLs here


async def describe_cluster(broker: Broker, request: Request) -> Answer:
    if request.body.get("endpoint_type", 1) != 1:
        return {
            "error_code": ErrorCode.unsupported_endpoint_type,
            "error_message": "Only brokers can be described.",
            "cluster_id": broker.cluster_id,
            "controller_id": -1,
            "brokers": [],
        }
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "endpoint_type": 1,
        "cluster_id": broker.cluster_id,
        "controller_id": broker.nodes.live[0].id,
        "brokers": [
            {"broker_id": node.id, "host": node.host, "port": node.port, "rack": None} for node in broker.nodes.live
        ],
        "cluster_authorized_operations": NO_AUTHORIZATION,
    }
