"""The inventory uses only commands that Redis, Valkey and Kvrocks understand alike, on keys it has declared.

Three witnesses: a proxy sees what leaves the process, MONITOR sees what scripts do inside the server, and the text of
the scripts shows what neither happened to see.
"""

import re
from importlib.resources import files

import msgspec
import redis

from aisle.reservation.claims import Claim, Code, Kind, Settlement, Verb
from aisle.reservation.inventory import SWEEP, Hall, Inventory
from aisle.reservation.keys import Place, event_sections
from aisle.reservation.subsection import Subsection
from aisle.reservation.sweeper import sweep_keys
from aisle.scripts import load_script
from aisle.store import open_store
from respline.address import parse_url
from tests.conftest import with_settings
from tests.integration.inventory_duel import now_ms
from tests.integration.inventory_model import Record, audit, look
from tests.proxy import recording

EPOCH = 1
PLACE = Place(1, "A", 1)

CONTRACT = {
    "GET", "SET", "GETRANGE", "SETRANGE", "HSET", "HGET", "HMGET", "HINCRBY", "HDEL", "ZADD", "ZREM", "ZRANGEBYSCORE",
    "ZCARD", "EVALSHA", "EVAL", "SCRIPT", "MULTI", "EXEC", "TIME", "DEL", "EXISTS", "PEXPIRE", "PUBLISH", "SUBSCRIBE",
}  # fmt: skip
ADDED = {
    "HGETALL": "one consistent picture for verification; its order differs by server and is never relied on",
    "TYPE": "the start-up probe proves that a seat map is a string, not Kvrocks' bitmap",
    "ZSCORE": "reads one deadline; plain in every server",
}
CONNECTION = {
    "AUTH": "login",
    "HELLO": "protocol 3 where the server has it; refused by older ones without harm",
    "CLIENT": "our name in CLIENT LIST; refused by Kvrocks before 2.16 without harm",
    "INFO": "which server this is",
    "PING": "whether it still answers",
}


def test_the_scripts_name_only_portable_commands_and_never_look_for_keys():
    sources = {path.name: path.read_text() for path in (files("aisle.reservation") / "lua").iterdir()}
    assert len(sources) > 10
    for name, text in sources.items():
        used = set(re.findall(r"redis\.p?call\('(\w+)'", text)) | set(re.findall(r"in_chunks\('(\w+)'", text))
        assert used <= CONTRACT | ADDED.keys(), f"{name} uses {used - CONTRACT - ADDED.keys()}"
        assert set(re.findall(r"redis\.\w+", text)) <= {"redis.call", "redis.pcall"}, (
            f"{name}: Kvrocks lacks much of the rest of redis.*"
        )


async def test_all_that_leaves_the_process_and_all_that_scripts_do_is_in_the_contract(own_valkey, config, metrics):
    config = with_settings(config, store_url=own_valkey({}).url)
    address = parse_url(config.store_url)
    async with recording(config.store_url) as record:
        with (
            redis.Redis(unix_socket_path=address.path, password=address.password) as admin,
            admin.monitor() as monitor,
        ):
            async with open_store(with_settings(config, store_url=record.url), metrics) as store:
                keys, shape = await use_everything(store)
                assert audit(await look(store, PLACE, shape), shape) == []
            admin.echo("the end")
            inside = []
            while (seen := monitor.next_command())["command"] != "ECHO the end":
                if seen["client_type"] == "lua":
                    inside.append(seen["command"].split(" "))

    sent = {bytes(command[0]).upper().decode() for command in record.commands}
    assert {"EVALSHA", "SCRIPT", "ZADD", "INFO"} <= sent, "the proxy saw the work"
    assert sent <= CONTRACT | CONNECTION.keys()
    scripts = {(bytes(c[0]).upper(), bytes(c[1])) for c in record.commands if bytes(c[0]).upper() == b"SCRIPT"}
    assert {subcommand for _, subcommand in scripts} == {b"LOAD"}

    done = {words[0].upper() for words in inside}
    assert {"SETRANGE", "HSET", "HDEL", "HMGET", "ZADD", "ZREM", "TIME"} <= done, "MONITOR saw the work"
    assert done <= CONTRACT | ADDED.keys()
    declared = {*keys, event_sections(config.store_prefix, PLACE.event)}
    touched = {words[1] for words in inside if len(words) > 1} - declared
    assert all("probe:" in key for key in touched), f"keys that no script declared: {touched}"


async def use_everything(store):
    """Every operation of the inventory, each to an effect."""
    inventory, shape = Inventory(store), Subsection(3, 6, frozenset({0, 1}))
    keys = inventory.keys(PLACE)
    await inventory.open([Hall(PLACE, shape, price=10, limit=6, blocked=frozenset({17}))], epoch=EPOCH)
    await inventory.switch([PLACE], epoch=EPOCH, on_sale=True, price=20)
    holds = [Claim(id=f"h{n}", owner="o", size=2, kind=Kind.HOLD, hold_ms=60_000) for n in range(3)]
    bookings = [Claim(id=f"b{n}", owner="o", size=2, seats=(2 * n + 12, 2 * n + 13)) for n in range(2)]
    outcomes = await inventory.claim(PLACE, [*holds, *bookings], epoch=EPOCH)
    assert {outcome.code for outcome in outcomes} == {Code.OK}
    times = {"more_ms": 90_000, "cap_ms": 900_000}
    assert (await inventory.extend(PLACE, "h0", owner="o", operation="x", **times, epoch=EPOCH))[0] is Code.OK
    assert (await inventory.convert(PLACE, ["h1"], booking="b9", owner="o", epoch=EPOCH)).ok
    settled = await inventory.settle(
        PLACE,
        [
            Settlement(Verb.CONFIRM, "b0", "o"),
            Settlement(Verb.RELEASE, "b1", "o"),
            Settlement(Verb.CONFIRM, "h2", "o"),
            Settlement(Verb.REOPEN, "b0", "o", "refunded", (12,)),
            Settlement(Verb.REOPEN, "b0", "o", "refunded"),
        ],
        epoch=EPOCH,
    )
    assert {answer.code for answer in settled} == {Code.OK}
    view, past = await look(store, PLACE, shape), now_ms() - 5000
    overdue = Record(**(vars(view.records["h0"]) | {"deadline": past}))
    await store.run(load_script("aisle.reservation", "offer"), keys[:3], (2, 0, 3))
    await store.run(load_script("aisle.reservation", "seatmap"), (keys[0], keys[2]), ())
    await store.call_many([("HSET", keys[5], "h0", overdue.text), ("ZADD", keys[6], past, "h0", past, "b0")])
    released, forgotten, _, _ = msgspec.msgpack.decode(await store.run(SWEEP, sweep_keys(store.prefix, PLACE), (10,)))
    assert ([name for name, _, _ in released], forgotten) == (["h0"], 1)
    return sweep_keys(store.prefix, PLACE), shape
