"""What the tests of groups share: how brokers are started, and a client that says exactly what it is told."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

from penstock.store.group_keys import CoordinatorKeys
from tests.penstock.conftest import BrokerProcess
from tests.penstock.wire import RawClient

NO_DELAY = ("--group-initial-delay", "0", "--default-partitions", "4")
JOIN, SYNC, HEARTBEAT, LEAVE = (11, 9), (14, 5), (12, 4), (13, 5)
DESCRIBE, LIST, DELETE, COMMIT, FETCH, OFFSET_DELETE = (15, 5), (16, 5), (42, 2), (8, 9), (9, 9), (47, 0)
CREATE_TOPICS, FIND = (19, 7), (10, 4)
SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"


class GroupClient(RawClient):
    def join(self, group: str, member_id: str = "", *, version: int = 9, **changes: Any) -> dict[str, Any]:
        message = {
            "group_id": group,
            "session_timeout": 10_000,
            "rebalance_timeout": 30_000,
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
            "reason": None,
            **changes,
        }
        return self.call(11, version, message)

    def enter(self, group: str, **changes: Any) -> dict[str, Any]:
        """Join as a new member of version 4 and later does: ask for an id, then come back with it."""
        asked = self.join(group, **changes)
        return self.join(group, asked["member_id"], **changes) if asked["error_code"] == 79 else asked

    def sync(
        self, group: str, joined: dict[str, Any], work: dict[str, bytes] | None = None, **changes: Any
    ) -> dict[str, Any]:
        message = {
            "group_id": group,
            "generation_id": joined["generation_id"],
            "member_id": joined["member_id"],
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": name, "assignment": one} for name, one in (work or {}).items()],
            **changes,
        }
        return self.call(*SYNC, message)

    def heartbeat(self, group: str, joined: dict[str, Any], instance: str | None = None) -> int:
        message = {
            "group_id": group,
            "generation_id": joined["generation_id"],
            "member_id": joined["member_id"],
            "group_instance_id": instance,
        }
        return int(self.call(*HEARTBEAT, message)["error_code"])

    def leave(self, group: str, *who: tuple[str, str | None]) -> dict[str, Any]:
        rows = [{"member_id": m, "group_instance_id": i, "reason": None} for m, i in who]
        return self.call(*LEAVE, {"group_id": group, "members": rows})

    def commit(self, group: str, offsets: dict[tuple[str, int], Any], **changes: Any) -> dict[tuple[str, int], int]:
        """Codes by (topic, partition). An offset is a number or (number, metadata)."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), given in offsets.items():
            offset, metadata = given if isinstance(given, tuple) else (given, None)
            row = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": 0}
            rows.setdefault(topic, []).append({**row, "committed_metadata": metadata})
        message = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": partitions} for topic, partitions in rows.items()],
            **changes,
        }
        answer = self.call(*COMMIT, message)
        return {(t["name"], p["partition_index"]): p["error_code"] for t in answer["topics"] for p in t["partitions"]}

    def committed(self, group: str, positions: dict[str, list[int]] | None = None) -> dict[tuple[str, int], Any]:
        """(offset, leader epoch, metadata) by (topic, partition); of all partitions if none are named."""
        topics = None
        if positions is not None:
            topics = [{"name": name, "partition_indexes": indexes} for name, indexes in positions.items()]
        asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}
        [answer] = self.call(*FETCH, {"groups": [asked], "require_stable": False})["groups"]
        assert answer["error_code"] == 0, answer["error_code"]
        return {
            (t["name"], p["partition_index"]): (p["committed_offset"], p["committed_leader_epoch"], p["metadata"])
            for t in answer["topics"]
            for p in t["partitions"]
        }

    def describe(self, group: str) -> dict[str, Any]:
        [row] = self.call(*DESCRIBE, {"groups": [group], "include_authorized_operations": False})["groups"]
        return dict(row)

    def groups(self, states: list[str] | None = None) -> dict[str, str]:
        answer = self.call(*LIST, {"states_filter": states or [], "types_filter": []})
        return {row["group_id"]: row["group_state"] for row in answer["groups"]}

    def delete_group(self, group: str) -> int:
        return int(self.call(*DELETE, {"groups_names": [group]})["results"][0]["error_code"])

    def create_topic(self, name: str, partitions: int = 4) -> None:
        row = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
        answer = self.call(*CREATE_TOPICS, {"topics": [row], "timeout": 1000, "validate_only": False})
        assert answer["topics"][0]["error_code"] == 0

    def delete_topic(self, name: str) -> None:
        answer = self.call(20, 5, {"topic_names": [name], "timeout": 1000})
        assert answer["responses"][0]["error_code"] == 0


@contextmanager
def in_background(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Run `work` beside the block; its result is in the list once the block has ended."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    try:
        yield results
    finally:
        thread.join(60)
        assert not thread.is_alive(), "still waiting for an answer"


def stored_group(broker: BrokerProcess, group: str) -> dict[bytes, bytes]:
    return dict(store_of(broker).hgetall(CoordinatorKeys(broker.keyspace).group(group).group))


def stored_offsets(broker: BrokerProcess, group: str) -> dict[bytes, bytes]:
    return dict(store_of(broker).hgetall(CoordinatorKeys(broker.keyspace).group(group).offsets))


def store_of(broker: BrokerProcess) -> Any:
    client: redis.Redis = broker.store
    return client
