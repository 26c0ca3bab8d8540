"""Topics: made, listed, grown and deleted by real admin clients, seen in the store."""

import json

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.patience import eventually
from tests.penstock.conftest import BrokerProcess, StartBroker
from tests.penstock.wire import RawClient

METADATA, CREATE, DELETE = 3, 19, 20


def admin_of(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


def create(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    configs = {key.replace("_", "."): value for key, value in config.items()}
    [future] = admin.create_topics([NewTopic(name, partitions, config=configs)]).values()
    future.result(30)


def refusal(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> str:
    with pytest.raises(KafkaException) as caught:
        create(admin, name, partitions, **config)
    return str(caught.value.args[0].name())


def test_a_created_topic_is_in_the_store_and_in_the_metadata(broker: BrokerProcess, topic: str) -> None:
    admin = admin_of(broker)
    create(admin, topic, 3, retention_ms="1000")
    stored = broker.store.hgetall(f"{{{broker.keyspace}}}:topic:{topic}")
    assert stored[b"partitions"] == b"3"
    assert stored[b"state"] == b"ready"
    assert json.loads(stored[b"configs"]) == {"retention.ms": "1000"}
    assert broker.store.hget(f"{{{broker.keyspace}}}:topic-ids", stored[b"id"]) == topic.encode()
    assert broker.store.hget(broker.key(topic, 2, "m"), "id") == stored[b"id"]
    assert sorted(admin.list_topics(timeout=30).topics[topic].partitions) == [0, 1, 2]


def test_what_kafka_refuses_is_refused_with_its_code_and_changes_nothing(broker: BrokerProcess, topic: str) -> None:
    admin = admin_of(broker)
    create(admin, topic)
    before = broker.store.smembers(f"{{{broker.keyspace}}}:topics")
    assert refusal(admin, topic) == "TOPIC_ALREADY_EXISTS"
    assert refusal(admin, "no/slash") == "TOPIC_EXCEPTION"
    assert refusal(admin, "x" * 250) == "TOPIC_EXCEPTION"
    assert refusal(admin, "..") == "TOPIC_EXCEPTION"
    assert refusal(admin, "many", 100_000) == "INVALID_PARTITIONS"
    assert refusal(admin, "odd", no_such_config="1") == "INVALID_CONFIG"
    assert refusal(admin, "odd", retention_ms="soon") == "INVALID_CONFIG"
    assert refusal(admin, "odd", cleanup_policy="burn") == "INVALID_CONFIG"
    assert broker.store.smembers(f"{{{broker.keyspace}}}:topics") == before


def test_zero_partitions_are_refused_and_minus_one_takes_the_default(broker: BrokerProcess, topic: str) -> None:
    def ask(name: str, partitions: int) -> dict[str, object]:
        row = {"name": name, "num_partitions": partitions, "replication_factor": -1, "assignments": [], "configs": []}
        with RawClient(broker.port) as client:
            return client.call(CREATE, 7, {"topics": [row], "timeout": 1000, "validate_only": False})["topics"][0]

    assert ask(topic, 0)["error_code"] == 37
    assert ask(topic, -1)["num_partitions"] == 4


def test_validate_only_creates_nothing(broker: BrokerProcess, topic: str) -> None:
    admin = admin_of(broker)
    [future] = admin.create_topics([NewTopic(topic, 1)], validate_only=True).values()
    future.result(30)
    assert not broker.store.sismember(f"{{{broker.keyspace}}}:topics", topic)


def test_a_deleted_topic_leaves_no_key_behind(broker: BrokerProcess, topic: str) -> None:
    admin = admin_of(broker)
    create(admin, topic, 2)
    [future] = admin.delete_topics([topic]).values()
    future.result(30)
    assert not list(broker.store.scan_iter(f"*{topic}*"))
    [future] = admin.delete_topics([topic]).values()
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        future.result(30)


def test_a_topic_grows_and_never_shrinks(broker: BrokerProcess, topic: str) -> None:
    admin = admin_of(broker)
    create(admin, topic, 2)
    [future] = admin.create_partitions([NewPartitions(topic, 5)]).values()
    future.result(30)
    assert broker.store.exists(broker.key(topic, 4, "m"))
    [future] = admin.create_partitions([NewPartitions(topic, 3)]).values()
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        future.result(30)


def test_a_half_made_topic_is_finished_by_the_next_broker(start_broker: StartBroker, topic: str) -> None:
    first = start_broker()
    create(admin_of(first), topic, 3)
    first.stop()
    first.store.hset(f"{{{first.keyspace}}}:topic:{topic}", "state", "creating")
    first.store.delete(first.key(topic, 2, "m"))
    start_broker(keyspace=first.keyspace)
    assert first.store.exists(first.key(topic, 2, "m"))
    assert first.store.hget(f"{{{first.keyspace}}}:topic:{topic}", "state") == b"ready"


def test_a_half_done_deletion_is_finished_by_the_next_broker(start_broker: StartBroker, topic: str) -> None:
    first = start_broker()
    create(admin_of(first), topic, 2)
    first.stop()
    topic_id = first.store.hget(f"{{{first.keyspace}}}:topic:{topic}", "id")
    first.store.delete(f"{{{first.keyspace}}}:topic:{topic}")
    first.store.srem(f"{{{first.keyspace}}}:topics", topic)
    first.store.hset(f"{{{first.keyspace}}}:deleting", topic_id, f"2 {topic}")
    start_broker(keyspace=first.keyspace)
    assert not list(first.store.scan_iter(f"*{topic}*"))
    assert not first.store.exists(f"{{{first.keyspace}}}:deleting")


def test_an_unknown_topic_is_made_only_when_both_sides_agree(start_broker: StartBroker, topic: str) -> None:
    def ask(port: int, allow: bool) -> int:
        message = {
            "topics": [{"name": topic}],
            "allow_auto_topic_creation": allow,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        with RawClient(port) as client:
            return int(client.call(METADATA, 9, message)["topics"][0]["error_code"])

    strict = start_broker("--no-auto-create")
    assert ask(strict.port, True) == 3
    willing = start_broker()
    assert ask(willing.port, False) == 3
    assert ask(willing.port, True) == 0


def test_two_brokers_over_one_store_see_each_other_and_each_others_topics(
    start_broker: StartBroker, topic: str
) -> None:
    first = start_broker("--node-id", "1")
    second = start_broker("--node-id", "2", keyspace=first.keyspace)
    create(admin_of(first), topic, 8)
    admin = admin_of(second)
    assert topic in admin.list_topics(timeout=30).topics
    eventually(lambda: len(admin_of(first).list_topics(timeout=30).brokers) == 2, "both brokers in the metadata")
    leaders = {p.leader for p in admin_of(first).list_topics(timeout=30).topics[topic].partitions.values()}
    assert leaders == {1, 2}


def test_metadata_v0_without_names_lists_all_topics_and_an_id_finds_its_topic(
    broker: BrokerProcess, topic: str
) -> None:
    create(admin_of(broker), topic)
    with RawClient(broker.port) as client:
        everything = client.call(METADATA, 0, {"topics": []})
        assert topic in {row["name"] for row in everything["topics"]}
        ask = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        [named] = client.call(METADATA, 12, {"topics": [{"topic_id": bytes(16), "name": topic}], **ask})["topics"]
        [found] = client.call(METADATA, 12, {"topics": [{"topic_id": named["topic_id"], "name": None}], **ask})[
            "topics"
        ]
        [lost] = client.call(METADATA, 12, {"topics": [{"topic_id": b"\7" * 16, "name": None}], **ask})["topics"]
    assert (found["name"], found["error_code"]) == (topic, 0)
    assert lost["error_code"] == 100


def test_a_topic_of_ten_thousand_partitions_is_made_and_deleted(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker()
    admin = admin_of(broker)
    create(admin, topic, 10_000)
    assert len(admin.list_topics(timeout=60).topics[topic].partitions) == 10_000
    assert broker.store.exists(broker.key(topic, 9_999, "m"))
    [future] = admin.delete_topics([topic]).values()
    future.result(60)
    assert not broker.store.exists(broker.key(topic, 9_999, "m"))
