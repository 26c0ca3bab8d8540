"""`penstock inspect`: what a store holds, for operators. Reads only, and needs no broker.

Each view is a list of flat rows, printed as a table or as JSON.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import respline
from penstock.config import BadConfig
from penstock.store.group_keys import SLOTS, CoordinatorKeys
from penstock.store.keys import Keys
from penstock.store.offsets import OffsetStore
from penstock.store.scripts import Scripts, Store
from penstock.store.topics import Topic, Topics
from penstock.store.transactions import TransactionStore
from penstock.store.txn_keys import TxnKeys
from penstock.transactions import NONE

KEYS_MAX = 1000
Row = dict[str, Any]


async def inspect(url: str, keyspace: str, view: str, name: str | None) -> list[Row]:
    store = await respline.open_store(url, name="penstock-inspect")
    try:
        return await VIEWS[view](store, keyspace, name)
    finally:
        await store.aclose()


def table(rows: Sequence[Row]) -> str:
    if not rows:
        return "nothing\n"
    heads = list(rows[0])
    cells = [heads, *[[str(row[head]) for head in heads] for row in rows]]
    widths = [max(len(line[at]) for line in cells) for at in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join(lines) + "\n"


async def brokers(store: Store, keyspace: str, _: str | None) -> list[Row]:
    leases = _pairs(await store.call("HGETALL", Keys(keyspace).nodes))
    rows = []
    for node_id, lease in leases:
        host, port, expires, _run = lease.split(" ")
        rows.append({"node": int(node_id), "host": host, "port": int(port), "lease_expires_ms": int(expires)})
    return sorted(rows, key=lambda row: int(row["node"]))


async def topics(store: Store, keyspace: str, _: str | None) -> list[Row]:
    rows = []
    for topic in await _topics(store, keyspace):
        partitions = await _partition_rows(store, keyspace, topic)
        # In the open layout offsets have gaps and an entry is a record; else the distance of the ends is what counts.
        open_layout = topic.settings.open_layout
        rows.append(
            {
                "topic": topic.name,
                "id": topic.id_text,
                "partitions": topic.partitions,
                "records": sum(row["entries"] if open_layout else row["end"] - row["start"] for row in partitions),
                "bytes": sum(row["bytes"] for row in partitions),
                "configs": json.dumps(topic.configs, sort_keys=True),
            }
        )
    return rows


async def partitions(store: Store, keyspace: str, name: str | None) -> list[Row]:
    rows = []
    for topic in await _topics(store, keyspace, name):
        rows += await _partition_rows(store, keyspace, topic)
    return rows


async def groups(store: Store, keyspace: str, name: str | None) -> list[Row]:
    """Committed offsets and lag, a row for each group and partition."""
    keys = CoordinatorKeys(keyspace)
    replies = await store.call_many([("SMEMBERS", keys.groups(slot)) for slot in range(SLOTS)])
    names = sorted(member.decode() for reply in replies for member in _sound(reply))
    names = [group for group in names if name in (None, group)]
    committed = await OffsetStore(store, Scripts(store, in_transactions=False), keys).all_of(names)
    ends: dict[tuple[str, int], int] = {}
    for topic in await _topics(store, keyspace):
        for row in await _partition_rows(store, keyspace, topic):
            ends[topic.name, row["partition"]] = row["end"]
    rows = []
    for group, offsets in zip(names, committed, strict=True):
        generation = await store.call("HGET", keys.group(group).group, "generation")
        for position, offset in sorted(offsets.items()):
            end = ends.get((position.topic, position.partition))
            rows.append(
                {
                    "group": group,
                    "generation": int(generation or 0),
                    "topic": position.topic,
                    "partition": position.partition,
                    "offset": offset.offset,
                    "end": end,
                    "lag": None if end is None else end - offset.offset,
                }
            )
    return rows


async def transactions(store: Store, keyspace: str, name: str | None) -> list[Row]:
    """The transactional ids, a row each. What is open holds back read_committed readers of its partitions."""
    keys = TxnKeys(keyspace)
    records = TransactionStore(store, Scripts(store, in_transactions=False), Keys(keyspace), keys, None)
    names = [known for known in await records.names(range(SLOTS)) if name in (None, known)]
    if name is not None and not names:
        raise BadConfig(f"no transactional id {name!r} in keyspace {keyspace!r}")
    dues = await store.call_many([("ZSCORE", keys.transaction(known).due, known) for known in names])
    rows = []
    for known, stored, due in zip(names, await records.load(names), dues, strict=True):
        record = stored.transaction if stored else None
        partitions = [f"{topic}:{number}" for topic, _, number in record.partitions] if record else []
        rows.append(
            {
                "transactional_id": known,
                "state": record.state.value if record else "unreadable",
                "producer_id": record.producer_id if record else None,
                "epoch": record.epoch if record else None,
                "timeout_ms": record.timeout_ms if record else None,
                "started_ms": record.started_ms if record and record.started_ms != NONE else None,
                "due_ms": int(float(_sound(due))) if due is not None else None,
                "partitions": " ".join(partitions),
                "groups": " ".join(record.groups) if record else "",
            }
        )
    return rows


async def raw_keys(store: Store, keyspace: str, name: str | None) -> list[Row]:
    """The keys themselves, at most a thousand: of everything, or of one topic or group by its name."""
    pattern = f"*{keyspace}*{name}*" if name else f"*{keyspace}*"
    cursor = b"0"
    found: list[bytes] = []
    while len(found) < KEYS_MAX:
        cursor, page = await store.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        found += page
        if cursor == b"0":
            break
    rows = []
    for key in sorted(set(found))[:KEYS_MAX]:
        kind = (await store.call("TYPE", key)).decode()
        count = await store.call(*SIZE_OF[kind], key) if kind in SIZE_OF else None
        rows.append({"key": key.decode(), "type": kind, "size": count})
    return rows


SIZE_OF = {"string": ("STRLEN",), "hash": ("HLEN",), "set": ("SCARD",), "zset": ("ZCARD",), "stream": ("XLEN",)}
VIEWS: dict[str, Callable[[Store, str, str | None], Awaitable[list[Row]]]] = {
    "brokers": brokers,
    "topics": topics,
    "partitions": partitions,
    "groups": groups,
    "transactions": transactions,
    "keys": raw_keys,
}


async def _topics(store: Store, keyspace: str, name: str | None = None) -> list[Topic]:
    catalogue = Topics(store, Scripts(store, in_transactions=False), Keys(keyspace))
    await catalogue.refresh(finish=False)
    if name is None:
        return list(catalogue.by_name.values())
    if name not in catalogue.by_name:
        raise BadConfig(f"no topic {name!r} in keyspace {keyspace!r}")
    return [catalogue.by_name[name]]


async def _partition_rows(store: Store, keyspace: str, topic: Topic) -> list[Row]:
    keys = [Keys(keyspace).partition(topic.name, partition) for partition in range(topic.partitions)]
    commands: list[tuple[Any, ...]] = []
    for key in keys:
        commands.append(("HMGET", key.m, "leo", "log_start", "bytes", "trimmed", "max_ts"))
        commands.append(("XLEN", key.log))
        commands.append(("ZCARD", key.open))
        commands.append(("HLEN", key.pid))
    replies = await store.call_many(commands)
    rows = []
    for partition in range(topic.partitions):
        meta, entries, opened, producers = (_sound(reply) for reply in replies[4 * partition : 4 * partition + 4])
        leo, log_start, written, trimmed, newest = (int(value or 0) for value in meta)
        rows.append(
            {
                "topic": topic.name,
                "partition": partition,
                "start": log_start,
                "end": leo,
                "entries": entries,
                "bytes": written - trimmed,
                "newest_ms": newest,
                "open_transactions": opened,
                "producers": producers,
            }
        )
    return rows


def _sound(reply: Any) -> Any:
    if isinstance(reply, respline.ServerError):
        raise reply
    return reply


def _pairs(flat: list[bytes]) -> list[tuple[str, str]]:
    texts = [item.decode() for item in flat]
    return list(zip(texts[::2], texts[1::2], strict=True))
