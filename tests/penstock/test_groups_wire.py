"""The group protocol word by word: codes, states and what is in the store after each of them."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from penstock.store.group_keys import CoordinatorKeys
from tests.patience import eventually
from tests.penstock.conftest import BrokerProcess, StartBroker, StoreProcess, broker_starter
from tests.penstock.group_client import NO_DELAY, SUBSCRIPTION, GroupClient, in_background, stored_group


@pytest.fixture(scope="module")
def broker(valkey: StoreProcess) -> Iterator[BrokerProcess]:
    with broker_starter(valkey) as start:
        yield start(*NO_DELAY)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[GroupClient]:
    with GroupClient(broker.port) as client:
        yield client


@pytest.fixture
def other(broker: BrokerProcess) -> Iterator[GroupClient]:
    with GroupClient(broker.port) as client:
        yield client


@pytest.fixture
def group(topic: str) -> str:
    return topic


def alone(client: GroupClient, group: str, **changes: object) -> dict[str, object]:
    joined = client.enter(group, **changes)
    assert joined["error_code"] == 0
    assert client.sync(group, joined, {joined["member_id"]: b"all"})["assignment"] == b"all"
    return joined


@pytest.mark.parametrize("version", range(10))
def test_one_member_joins_syncs_beats_and_leaves_in_every_version(
    client: GroupClient, group: str, version: int
) -> None:
    joined = client.join(group, version=version)
    if version >= 4:
        assert joined["error_code"] == 79
        assert joined["member_id"].startswith("raw-"), "an id is named after the client"
        joined = client.join(group, joined["member_id"], version=version)
    assert (joined["error_code"], joined["generation_id"], joined["protocol_name"]) == (0, 1, "range")
    assert joined["leader"] == joined["member_id"]
    assert [(row["member_id"], row["metadata"]) for row in joined["members"]] == [(joined["member_id"], SUBSCRIPTION)]
    who = {"group_id": group, "member_id": joined["member_id"], "generation_id": 1, "group_instance_id": None}
    work = [{"member_id": joined["member_id"], "assignment": b"w"}]
    sync = {**who, "protocol_type": None, "protocol_name": None, "assignments": work}
    assert client.call(14, min(version, 5), sync)["assignment"] == b"w"
    assert client.call(12, min(version, 4), who)["error_code"] == 0
    members = [{"member_id": joined["member_id"], "group_instance_id": None, "reason": None}]
    assert client.call(13, min(version, 5), {**who, "members": members})["error_code"] == 0
    assert client.describe(group)["group_state"] == "Empty"


def test_a_second_member_makes_the_first_rejoin_and_both_get_their_part(
    broker: BrokerProcess, client: GroupClient, other: GroupClient, group: str
) -> None:
    first = alone(client, group)
    with in_background(lambda: other.enter(group)) as results:
        eventually(lambda: client.heartbeat(group, first) == 27, "the rebalance to be told")
        again = client.join(group, first["member_id"])
    [second] = results
    assert again["generation_id"] == second["generation_id"] == 2
    assert {row["member_id"] for row in again["members"]} == {first["member_id"], second["member_id"]}
    assert second["members"] == []
    with in_background(lambda: other.sync(group, second)) as results:
        work = {again["member_id"]: b"left", second["member_id"]: b"right"}
        assert client.sync(group, again, work)["assignment"] == b"left"
    assert results[0]["assignment"] == b"right"
    stored = stored_group(broker, group)
    assert stored[b"generation"] == b"2"
    assert {row["id"] for row in json.loads(stored[b"members"])} == {first["member_id"], second["member_id"]}


def test_describe_and_list_tell_what_is_there(client: GroupClient, group: str) -> None:
    assert client.describe(group)["group_state"] == "Dead"
    joined = alone(client, group)
    row = client.describe(group)
    assert (row["group_state"], row["protocol_type"], row["protocol_data"]) == ("Stable", "consumer", "range")
    [member] = row["members"]
    assert (member["client_id"], member["client_host"]) == ("raw", "/127.0.0.1")
    assert (member["member_metadata"], member["member_assignment"]) == (SUBSCRIPTION, b"all")
    assert client.groups()[group] == "Stable"
    assert group in client.groups(["stable"])
    assert group not in client.groups(["Empty"])
    assert client.call(16, 5, {"states_filter": [], "types_filter": ["consumer"]})["groups"] == []
    client.leave(group, (str(joined["member_id"]), None))
    assert client.groups()[group] == "Empty"


def test_only_an_empty_group_can_be_deleted_and_then_nothing_is_left(
    broker: BrokerProcess, client: GroupClient, group: str
) -> None:
    client.create_topic(group)
    joined = alone(client, group)
    assert client.delete_group(group) == 68
    client.leave(group, (str(joined["member_id"]), None))
    assert client.commit(group, {(group, 0): 5}) == {(group, 0): 0}
    # An open transaction must not bring the group back when it ends.
    broker.store.hset(CoordinatorKeys(broker.keyspace).group(group).pending, f"1:{group}:0", "9 0 0 id ")
    assert client.delete_group(group) == 0
    assert client.delete_group(group) == 69
    assert list(broker.store.scan_iter(f"{broker.keyspace}:*:{group}")) == []
    assert group not in client.groups()
    assert client.committed(group, {group: [0]})[group, 0][0] == -1


def test_bad_joins_get_kafkas_codes_and_leave_no_group(client: GroupClient, group: str) -> None:
    assert client.join("")["error_code"] == 24
    assert client.join(group, session_timeout=5_999)["error_code"] == 26
    assert client.join(group, session_timeout=1_800_001)["error_code"] == 26
    assert client.join(group, session_timeout=-1)["error_code"] == 26
    assert client.join(group, "stranger")["error_code"] == 25
    assert client.join(group, protocols=[])["error_code"] == 23
    assert client.join(group, protocol_type="")["error_code"] == 23
    assert group not in client.groups()
    alone(client, group)
    assert client.join(group, protocol_type="connect")["error_code"] == 23
    assert client.join(group, protocols=[{"name": "odd", "metadata": b""}])["error_code"] == 23


def test_strangers_and_old_generations_are_refused(client: GroupClient, group: str) -> None:
    nobody = {"member_id": "nobody", "generation_id": 1}
    assert client.heartbeat(group, nobody) == 25
    assert client.sync(group, nobody)["error_code"] == 25
    assert client.heartbeat("", nobody) == 24
    joined = alone(client, group)
    assert client.heartbeat(group, nobody) == 25
    assert client.heartbeat(group, {**joined, "generation_id": 9}) == 22
    assert client.sync(group, {**joined, "generation_id": 0})["error_code"] == 22
    assert client.sync(group, joined, protocol_name="sticky")["error_code"] == 23
    assert client.sync(group, joined, protocol_type="connect")["error_code"] == 23
    left = client.leave(group, ("nobody", None), (str(joined["member_id"]), None))
    assert [row["error_code"] for row in left["members"]] == [25, 0]
    assert client.leave(group, ("nobody", None))["members"][0]["error_code"] == 25


def test_a_silent_member_is_taken_out(start_broker: StartBroker, group: str) -> None:
    broker = start_broker(*NO_DELAY, "--group-session-min", "0.1")
    with GroupClient(broker.port) as client:
        alone(client, group, session_timeout=300)
        eventually(lambda: client.describe(group)["group_state"] == "Empty", "the session to end")
        eventually(lambda: stored_group(broker, group)[b"members"] == b"[]", "the empty group to be stored")


def test_a_join_whose_client_hangs_up_does_not_hold_the_others_up(
    broker: BrokerProcess, client: GroupClient, group: str
) -> None:
    first = alone(client, group)
    with GroupClient(broker.port) as ghost, in_background(lambda: hang_up_when_waiting(client, ghost, group, first)):
        ghost.socket.settimeout(30)
        with pytest.raises((AssertionError, OSError)):
            ghost.join(group, version=3)
    eventually(lambda: len(client.describe(group)["members"]) == 1, "the ghost to be gone")
    again = client.join(group, str(first["member_id"]))
    assert [row["member_id"] for row in again["members"]] == [first["member_id"]]


def hang_up_when_waiting(client: GroupClient, ghost: GroupClient, group: str, first: dict[str, object]) -> None:
    eventually(lambda: client.heartbeat(group, first) == 27, "the ghost to wait")
    ghost.socket.shutdown(2)


def test_a_restarted_static_member_gets_its_work_back_and_the_old_one_is_fenced(
    broker: BrokerProcess, client: GroupClient, other: GroupClient, group: str
) -> None:
    joined = alone(client, group, group_instance_id="seat")
    back = other.join(group, group_instance_id="seat")
    assert (back["error_code"], back["generation_id"]) == (0, joined["generation_id"])
    assert back["member_id"] != joined["member_id"]
    assert back["skip_assignment"]
    assert other.sync(group, back, group_instance_id="seat")["assignment"] == b"all"
    assert client.heartbeat(group, joined, "seat") == 82
    assert client.join(group, str(joined["member_id"]), group_instance_id="seat")["error_code"] == 82
    members = json.loads(stored_group(broker, group)[b"members"])
    assert [(row["id"], row["instance_id"]) for row in members] == [(back["member_id"], "seat")]
    left = other.leave(group, ("", "seat"))
    assert left["members"][0]["error_code"] == 0
    assert other.describe(group)["group_state"] == "Empty"


def test_a_group_of_a_hundred_agrees(broker: BrokerProcess, group: str) -> None:
    with ExitStack() as stack:
        leader, *clients = [stack.enter_context(GroupClient(broker.port)) for _ in range(100)]
        first = leader.enter(group)
        ids = [client.join(group)["member_id"] for client in clients]
        with ExitStack() as waiting:
            results = [
                waiting.enter_context(in_background(partial(client.join, group, member_id)))
                for client, member_id in zip(clients, ids, strict=True)
            ]
            again = leader.join(group, first["member_id"])
        assert {result[0]["generation_id"] for result in results} == {again["generation_id"]}
        assert {row["member_id"] for row in again["members"]} == {*ids, first["member_id"]}
