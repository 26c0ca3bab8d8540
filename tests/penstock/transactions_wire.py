"""A producer of a few lines that sends transaction requests one by one, in the order a test wants."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.patience import eventually
from tests.penstock.batches import batch_of
from tests.penstock.test_log import PRODUCE, LogClient

FIND_COORDINATOR, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, TXN_OFFSETS = 10, 22, 24, 25, 26, 28
OFFSET_COMMIT, OFFSET_FETCH, DESCRIBE_PRODUCERS, DESCRIBE, LIST = 8, 9, 61, 65, 66
NOT_READY = (14, 15, 16)  # the coordinator is loading, not available, elsewhere
CONCURRENT = 51
COMMITTED = 1


class Producer(NamedTuple):
    name: str
    id: int
    epoch: int


class TxnClient(LogClient):
    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Apache Kafka answers before its partitions can be written to."""
        super().create(topic, partitions, **configs)
        wanted = [(topic, number, 0) for number in range(partitions)]
        eventually(lambda: all(row["error_code"] == 0 for row in self.fetch_many(wanted)), "the partitions")

    def find(self, kind: int, key: str) -> None:
        """Make the coordinator get ready; Apache Kafka creates its topics only now."""
        asked = {"key": key, "key_type": kind}
        eventually(lambda: self.call(FIND_COORDINATOR, 1, asked)["error_code"] == 0, "a coordinator")

    def init(
        self, name: str | None, *, version: int = 4, timeout_ms: int = 60_000, known: tuple[int, int] = (-1, -1)
    ) -> Any:
        message = {"transactional_id": name, "transaction_timeout": timeout_ms}
        return self.call(INIT, version, {**message, "producer_id": known[0], "producer_epoch": known[1]})

    def started(self, name: str, *, timeout_ms: int = 60_000) -> Producer:
        """What a client does before its first transaction: ask until the coordinator is ready."""
        self.find(1, name)
        answer: dict[str, Any] = {}

        def ready() -> bool:
            answer.update(self.init(name, timeout_ms=timeout_ms))
            return answer["error_code"] not in (*NOT_READY, CONCURRENT)

        eventually(ready, "InitProducerId")
        assert answer["error_code"] == 0, answer
        return Producer(name, answer["producer_id"], answer["producer_epoch"])

    def add(self, producer: Producer, topic: str, *partitions: int, version: int = 3) -> list[int]:
        def once() -> list[int]:
            message = {
                "v3_and_below_transactional_id": producer.name,
                "v3_and_below_producer_id": producer.id,
                "v3_and_below_producer_epoch": producer.epoch,
                "v3_and_below_topics": [{"name": topic, "partitions": list(partitions or (0,))}],
            }
            [row] = self.call(ADD_PARTITIONS, version, message)["results_by_topic_v3_and_below"]
            codes = {one["partition_index"]: one["partition_error_code"] for one in row["results_by_partition"]}
            return [codes[partition] for partition in partitions or (0,)]

        return _settled(once)

    def add_group(self, producer: Producer, group: str, *, version: int = 3) -> int:
        return _settled(
            lambda: [self.call(ADD_OFFSETS, version, {**_body(producer), "group_id": group})["error_code"]]
        )[0]

    def end(self, producer: Producer, commit: bool, *, version: int = 3) -> int:
        return int(self.call(END, version, {**_body(producer), "committed": commit})["error_code"])

    def ended(self, producer: Producer, commit: bool, *, version: int = 3) -> int:
        return _settled(lambda: [self.end(producer, commit, version=version)])[0]

    def send(self, producer: Producer, topic: str, *values: bytes, sequence: int = 0, partition: int = 0) -> int:
        """The code of a transactional Produce."""
        who = {"producer_id": producer.id, "epoch": producer.epoch}
        # Apache Kafka starts a new segment when the marker is a week younger than the data.
        now_ms = time.time_ns() // 1_000_000
        data = batch_of(*values, **who, sequence=sequence, transactional=True, timestamp=now_ms)
        row = {"name": topic, "partition_data": [{"index": partition, "records": data}]}
        message = {"transactional_id": producer.name, "acks": -1, "timeout": 9000, "topic_data": [row]}
        return int(self.call(PRODUCE, 9, message)["responses"][0]["partition_responses"][0]["error_code"])

    def send_offset(self, producer: Producer, group: str, topic: str, offset: int, **who: Any) -> int:
        self.find(0, group)
        row = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "m",
        }
        member = {"generation_id": -1, "member_id": "", "group_instance_id": None, **who}
        message = {**_body(producer), "group_id": group, **member, "topics": [{"name": topic, "partitions": [row]}]}

        def once() -> list[int]:
            [answered] = self.call(TXN_OFFSETS, 3, message)["topics"]
            return [answered["partitions"][0]["error_code"]]

        return _settled(once)[0]

    def commit_offset(self, group: str, topic: str, offset: int) -> int:
        """Outside of any transaction, by nobody in particular."""
        row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
        nobody = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        message = {"group_id": group, **nobody, "topics": [{"name": topic, "partitions": [row]}]}
        return int(self.call(OFFSET_COMMIT, 7, message)["topics"][0]["partitions"][0]["error_code"])

    def committed(self, group: str, topic: str, *, stable: bool = True) -> tuple[int, int]:
        """(code, offset)"""
        self.find(0, group)
        message = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}], "require_stable": stable}

        def once() -> list[int]:
            answer = self.call(OFFSET_FETCH, 7, message)
            if answer["error_code"]:
                return [answer["error_code"], -1]
            row = answer["topics"][0]["partitions"][0]
            return [row["error_code"], row["committed_offset"]]

        code, offset = _settled(once)
        return code, offset

    def fetched(self, topic: str, offset: int = 0) -> dict[str, Any]:
        """A read_committed fetch."""
        return self.fetch(topic, offset, isolation=COMMITTED)

    def described(self, name: str) -> dict[str, Any]:
        [row] = self.call(DESCRIBE, 0, {"transactional_ids": [name]})["transaction_states"]
        return dict(row)


def _body(producer: Producer) -> dict[str, Any]:
    return {"transactional_id": producer.name, "producer_id": producer.id, "producer_epoch": producer.epoch}


def _settled(once: Callable[[], list[int]]) -> list[int]:
    """Ask until the coordinator is ready and done with the transaction before, as clients do."""
    codes: list[int] = []

    def ready() -> bool:
        codes[:] = once()
        return codes[0] not in (*NOT_READY, CONCURRENT)

    eventually(ready, "the coordinator")
    return codes
