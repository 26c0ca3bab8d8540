"""Configs, log sizes, producers and deletions, asked for by real admin clients."""

import json
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from penstock.topic_config import KNOWN
from tests.patience import eventually
from tests.penstock.batches import batch_of
from tests.penstock.conftest import BrokerProcess, StartBroker
from tests.penstock.test_log import LogClient
from tests.penstock.wire import RawClient

DESCRIBE_LOG_DIRS, DESCRIBE_CLUSTER, DESCRIBE_PRODUCERS, DELETE_RECORDS, ALTER_CONFIGS = 35, 60, 61, 21, 33


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


@pytest.fixture
def client(broker: BrokerProcess) -> Any:
    with LogClient(broker.port) as client:
        yield client


def configs_of(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    [future] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    found: dict[str, ConfigEntry] = future.result(30)
    return found


def change(admin: AdminClient, topic: str, name: str, value: str, operation: AlterConfigOpType) -> None:
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    [future] = admin.incremental_alter_configs([resource]).values()
    future.result(30)


def stored_configs(broker: BrokerProcess, topic: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(broker.store.hget(f"{{{broker.keyspace}}}:topic:{topic}", "configs"))
    return found


def test_a_topic_tells_all_its_configs_and_which_of_them_were_set(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, config={"cleanup.policy": "compact"})])[topic].result(30)
    found = configs_of(admin, topic)
    assert set(found) == set(KNOWN)
    assert found["cleanup.policy"].value == "compact"
    assert ConfigSource(found["cleanup.policy"].source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert found["retention.ms"].value == "604800000"
    assert found["retention.ms"].is_default


def test_configs_are_set_appended_subtracted_and_deleted_in_the_store(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    change(admin, topic, "retention.ms", "5000", AlterConfigOpType.SET)
    change(admin, topic, "cleanup.policy", "compact", AlterConfigOpType.APPEND)
    assert stored_configs(broker, topic) == {"retention.ms": "5000", "cleanup.policy": "delete,compact"}
    change(admin, topic, "cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    change(admin, topic, "retention.ms", "", AlterConfigOpType.DELETE)
    assert stored_configs(broker, topic) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("name", "value", "operation"),
    [
        ("no.such", "1", AlterConfigOpType.SET),
        ("retention.ms", "soon", AlterConfigOpType.SET),
        ("max.message.bytes", "-5", AlterConfigOpType.SET),
        ("retention.ms", "5", AlterConfigOpType.APPEND),
        ("penstock.layout", "entries", AlterConfigOpType.SET),
    ],
)
def test_configs_that_make_no_sense_are_refused_and_change_nothing(
    broker: BrokerProcess, admin: AdminClient, topic: str, name: str, value: str, operation: AlterConfigOpType
) -> None:
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        change(admin, topic, name, value, operation)
    assert stored_configs(broker, topic) == {}


def test_the_old_alter_replaces_everything_that_was_set(broker: BrokerProcess, client: LogClient, topic: str) -> None:
    client.create(topic, retention_ms="1", max_message_bytes="2")
    configs = [{"name": "retention.bytes", "value": "3"}]
    row = {"resource_type": 2, "resource_name": topic, "configs": configs}
    [answer] = client.call(ALTER_CONFIGS, 2, {"resources": [row], "validate_only": False})["responses"]
    assert answer["error_code"] == 0
    assert stored_configs(broker, topic) == {"retention.bytes": "3"}


def test_a_broker_can_be_described(admin: AdminClient) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    [future] = admin.describe_configs([resource]).values()
    assert future.result(30)["num.partitions"].value == "4"
    described = admin.describe_cluster().result(30)
    assert [node.id for node in described.nodes] == [1]


def test_max_message_bytes_can_be_raised_and_holds_at_once(client: LogClient, admin: AdminClient, topic: str) -> None:
    client.create(topic, max_message_bytes="500")
    data = batch_of(b"x" * 600)
    assert client.produce(topic, data)["error_code"] == 10
    change(admin, topic, "max.message.bytes", "5000", AlterConfigOpType.SET)
    assert client.produce(topic, data)["error_code"] == 0


def test_log_dirs_tell_the_bytes_of_every_partition(client: LogClient, topic: str) -> None:
    client.create(topic, partitions=2)
    data = batch_of(b"abc")
    client.produce(topic, data)
    client.produce(topic, data)
    [result] = client.call(DESCRIBE_LOG_DIRS, 4, {"topics": None})["results"]
    [row] = [row for row in result["topics"] if row["name"] == topic]
    assert {p["partition_index"]: p["partition_size"] for p in row["partitions"]} == {0: 2 * len(data), 1: 0}


def test_producers_of_a_partition_are_listed(client: LogClient, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a", b"b", producer_id=9, epoch=3, sequence=0))
    message = {"topics": [{"name": topic, "partition_indexes": [0, 7]}]}
    known, unknown = client.call(DESCRIBE_PRODUCERS, 0, message)["topics"][0]["partitions"]
    [producer] = known["active_producers"]
    assert (producer["producer_id"], producer["producer_epoch"], producer["last_sequence"]) == (9, 3, 1)
    assert unknown["error_code"] == 3


def test_deleting_records_moves_the_beginning_and_frees_whole_batches(
    broker: BrokerProcess, client: LogClient, topic: str, admin: AdminClient
) -> None:
    client.create(topic)
    data = batch_of(b"a", b"b", b"c")
    for _ in range(4):
        client.produce(topic, data)
    deleted = admin.delete_records([TopicPartition(topic, 0, 7)])
    assert next(iter(deleted.values())).result(30).low_watermark == 7
    assert broker.store.xlen(broker.key(topic, 0, "log")) == 2, "the batch that holds 7 stays whole"
    assert client.fetch(topic, 6)["error_code"] == 1
    assert client.fetch(topic, 7)["log_start_offset"] == 7
    [result] = client.call(DESCRIBE_LOG_DIRS, 4, {"topics": [{"topic": topic, "partitions": [0]}]})["results"]
    assert result["topics"][0]["partitions"][0]["partition_size"] == 2 * len(data)
    deleted = admin.delete_records([TopicPartition(topic, 0, 13)])
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        next(iter(deleted.values())).result(30)
    deleted = admin.delete_records([TopicPartition(topic, 0, -1)])
    assert next(iter(deleted.values())).result(30).low_watermark == 12
    earliest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()})
    latest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
    assert [next(iter(f.values())).result(30).offset for f in (earliest, latest)] == [12, 12]


def test_retention_by_age_keeps_the_young_and_what_shares_their_batch(start_broker: StartBroker, topic: str) -> None:
    import time

    broker = start_broker("--retention-interval", "0.1")
    now_ms = int(time.time() * 1000)
    with LogClient(broker.port) as client:
        client.create(topic, retention_ms="3600000")
        for age_h in (5, 4, 3, 0, 2):
            client.produce(topic, batch_of(b"a", b"b", timestamp=now_ms - age_h * 3_600_000))
        eventually(lambda: client.offset(topic, -2)["offset"] == 6, "the three old batches to go")
        assert broker.store.xlen(broker.key(topic, 0, "log")) == 2, "an old batch behind a young one stays"
        assert client.offset(topic, -1)["offset"] == 10


def test_retention_by_age_empties_a_log_that_is_all_old(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker("--retention-interval", "0.1")
    with LogClient(broker.port) as client:
        client.create(topic, retention_ms="1000")
        client.produce(topic, batch_of(b"a", b"b", timestamp=1000))
        eventually(lambda: client.offset(topic, -2)["offset"] == 2, "the log to be empty")
        assert client.produce(topic, batch_of(b"c"))["base_offset"] == 2, "offsets are never given twice"


def test_retention_by_size_keeps_at_least_the_bytes_asked_for(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker("--retention-interval", "0.1")
    data = batch_of(b"x" * 1000, timestamp=2**42)
    with LogClient(broker.port) as client:
        client.create(topic, retention_bytes=str(3 * len(data) - 10))
        for _ in range(10):
            client.produce(topic, data)
        eventually(lambda: client.offset(topic, -2)["offset"] == 7, "seven batches to go")
        assert broker.store.xlen(broker.key(topic, 0, "log")) == 3


def test_a_compacted_topic_is_not_trimmed_by_age(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker("--retention-interval", "0.1")
    with LogClient(broker.port) as client:
        client.create(topic, cleanup_policy="compact", retention_ms="1")
        other = topic + "-witness"
        client.create(other, retention_ms="1")
        for name in (topic, other):
            client.produce(name, batch_of(b"a", timestamp=1000))
        eventually(lambda: client.offset(other, -2)["offset"] == 1, "the other topic to be trimmed")
        assert client.offset(topic, -2)["offset"] == 0


def test_describe_cluster_refuses_other_endpoints(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        message = {"include_cluster_authorized_operations": False, "endpoint_type": 2}
        assert client.call(DESCRIBE_CLUSTER, 1, message)["error_code"] == 115


def test_an_idempotent_producer_survives_a_restart_of_the_broker_without_a_duplicate(
    start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker()
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True, "linger.ms": 0})

    def send(first: int, last: int) -> None:
        for n in range(first, last):
            producer.produce(topic, str(n), partition=0, on_delivery=lambda error, _: errors.append(error))
            producer.poll(0)

    send(0, 500)
    assert producer.flush(60) == 0
    send(500, 600)
    broker.stop(9)
    send(600, 1000)
    broker.start()
    assert producer.flush(60) == 0
    assert set(errors) == {None}
    from tests.penstock.test_log import values

    seen: list[bytes | None] = []
    with LogClient(broker.port) as client:
        while len(seen) < 1000:
            found = [value for _, value in values(client.fetch(topic, len(seen)))]
            assert found, f"only {len(seen)} records"
            seen += found
    assert seen == [str(n).encode() for n in range(1000)]
