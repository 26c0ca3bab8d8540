"""What operators use: metrics, health, inspect, bench."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request

from aisle.embedded.server import free_port
from tests import children
from tests.patience import eventually
from tests.penstock.batches import batch_of
from tests.penstock.conftest import BrokerProcess, StartBroker, StoreProcess
from tests.penstock.group_client import NO_DELAY
from tests.penstock.test_groups_clients import Reader, poll_until, produce
from tests.penstock.test_log import LogClient
from tests.penstock.transactions_wire import TxnClient


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def penstock(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "penstock.cli", *arguments]
    return children.run(command, capture_output=True, text=True, timeout=120)


def inspected(broker: BrokerProcess, *view: str) -> list[dict[str, object]]:
    ended = penstock("inspect", *view, "--store", broker.store_url, "--keyspace", broker.keyspace, "--json")
    assert ended.returncode == 0, ended.stderr
    rows: list[dict[str, object]] = json.loads(ended.stdout)[view[0]]
    return rows


def test_metrics_count_what_happened(start_broker: StartBroker, topic: str) -> None:
    port = free_port()
    broker = start_broker("--metrics-listen", f"127.0.0.1:{port}")
    with LogClient(broker.port) as client:
        client.create(topic, partitions=3)
        data = batch_of(b"a", b"b", producer_id=1, epoch=0, sequence=0)
        client.produce(topic, data)
        client.produce(topic, data)
        client.produce(topic, data[:-1] + b"!")
        client.fetch(topic, 0)
        status, text = page(port, "/metrics")
    found = dict(re.findall(r"^(penstock_\S+) (\S+)$", text, re.MULTILINE))
    assert status == 200
    assert float(found["penstock_produced_records_total"]) == 2
    assert float(found["penstock_duplicate_batches_total"]) == 1
    assert float(found['penstock_refused_batches_total{error="corrupt_message"}']) == 1
    assert float(found['penstock_requests_total{api="Produce"}']) == 3
    assert float(found["penstock_fetched_bytes_total"]) == len(data)
    assert float(found["penstock_partitions"]) == 3
    assert float(found["penstock_connections"]) == 1


def test_metrics_of_groups_tell_members_rebalances_and_lag(start_broker: StartBroker, topic: str) -> None:
    port = free_port()
    broker = start_broker(*NO_DELAY, "--metrics-listen", f"127.0.0.1:{port}")

    def found(name: str, *labels: tuple[str, str]) -> float | None:
        told = ",".join(f'{key}="{value}"' for key, value in labels)
        wanted = f"penstock_group_{name}{{{told}}}"
        values = dict(re.findall(r"^(penstock_group\S+) (\S+)$", page(port, "/metrics")[1], re.MULTILINE))
        return float(values[wanted]) if wanted in values else None

    mine = ("group", f"{topic}-readers")
    produce(broker.address, topic, range(40))
    reader = Reader(broker.address, mine[1], topic)
    poll_until([reader], lambda: len(reader.read) == 40, "all records")
    assert found("members", mine) == 1
    first = found("rebalances_total", mine)
    assert first is not None
    assert first >= 1
    reader.consumer.commit(asynchronous=False)
    assert found("lag", mine, ("topic", topic)) == 0
    produce(broker.address, topic, range(7))
    assert found("lag", mine, ("topic", topic)) == 7
    reader.consumer.close()
    eventually(lambda: found("members", mine) == 0, "the member to leave")
    assert found("rebalances_total", mine) > first
    assert found("lag", mine, ("topic", topic)) == 7, "a group without members is behind all the same"


def test_readiness_follows_the_store_and_liveness_does_not(start_broker: StartBroker, own_valkey: StoreProcess) -> None:
    port = free_port()
    start_broker("--metrics-listen", f"127.0.0.1:{port}", store=own_valkey)
    assert page(port, "/readyz") == (200, "ready\n")
    assert page(port, "/nowhere")[0] == 404
    own_valkey.kill()
    eventually(lambda: page(port, "/readyz")[0] == 503, "the store's death to be noticed")
    assert page(port, "/livez") == (200, "alive\n")
    assert "penstock_store_failures_total" in page(port, "/metrics")[1]
    own_valkey.start()
    eventually(lambda: page(port, "/readyz")[0] == 200, "the broker to be ready again")


def test_inspect_shows_topics_partitions_brokers_and_keys(broker: BrokerProcess, topic: str) -> None:
    with LogClient(broker.port) as client:
        client.create(topic, partitions=2, retention_ms="1234")
        data = batch_of(b"a", b"b", b"c")
        client.produce(topic, data, partition=1)
    [row] = [row for row in inspected(broker, "topics") if row["topic"] == topic]
    assert (row["partitions"], row["records"], row["bytes"]) == (2, 3, len(data))
    assert json.loads(str(row["configs"])) == {"retention.ms": "1234"}
    assert [(r["start"], r["end"], r["entries"]) for r in inspected(broker, "partitions", topic)] == [
        (0, 0, 0),
        (0, 3, 1),
    ]
    assert [(r["node"], r["port"]) for r in inspected(broker, "brokers")] == [(1, broker.port)]
    keys = {row["key"]: (row["type"], row["size"]) for row in inspected(broker, "keys", topic)}
    assert keys[broker.key(topic, 1, "log")] == ("stream", 1)


def test_inspect_shows_transactions_and_what_they_hold(broker: BrokerProcess, topic: str) -> None:
    open_id, done_id = f"{topic}-open", f"{topic}-done"
    with TxnClient(broker.port) as client:
        client.create(topic, partitions=2)
        opened, done = client.started(open_id, timeout_ms=45_000), client.started(done_id)
        for producer in (opened, done):
            assert client.add(producer, topic, 1) == [0]
        assert client.add_group(opened, "readers") == 0
        assert client.ended(done, commit=True) == 0
        eventually(
            lambda: inspected(broker, "transactions", done_id)[0]["state"] == "CompleteCommit", "the commit to finish"
        )
        [row] = inspected(broker, "transactions", open_id)
        assert {name: row[name] for name in ("state", "producer_id", "epoch", "partitions", "groups")} == {
            "state": "Ongoing",
            "producer_id": opened.id,
            "epoch": opened.epoch,
            "partitions": f"{topic}:1",
            "groups": "readers",
        }
        assert int(str(row["due_ms"])) == int(str(row["started_ms"])) + 45_000, "when it is aborted for being too old"
        assert {open_id, done_id} <= {row["transactional_id"] for row in inspected(broker, "transactions")}
        assert client.ended(opened, commit=False) == 0
    refused = penstock("inspect", "transactions", "nobody", "--store", broker.store_url, "--keyspace", broker.keyspace)
    assert (refused.returncode, refused.stderr) == (
        2,
        f"penstock: no transactional id 'nobody' in keyspace {broker.keyspace!r}\n",
    )


def test_inspect_prints_a_table_and_refuses_what_is_not_there(broker: BrokerProcess, topic: str) -> None:
    with LogClient(broker.port) as client:
        client.create(topic)
    where = ["--store", broker.store_url, "--keyspace", broker.keyspace]
    assert topic in penstock("inspect", "topics", *where).stdout
    refused = penstock("inspect", "partitions", "nowhere", *where)
    assert (refused.returncode, refused.stderr) == (
        2,
        f"penstock: no topic 'nowhere' in keyspace {broker.keyspace!r}\n",
    )


def test_bench_prints_one_json_object_with_the_names_that_stay() -> None:
    ended = penstock("bench", "--json", "--records", "2000", "--consumers", "20")
    assert ended.returncode == 0, ended.stderr
    figures = json.loads(ended.stdout)
    rates = {"produce_records_per_s", "consume_records_per_s", "roundtrip_p50_ms", "roundtrip_p99_ms", "rss_mb"}
    assert all(figures[name] > 0 for name in rates)
    assert (figures["idle_consumers"], figures["idle_partitions"], figures["idle_fetches_per_s"] > 0) == (20, 180, True)
    assert {"machine", "commit", "started_at", "ratio_kafka_produce_records_per_s"} <= set(figures)
    assert figures["ratio_kafka_produce_records_per_s"] is None
