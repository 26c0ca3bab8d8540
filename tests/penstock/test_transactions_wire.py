"""Transactions request by request, on ours and on Apache Kafka: the same requests must get the same answers."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords

from tests.apache_kafka import ON_KAFKA
from tests.patience import eventually
from tests.penstock.conftest import BrokerProcess, StoreProcess, broker_starter
from tests.penstock.group_client import NO_DELAY, GroupClient
from tests.penstock.transactions_wire import DESCRIBE_PRODUCERS, LIST, Producer, TxnClient

LATEST = -1
FENCED, OLD_EPOCH, WRONG_MAPPING, WRONG_STATE = 90, 47, 49, 48
ILLEGAL_GENERATION, UNKNOWN_MEMBER = 22, 25


@pytest.fixture(scope="module")
def broker(valkey: StoreProcess) -> Iterator[BrokerProcess]:
    with broker_starter(valkey) as start:
        yield start(*NO_DELAY)


@pytest.fixture(scope="module", params=["penstock", pytest.param("apache-kafka", marks=ON_KAFKA)])
def port(request: pytest.FixtureRequest) -> int:
    if request.param == "penstock":
        return int(request.getfixturevalue("broker").port)
    return int(request.getfixturevalue("kafka").rpartition(":")[2])


@pytest.fixture
def client(port: int, topic: str) -> Iterator[TxnClient]:
    with TxnClient(port) as client:
        client.create(topic, 3)
        yield client


@pytest.fixture
def name(topic: str) -> str:
    return f"id-{topic}"


def visible(row: dict[str, Any]) -> list[bytes]:
    """What a read_committed consumer shows of a fetched partition, judged by aiokafka's rules."""
    aborted = sorted((one["first_offset"], one["producer_id"]) for one in row["aborted_transactions"] or [])
    shown, hidden = [], set()
    data = MemoryRecords(bytes(row["records"] or b""))
    while data.has_next():
        batch = data.next_batch()
        while aborted and aborted[0][0] <= batch.base_offset:
            hidden.add(aborted.pop(0)[1])
        if batch.is_control_batch:
            hidden.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in hidden):
            shown += [record.value for record in batch]
    return shown


def controls(row: dict[str, Any]) -> list[tuple[int, bytes, bytes]]:
    """(offset, key, first two bytes of the value) of the markers; the rest is an epoch of the coordinator's own."""
    data, found = MemoryRecords(bytes(row["records"] or b"")), []
    while data.has_next():
        batch = data.next_batch()
        if batch.is_control_batch:
            assert batch.is_transactional
            found += [(record.offset, record.key, record.value[:2]) for record in batch]
    return found


def test_a_commit_shows_everything_at_once_and_takes_one_offset(client: TxnClient, topic: str, name: str) -> None:
    producer = client.started(name)
    assert client.add(producer, topic) == [0]
    assert client.send(producer, topic, b"a", b"b") == 0
    before = client.fetched(topic)
    assert (before["high_watermark"], before["last_stable_offset"], visible(before)) == (2, 0, [])
    assert client.offset(topic, LATEST, isolation=1)["offset"] == 0
    assert client.ended(producer, commit=True) == 0
    eventually(lambda: client.fetched(topic)["last_stable_offset"] == 3, "the marker")
    after = client.fetched(topic)
    assert visible(after) == [b"a", b"b"]
    assert controls(after) == [(2, b"\0\0\0\1", b"\0\0")]
    assert not after["aborted_transactions"]
    assert client.offset(topic, LATEST, isolation=1)["offset"] == 3


def test_aborted_records_are_named_and_stay_hidden(client: TxnClient, topic: str, name: str) -> None:
    producer = client.started(name)
    for at, commit in enumerate([True, False, True]):
        assert client.add(producer, topic) == [0]
        assert client.send(producer, topic, b"%d" % at, sequence=at) == 0
        assert client.ended(producer, commit=commit) == 0
    eventually(lambda: client.fetched(topic)["last_stable_offset"] == 6, "the last marker")
    row = client.fetched(topic)
    assert visible(row) == [b"0", b"2"]
    assert [(one["producer_id"], one["first_offset"]) for one in row["aborted_transactions"]] == [(producer.id, 2)]
    assert [key for _, key, _ in controls(row)] == [b"\0\0\0\1", b"\0\0\0\0", b"\0\0\0\1"]
    assert not client.fetched(topic, 4)["aborted_transactions"], "it ended before this offset"


def test_a_reader_far_behind_is_told_only_of_aborts_in_what_it_gets(broker: BrokerProcess, topic: str) -> None:
    with TxnClient(broker.port) as client:
        client.create(topic)
        producer = client.started(topic)
        for number in range(3):
            assert client.add(producer, topic) == [0]
            assert client.send(producer, topic, b"aborted", sequence=number) == 0
            assert client.ended(producer, commit=False) == 0
        whole = client.fetched(topic)
        assert [one["first_offset"] for one in whole["aborted_transactions"]] == [0, 2, 4]
        one_batch = client.fetch(topic, 2, isolation=1, partition_max=1)
        assert [one["first_offset"] for one in one_batch["aborted_transactions"]] == [2]
        assert visible(whole) == visible(one_batch) == []


def test_an_open_transaction_holds_back_what_others_write_behind_it(client: TxnClient, topic: str, name: str) -> None:
    slow, quick = client.started(name), client.started(f"{name}-2")
    assert client.add(slow, topic) + client.add(quick, topic) == [0, 0]
    assert client.send(slow, topic, b"slow") == 0
    assert client.send(quick, topic, b"quick") == 0
    assert client.ended(quick, commit=True) == 0
    eventually(lambda: client.fetch(topic, 0)["high_watermark"] == 3, "the marker")
    assert visible(client.fetched(topic)) == []
    assert client.ended(slow, commit=False) == 0
    eventually(lambda: client.fetched(topic)["last_stable_offset"] == 4, "the marker")
    assert visible(client.fetched(topic)) == [b"quick"]


def test_a_new_instance_fences_the_old_and_aborts_what_it_left(client: TxnClient, topic: str, name: str) -> None:
    old = client.started(name)
    assert client.add(old, topic) == [0]
    assert client.send(old, topic, b"half") == 0
    new = client.started(name)
    assert new.id == old.id
    assert new.epoch > old.epoch
    assert client.send(old, topic, b"late", sequence=1) == OLD_EPOCH
    assert client.add(old, topic, version=1) == [OLD_EPOCH]
    assert client.add(old, topic, version=2) == [FENCED]
    assert client.add_group(old, "g", version=1) == OLD_EPOCH
    assert client.add_group(old, "g", version=2) == FENCED
    assert client.end(old, commit=True, version=1) == OLD_EPOCH
    assert client.end(old, commit=True, version=2) == FENCED
    assert client.init(name, known=(old.id, old.epoch), version=3)["error_code"] == OLD_EPOCH
    assert client.init(name, known=(old.id, old.epoch), version=4)["error_code"] == FENCED
    assert client.add(new, topic) == [0]
    assert client.send(new, topic, b"whole") == 0
    assert client.ended(new, commit=True) == 0
    eventually(lambda: client.fetched(topic)["last_stable_offset"] == 4, "the marker")
    assert visible(client.fetched(topic)) == [b"whole"]


def test_nothing_can_be_written_outside_a_transaction(client: TxnClient, topic: str, name: str) -> None:
    producer = client.started(name)
    assert client.send(producer, topic, b"early") == WRONG_STATE
    assert client.add(producer, topic, 1) == [0]
    assert client.send(producer, topic, b"elsewhere") == WRONG_STATE
    assert client.send(producer, topic, b"here", partition=1) == 0
    assert client.ended(producer, commit=True) == 0
    eventually(lambda: client.fetch_many([(topic, 1, 0)])[0]["high_watermark"] == 2, "the marker")
    assert client.send(producer, topic, b"late", partition=1, sequence=1) == WRONG_STATE
    assert client.fetch_many([(topic, 1, 0)])[0]["high_watermark"] == 2


def test_ending_twice_is_the_same_as_ending_once(client: TxnClient, topic: str, name: str) -> None:
    producer = client.started(name)
    assert client.end(producer, commit=True) == WRONG_STATE
    for commit in (True, False):
        assert client.add(producer, topic) == [0]
        assert client.ended(producer, commit=commit) == 0
        assert client.ended(producer, commit=commit) == 0
        assert client.ended(producer, commit=not commit) == WRONG_STATE


def test_a_stranger_is_told_so(client: TxnClient, topic: str, name: str) -> None:
    producer = client.started(name)
    nobody = Producer(f"{name}-unknown", producer.id, 0)
    other_id = producer._replace(id=producer.id + 1000)
    for stranger in (nobody, other_id):
        client.find(1, stranger.name)
        assert client.add(stranger, topic) == [WRONG_MAPPING]
        assert client.add_group(stranger, "g") == WRONG_MAPPING
        assert client.end(stranger, commit=True) == WRONG_MAPPING
    future = producer._replace(epoch=producer.epoch + 1)
    assert client.add(future, topic) == [FENCED]
    assert client.end(future, commit=True) == FENCED


def test_bad_requests_are_refused_and_change_nothing(client: TxnClient, topic: str, name: str) -> None:
    producer = client.started(name)
    assert client.init("")["error_code"] == 42
    assert client.init(name, timeout_ms=15 * 60 * 1000 + 1)["error_code"] == 50
    assert client.init(name, timeout_ms=0)["error_code"] == 50
    assert client.init(name, known=(producer.id, -1))["error_code"] == 42
    assert client.init(name, known=(producer.id + 1000, 0))["error_code"] == FENCED
    assert client.add(producer, topic, 0, 3, 1) == [55, 3, 55]
    assert client.described(name)["transaction_state"] == "Empty"
    assert client.described(name)["producer_epoch"] == producer.epoch


def test_a_producer_that_lost_an_answer_may_bump_its_epoch_again(client: TxnClient, name: str) -> None:
    producer = client.started(name)
    first = client.init(name, known=(producer.id, producer.epoch))
    again = client.init(name, known=(producer.id, producer.epoch))
    assert (first["error_code"], first["producer_epoch"]) == (0, producer.epoch + 1)
    assert (again["error_code"], again["producer_epoch"]) == (0, producer.epoch + 1)
    further = client.init(name, known=(producer.id, producer.epoch + 1))
    assert (further["error_code"], further["producer_epoch"]) == (0, producer.epoch + 2)
    assert client.init(name, known=(producer.id, producer.epoch))["error_code"] == FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_wait_for_the_end_of_their_transaction(client: TxnClient, topic: str, name: str, commit: bool) -> None:
    group = f"group-{topic}"
    producer = client.started(name)
    assert client.add_group(producer, group) == 0
    assert client.send_offset(producer, group, topic, 7) == 0
    assert client.committed(group, topic, stable=True)[0] == 88
    assert client.committed(group, topic, stable=False) == (0, -1)
    assert client.ended(producer, commit=commit) == 0
    eventually(lambda: client.committed(group, topic)[0] == 0, "the offset to become stable")
    assert client.committed(group, topic) == (0, 7 if commit else -1)


def test_offsets_sent_after_their_transaction_ended_are_refused(client: TxnClient, topic: str, name: str) -> None:
    group = f"group-{topic}"
    producer = client.started(name)
    assert client.send_offset(producer, group, topic, 5) == WRONG_STATE
    assert client.add_group(producer, group) == 0
    assert client.send_offset(producer, group, topic, 7) == 0
    assert client.ended(producer, commit=True) == 0
    eventually(lambda: client.committed(group, topic) == (0, 7), "the offset")
    assert client.send_offset(producer, group, topic, 9) == WRONG_STATE
    assert client.committed(group, topic) == (0, 7)


def test_the_last_word_wins_inside_and_outside_of_a_transaction(client: TxnClient, topic: str, name: str) -> None:
    group = f"group-{topic}"
    producer = client.started(name)
    assert client.add_group(producer, group) == 0
    assert client.send_offset(producer, group, topic, 7) == 0
    sent = time.time()
    eventually(lambda: time.time() > sent + 0.002, "the clock to move")
    assert client.commit_offset(group, topic, 9) == 0
    assert client.ended(producer, commit=True) == 0
    eventually(lambda: client.committed(group, topic)[0] == 0, "the offset to become stable")
    assert client.committed(group, topic) == (0, 9)


def test_only_a_member_of_this_generation_commits_offsets(client: TxnClient, port: int, topic: str, name: str) -> None:
    group = f"group-{topic}"
    client.find(0, group)
    producer = client.started(name)
    assert client.add_group(producer, group) == 0
    with GroupClient(port) as member:
        eventually(lambda: member.join(group)["error_code"] == 79, "the coordinator of the group")
        joined = member.enter(group)
        assert member.sync(group, joined, {joined["member_id"]: b""})["error_code"] == 0
        me = {"member_id": joined["member_id"], "generation_id": joined["generation_id"]}
        assert client.send_offset(producer, group, topic, 1, **{**me, "member_id": "nobody"}) == UNKNOWN_MEMBER
        assert client.send_offset(producer, group, topic, 2, **{**me, "generation_id": 99}) == ILLEGAL_GENERATION
        assert client.send_offset(producer, group, topic, 3, **{**me, "group_instance_id": "x"}) == UNKNOWN_MEMBER
        assert client.committed(group, topic) == (0, -1), "nothing waits"
        assert client.send_offset(producer, group, topic, 4, **me) == 0
        assert client.ended(producer, commit=True) == 0
        eventually(lambda: client.committed(group, topic) == (0, 4), "the offset")


def test_of_many_instances_that_start_at_once_each_has_an_epoch_of_its_own(
    client: TxnClient, port: int, name: str
) -> None:
    client.started(name)

    def start_some() -> list[int]:
        with TxnClient(port) as one:
            return [one.started(name).epoch for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        epochs = [epoch for running in [pool.submit(start_some) for _ in range(4)] for epoch in running.result(60)]
    assert sorted(epochs) == list(range(1, 21))


def test_a_hanging_transaction_is_aborted_and_its_producer_fenced(client: TxnClient, topic: str, name: str) -> None:
    producer = client.started(name, timeout_ms=500)
    assert client.add(producer, topic) == [0]
    assert client.send(producer, topic, b"hangs") == 0
    assert client.fetched(topic)["last_stable_offset"] == 0
    eventually(lambda: client.fetched(topic)["last_stable_offset"] == 2, "the time-out")
    assert visible(client.fetched(topic)) == []
    assert client.end(producer, commit=True) == FENCED
    assert client.send(producer, topic, b"more", sequence=1) == OLD_EPOCH
    assert client.started(name).epoch > producer.epoch


def test_operators_see_transactions(client: TxnClient, topic: str, name: str) -> None:
    producer = client.started(name)
    assert client.add(producer, topic, 0, 2) == [0, 0]
    assert client.send(producer, topic, b"a") == 0
    seen = client.described(name)
    assert (seen["transaction_state"], seen["producer_id"], seen["error_code"]) == ("Ongoing", producer.id, 0)
    assert [(one["topic"], sorted(one["partitions"])) for one in seen["topics"]] == [(topic, [0, 2])]
    assert seen["transaction_start_time"] > 0
    listed = client.call(LIST, 0, {"state_filters": ["Ongoing", "Nonsense"], "producer_id_filters": [producer.id]})
    assert listed["unknown_state_filters"] == ["Nonsense"]
    assert [row["transactional_id"] for row in listed["transaction_states"]] == [name]
    old = {"state_filters": [], "producer_id_filters": [producer.id], "duration_filter": 3_600_000}
    assert client.call(LIST, 1, old)["transaction_states"] == []
    asked = {"topics": [{"name": topic, "partition_indexes": [0]}]}
    [row] = client.call(DESCRIBE_PRODUCERS, 0, asked)["topics"][0]["partitions"][0]["active_producers"]
    assert (row["producer_id"], row["current_txn_start_offset"]) == (producer.id, 0)
    assert client.ended(producer, commit=True) == 0
    eventually(lambda: client.described(name)["transaction_state"] == "CompleteCommit", "the end")
    assert client.described(f"{name}-unknown")["error_code"] == 105
