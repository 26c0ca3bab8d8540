"""Committed offsets: what is stored, who may move it, and when it is forgotten."""

import dataclasses
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.config import Address, Config
from penstock.group_members import Claim, Join, Sync
from penstock.serve import running_broker
from penstock.store.offsets import Offset, Position
from penstock.store.topics import NewTopic
from tests.patience import eventually
from tests.penstock.conftest import BrokerProcess, StartBroker, StoreProcess, broker_starter
from tests.penstock.group_client import NO_DELAY, OFFSET_DELETE, GroupClient, stored_group, stored_offsets

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(scope="module")
def broker(valkey: StoreProcess) -> Iterator[BrokerProcess]:
    with broker_starter(valkey) as start:
        yield start(*NO_DELAY)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[GroupClient]:
    with GroupClient(broker.port) as client:
        yield client


@pytest.fixture
def group(topic: str) -> str:
    return f"group of {topic}"


def test_a_commit_is_stored_with_all_that_belongs_to_it(
    broker: BrokerProcess, client: GroupClient, topic: str, group: str
) -> None:
    client.create_topic(topic)
    codes = client.commit(group, {(topic, 0): (42, "where I was: søk 7"), (topic, 3): 7})
    assert set(codes.values()) == {0}
    stored = stored_offsets(broker, group)
    offset, epoch, commit_ms, _, metadata = stored[f"{topic}:0".encode()].decode().split(" ", 4)
    assert (offset, epoch, metadata) == ("42", "0", "where I was: søk 7")
    assert int(commit_ms) > 1_600_000_000_000
    expected = {(topic, 0): (42, 0, "where I was: søk 7"), (topic, 1): (-1, -1, ""), (topic, 3): (7, 0, "")}
    assert client.committed(group, {topic: [0, 1, 3]}) == expected
    assert client.committed(group) == {(topic, 0): (42, 0, "where I was: søk 7"), (topic, 3): (7, 0, "")}
    assert client.groups()[group] == "Empty", "a group that is only a place for offsets"


@pytest.mark.parametrize("version", range(1, 10))
def test_every_version_of_fetch_reads_what_every_version_of_commit_wrote(
    client: GroupClient, topic: str, group: str, version: int
) -> None:
    client.create_topic(topic)
    row = {"partition_index": 1, "committed_offset": 9, "committed_leader_epoch": 0, "committed_metadata": "m"}
    message = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [{"name": topic, "partitions": [row]}],
    }
    assert client.call(8, max(version, 2), message)["topics"][0]["partitions"][0]["error_code"] == 0
    topics = [{"name": topic, "partition_indexes": [1]}]
    asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}
    answer = client.call(9, version, {**asked, "groups": [asked], "require_stable": True})
    found = answer["groups"][0] if version >= 8 else answer
    partition = found["topics"][0]["partitions"][0]
    assert (partition["committed_offset"], partition["metadata"], partition["error_code"]) == (9, "m", 0)


def test_several_groups_are_read_with_one_request(client: GroupClient, topic: str, group: str) -> None:
    client.create_topic(topic)
    for n in range(3):
        client.commit(f"{group}{n}", {(topic, 0): n})
    asked = [
        {"group_id": f"{group}{n}", "member_id": None, "member_epoch": -1, "topics": topics}
        for n, topics in enumerate([None, [{"name": topic, "partition_indexes": [0]}], None, None])
    ]
    answer = client.call(9, 9, {"groups": asked, "require_stable": False})["groups"]
    assert [row["group_id"] for row in answer] == [f"{group}{n}" for n in range(4)]
    offsets = [[p["committed_offset"] for t in row["topics"] for p in t["partitions"]] for row in answer]
    assert offsets == [[0], [1], [2], []]


def test_what_cannot_be_committed_is_refused_and_the_rest_is_stored(
    broker: BrokerProcess, client: GroupClient, topic: str, group: str
) -> None:
    client.create_topic(topic, partitions=2)
    nowhere = f"{topic}-nowhere"
    long = "x" * 4097
    codes = client.commit(group, {(topic, 0): 5, (topic, 2): 5, (topic, -1): 5, (nowhere, 0): 5, (topic, 1): (5, long)})
    assert codes == {(topic, 0): 0, (topic, 2): 3, (topic, -1): 3, (nowhere, 0): 3, (topic, 1): 12}
    assert set(stored_offsets(broker, group)) == {f"{topic}:0".encode()}
    assert client.commit(group, {(topic, 1): (5, long[1:])}) == {(topic, 1): 0}


def test_only_members_of_this_generation_commit_to_a_group_at_work(
    broker: BrokerProcess, client: GroupClient, topic: str, group: str
) -> None:
    client.create_topic(topic)
    at = {(topic, 0): 1}

    def commit(member_id: str, generation: int) -> int:
        [code] = client.commit(group, at, member_id=member_id, generation_id_or_member_epoch=generation).values()
        return code

    assert commit("m", 1) == 22, "a generation of a group that does not exist"
    joined = client.enter(group)
    member = joined["member_id"]
    assert commit(member, 1) == 27, "the work is not given out yet"
    client.sync(group, joined, {member: b""})
    assert (commit("", -1), commit("stranger", 1), commit(member, 0), commit(member, 2)) == (25, 25, 22, 22)
    assert stored_offsets(broker, group) == {}
    assert commit(member, 1) == 0
    assert stored_offsets(broker, group)
    client.leave(group, (member, None))
    assert commit(member, 1) == 25
    assert commit("", -1) == 0, "tools may set the offsets of an empty group"


def test_offsets_can_be_deleted_but_not_under_a_reader(
    broker: BrokerProcess, client: GroupClient, topic: str, group: str
) -> None:
    client.create_topic(topic)
    client.commit(group, {(topic, 0): 5, (topic, 1): 6})
    metadata = b"\0\1\0\0\0\1" + len(topic).to_bytes(2, "big") + topic.encode() + b"\xff\xff\xff\xff"
    joined = client.enter(group, protocols=[{"name": "range", "metadata": metadata}])
    client.sync(group, joined, {})

    def delete(group: str, *partitions: int) -> tuple[int, list[int]]:
        rows = [{"partition_index": partition} for partition in partitions]
        answer = client.call(*OFFSET_DELETE, {"group_id": group, "topics": [{"name": topic, "partitions": rows}]})
        return answer["error_code"], [p["error_code"] for t in answer["topics"] for p in t["partitions"]]

    assert delete(group, 0) == (0, [86])
    assert len(stored_offsets(broker, group)) == 2
    client.leave(group, (joined["member_id"], None))
    assert delete(group, 0, 77) == (0, [0, 3])
    assert set(stored_offsets(broker, group)) == {f"{topic}:1".encode()}
    assert delete(f"{group}?", 0) == (69, [])


def test_a_topic_made_again_under_the_same_name_has_no_offsets(client: GroupClient, topic: str, group: str) -> None:
    client.create_topic(topic)
    client.commit(group, {(topic, 0): 5})
    client.delete_topic(topic)
    assert client.committed(group) == {}
    client.create_topic(topic)
    assert client.committed(group, {topic: [0]}) == {(topic, 0): (-1, -1, "")}
    assert client.committed(group) == {}


def test_lag_is_the_end_of_the_log_minus_the_committed_offset(broker: BrokerProcess, topic: str, group: str) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for n in range(10):
        producer.produce(topic, str(n), partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group, "enable.auto.commit": False})
    at = TopicPartition(topic, 0, 4, metadata="four")
    [done] = consumer.commit(offsets=[at], asynchronous=False)
    assert done.error is None
    [committed] = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.close()
    assert (committed.offset, committed.metadata, end - committed.offset) == (4, "four", 6)


def in_process(valkey: StoreProcess, **changes: object) -> Config:
    settings = Config(Address("127.0.0.1", 0), valkey.url, keyspace=f"offsets-{uuid.uuid4().hex}")
    return dataclasses.replace(settings, **changes)  # type: ignore[arg-type]


async def test_offsets_of_a_group_long_empty_are_forgotten_and_the_group_with_them(valkey: StoreProcess) -> None:
    async with running_broker(in_process(valkey)) as broker:
        await broker.topics.create([NewTopic("t", 2, {}), NewTopic("gone", 1, {})])
        ids = {name: topic.id_text for name, topic in broker.topics.by_name.items()}
        now = broker.now_ms()
        nobody = Claim("", None, -1)
        offset = Offset(1, 0, now, ids["t"], "")
        await broker.offsets.commit("fresh", nobody, {Position("t", 0): offset})
        old = offset._replace(commit_ms=now - 8 * DAY_MS)
        await broker.offsets.commit("both", nobody, {Position("t", 0): old, Position("t", 1): offset})
        await broker.offsets.commit("old", nobody, {Position("t", 0): old})
        orphan = offset._replace(topic_id=ids["gone"])
        await broker.offsets.commit("orphan", nobody, {Position("gone", 0): orphan, Position("t", 0): offset})
        for held in broker.groups.in_memory():
            for group in held.groups.values():
                group.changed_ms = now - 8 * DAY_MS
        await broker.topics.delete([broker.topics.by_name["gone"]])
        await broker.offsets.sweep(now - 7 * DAY_MS, [topic.id_text for topic in broker.topics.by_name.values()])
        found = await broker.offsets.fetch([(name, None) for name in ("fresh", "both", "old", "orphan")])
        assert [set(row) for row in found if isinstance(row, dict)] == [
            {Position("t", 0)},
            {Position("t", 1)},
            set(),
            {Position("t", 0)},
        ]
        names = {name for held in broker.groups.in_memory() for name in held.groups}
        assert names == {"fresh", "both", "orphan"}
        keys = [key async for key in _keys(broker.store, f"{broker.config.keyspace}:*off:old")]
        assert keys == []


async def _keys(store: object, pattern: str) -> object:
    for key in await store.call("KEYS", pattern):  # type: ignore[attr-defined]
        yield key


async def test_offsets_of_a_group_at_work_do_not_age(valkey: StoreProcess) -> None:
    async with running_broker(in_process(valkey, group_initial_delay_ms=0)) as broker:
        await broker.topics.create([NewTopic("t", 1, {})])
        ids = [topic.id_text for topic in broker.topics.by_name.values()]
        asked = Join("", None, "c", "/h", 10_000, 10_000, "consumer", (("range", b""),), "member", False, False)
        joined = await broker.groups.join("g", asked)
        claim = Claim(joined.member_id, None, joined.generation)
        await broker.groups.sync("g", Sync(claim, None, None, {}))
        offset = {Position("t", 0): Offset(1, 0, 0, ids[0], "")}
        assert await broker.offsets.commit("g", claim, offset) == 0
        await broker.offsets.sweep(broker.now_ms() + DAY_MS, ids)
        assert await broker.offsets.fetch([("g", None)]) == [offset]
        await broker.groups.leave("g", [(joined.member_id, None)])
        await broker.offsets.sweep(broker.now_ms() + DAY_MS, ids)
        assert await broker.offsets.fetch([("g", None)]) == [{}]


def test_a_store_that_is_away_gives_a_retriable_code_and_then_all_works_again(
    start_broker: StartBroker, own_valkey: StoreProcess, topic: str, group: str
) -> None:
    broker = start_broker(*NO_DELAY, "--store-timeout", "1", store=own_valkey)
    with GroupClient(broker.port) as client:
        client.create_topic(topic)
        joined = client.enter(group)
        client.sync(group, joined, {joined["member_id"]: b"w"})
        who = {"member_id": joined["member_id"], "generation_id_or_member_epoch": 1}
        assert client.commit(group, {(topic, 0): 1}, **who) == {(topic, 0): 0}
        own_valkey.kill()
        assert client.commit(group, {(topic, 0): 2}, **who) == {(topic, 0): 15}
        assert client.heartbeat(group, joined) == 0, "nobody loses the group for it"
        own_valkey.start()
        eventually(lambda: client.commit(group, {(topic, 0): 3}, **who) == {(topic, 0): 0}, "commits to work again")
        assert client.committed(group)[topic, 0][0] == 3
        assert client.heartbeat(group, joined) == 0
        assert stored_group(broker, group)[b"generation"] == b"1"
