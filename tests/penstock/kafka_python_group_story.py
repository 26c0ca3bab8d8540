"""Run as a program by test_groups_clients: kafka-python leaves sockets to the garbage collector.

Arguments: address, topic (four partitions, forty numbers), group. Prints what happened as JSON. Records keep coming
while consumers come and go, and polls may take long: kafka-python 3.0 forgets a join that outlives its poll.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

PATIENCE_S = 180.0
POLL_MS = 30_000


def main(address: str, topic: str, group: str) -> None:
    first, second = (consumer(address, topic, group) for _ in range(2))
    values: list[int] = []
    while len(values) < 40:
        values += [int(m.value) for rows in first.poll(POLL_MS).values() for m in rows]
    first.commit()
    with in_thread(trickle, KafkaProducer(bootstrap_servers=address), topic):
        with in_thread(poll, first):
            with in_thread(poll, second):
                until(lambda: (len(first.assignment()), len(second.assignment())) == (2, 2))
                shared = [len(first.assignment()), len(second.assignment())]
            second.close()
            until(lambda: len(first.assignment()) == 4)
        told = {
            "values": values,
            "shared": shared,
            "taken_over": len(first.assignment()),
            "committed": first.committed(TopicPartition(topic, 0)),
            **described(address, group),
        }
        first.close()
    sys.stdout.write(json.dumps(told))


def consumer(address: str, topic: str, group: str) -> Any:
    return KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=10_000,
    )


@contextmanager
def in_thread(work: Callable[..., None], *args: Any) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(*args, stop), daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join(PATIENCE_S)


def poll(reader: Any, stop: threading.Event) -> None:
    while not stop.is_set():
        reader.poll(POLL_MS)


def trickle(producer: Any, topic: str, stop: threading.Event) -> None:
    while not stop.wait(0.05):
        for partition in range(4):
            producer.send(topic, b"0", partition=partition)
    producer.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def described(address: str, group: str) -> dict[str, Any]:
    admin = KafkaAdminClient(bootstrap_servers=address)
    row = admin.describe_groups([group])[group]
    admin.close()
    return {"state": row["group_state"], "members": len(row["members"])}


if __name__ == "__main__":
    main(*sys.argv[1:4])
