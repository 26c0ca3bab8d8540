"""Where a command belongs in a cluster, and how the map is read. No server."""

import pytest

from respline import Command, NotSent, key_slot
from respline.routing import Anywhere, common_slot, route
from respline.slotmap import SlotRange, from_shards, from_slots


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        # From the cluster specification: CRC16 of "123456789" is 0x31C3.
        (b"123456789", 0x31C3 % 16384),
        (b"{123456789}.tail", 0x31C3 % 16384),
        ("foo", 12182),
    ],
)
def test_slots_of_known_keys(key: bytes | str, slot: int) -> None:
    assert key_slot(key) == slot


def test_only_the_first_non_empty_tag_counts() -> None:
    assert key_slot(b"a{x}b{y}") == key_slot(b"x")
    assert key_slot(b"foo{{bar}}zap") == key_slot(b"{bar")
    assert key_slot(b"{}x") != key_slot(b"")
    assert key_slot(b"no{end") != key_slot(b"end")
    assert key_slot(7) == key_slot("7")


@pytest.mark.parametrize(
    "command",
    [
        ("get", "k"),
        (b"EVALSHA", "sha", 2, "k", "other"),
        ("FCALL", "f", b"1", "k"),
        ("EVAL_RO", "return 1", "1", "k"),
        ("XREAD", "COUNT", 10, "STREAMS", "k", "0"),
        ("XREADGROUP", "GROUP", "g", "c", "BLOCK", 5, "streams", "k", ">"),
        ("XINFO", "STREAM", "k"),
        ("ZUNION", 2, "k", "l"),
        ("BITOP", "AND", "k", "a", "b"),
    ],
)
def test_the_key_is_found_where_the_command_has_it(command: Command) -> None:
    assert route(command) == key_slot("k")


def test_commands_without_key_go_to_one_node_or_to_all() -> None:
    assert route(("PING",)) == Anywhere(every_node=False)
    assert route(("EVAL", "return 1", 0)) == Anywhere(every_node=False)
    assert route(("script", b"load", "return 1")) == Anywhere(every_node=True)
    assert route(("FUNCTION", "LOAD", "REPLACE", "...")) == Anywhere(every_node=True)
    assert route(("SCRIPT", "EXISTS", "sha")) == Anywhere(every_node=False)


@pytest.mark.parametrize(
    "command", [("GET",), (), ("EVAL", "x", "many", "k"), ("XREAD", "k"), ("DBSIZE",), ("FLUSHALL",)]
)
def test_a_command_without_a_place_is_not_sent(command: Command) -> None:
    with pytest.raises(NotSent):
        route(command)


def test_a_transaction_has_one_slot() -> None:
    assert common_slot([("GET", "{t}1"), ("PING",), ("SET", "{t}2", 1)]) == key_slot("t")
    with pytest.raises(NotSent, match="exactly one slot"):
        common_slot([("GET", "a"), ("GET", "b")])
    with pytest.raises(NotSent, match="exactly one slot"):
        common_slot([("PING",)])


def test_both_forms_of_the_map_say_the_same() -> None:
    expected = [
        SlotRange(0, 99, ("10.0.0.1", 7000)),
        SlotRange(200, 299, ("10.0.0.1", 7000)),
        SlotRange(100, 199, ("h", 7001)),
    ]
    slots = [
        [0, 99, [b"10.0.0.1", 7000, b"id1"], [b"10.0.0.9", 7009, b"replica"]],
        [200, 299, [b"10.0.0.1", 7000, b"id1"]],
        [100, 199, [b"", 7001, b"id2", [b"hostname", b"x"]]],
    ]
    assert from_slots(slots, asked="h") == expected
    one = [
        b"id",
        b"1",
        b"port",
        7000,
        b"ip",
        b"10.0.0.1",
        b"endpoint",
        b"10.0.0.1",
        b"role",
        b"master",
        b"health",
        b"online",
    ]
    down = [
        b"id",
        b"0",
        b"port",
        7008,
        b"ip",
        b"10.0.0.8",
        b"endpoint",
        b"10.0.0.8",
        b"role",
        b"master",
        b"health",
        b"fail",
    ]
    replica = [b"id", b"3", b"port", 7009, b"ip", b"10.0.0.9", b"role", b"replica"]
    two = {b"port": 7001, b"ip": b"", b"endpoint": b"?", b"role": b"master"}
    shards = [
        [b"slots", [0, 99, 200, 299], b"nodes", [replica, down, one]],
        {b"slots": [100, 199], b"nodes": [two]},
        [b"slots", [], b"nodes", [one]],
    ]
    assert from_shards(shards, asked="h", tls=False) == expected
