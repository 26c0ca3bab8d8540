"""A cluster as the store: partitions live in different slots on different nodes, and nobody notices."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from aisle.embedded.server import free_port
from tests.patience import eventually
from tests.penstock.batches import batch_of
from tests.penstock.conftest import StartBroker, StoreProcess
from tests.penstock.test_log import values
from tests.penstock.test_open_layout import OpenClient


def cluster_state(port: int) -> str:
    with redis.Redis(port=port) as client:
        return str(client.execute_command("CLUSTER INFO")["cluster_state"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[StoreProcess]]:
    nodes = []
    buses = [free_port(), free_port()]  # the usual one, 10000 above the port, may not exist
    for number, bus in enumerate(buses):
        folder = tmp_path / str(number)
        folder.mkdir()
        nodes.append(StoreProcess(free_port(), folder, extra=("--cluster-enabled", "yes", "--cluster-port", str(bus))))
    for node in nodes:
        node.start()
    with redis.Redis(port=nodes[0].port) as first, redis.Redis(port=nodes[1].port) as second:
        first.execute_command("CLUSTER ADDSLOTSRANGE", 0, 8191)
        second.execute_command("CLUSTER ADDSLOTSRANGE", 8192, 16383)
        first.execute_command("CLUSTER MEET", "127.0.0.1", nodes[1].port, buses[1])
    eventually(lambda: all(cluster_state(node.port) == "ok" for node in nodes), "the cluster to form")
    yield nodes
    for node in nodes:
        node.kill()


def test_topics_records_and_both_layouts_work_on_a_cluster(
    start_broker: StartBroker, cluster: list[StoreProcess], topic: str
) -> None:
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster)
    broker = start_broker(store=cluster[0], store_url=url)
    with OpenClient(broker.port) as client:
        client.create(topic, partitions=16)
        data = batch_of(b"a", b"b", producer_id=1, epoch=0, sequence=0)
        for partition in range(16):
            assert client.produce(topic, data, partition=partition)["base_offset"] == 0
            assert client.produce(topic, data, partition=partition)["base_offset"] == 0, "known on every node"
        rows = client.fetch_many([(topic, partition, 0) for partition in range(16)])
        assert [values(row) for row in rows] == [[(0, b"a"), (1, b"b")]] * 16
        open_topic = topic + "-open"
        client.create_open(open_topic)
        base = client.produce(open_topic, batch_of(b"x", b"y"))["base_offset"]
        assert client.read_all(open_topic, base) == [(base, b"x"), (base + 1, b"y")]
        found = []
        for node in cluster:
            with redis.Redis(port=node.port) as store:
                found.append(sum(1 for _ in store.scan_iter(f"*{{{topic}:*:log")))
        assert sum(found) == 16
        assert min(found) > 0, "both nodes hold some of it"
        client.call(20, 6, {"topics": [{"name": topic, "topic_id": bytes(16)}], "timeout": 1000})
        for node in cluster:
            with redis.Redis(port=node.port) as store:
                assert not list(store.scan_iter(f"*{{{topic}:*"))
