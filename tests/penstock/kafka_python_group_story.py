"""Run as a program by test_groups_clients: kafka-python leaves sockets to the garbage collector.

Arguments: address, topic (four partitions), group. Prints what happened as JSON.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

PATIENCE_S = 60.0


def main(address: str, topic: str, group: str) -> None:
    values: list[int] = []

    def consumer() -> Any:
        return KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=10_000,
        )

    def poll_until(readers: list[Any], condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline
            for reader in readers:
                values.extend(int(m.value) for rows in reader.poll(50).values() for m in rows)

    first = consumer()
    poll_until([first], lambda: len(values) == 40)
    first.commit()
    second = consumer()
    poll_until([first, second], lambda: {len(first.assignment()), len(second.assignment())} == {2})
    shared = [len(first.assignment()), len(second.assignment())]
    second.close()
    poll_until([first], lambda: len(first.assignment()) == 4)
    admin = KafkaAdminClient(bootstrap_servers=address)
    described = admin.describe_groups([group])[group]
    told = {
        "values": values,
        "shared": shared,
        "taken_over": len(first.assignment()),
        "committed": first.committed(TopicPartition(topic, 0)),
        "state": described["group_state"],
        "members": len(described["members"]),
    }
    admin.close()
    first.close()
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:4])
