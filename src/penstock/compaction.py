"""Compaction: of every key only the newest record stays, under its old offset.

Stream entries cannot be changed or put back below the top, so a log is rewritten beside itself and swapped in by one
script, together with what was appended meanwhile. Called by `retention` for partitions we lead. Never touched: what is
not committed yet, the last batch (readers must be able to reach the end of the log), batches younger than
min.compaction.lag.ms, control batches, and batches that cannot be read.
"""

import hashlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from penstock.broker import Broker
from penstock.limits import COMPACTION_KEYS_MAX
from penstock.store.keys import PartitionKeys
from penstock.store.log import View
from penstock.store.scripts import Call
from penstock.store.topics import Topic
from penstock.wire import batch, records

PAGE = 64
COPIED_AT_ONCE = 500


@dataclass(slots=True)
class Plan:
    """What a rewrite may drop."""

    below: int  # batches that reach this offset stay as they are
    older_than_ms: int
    tombstones_before_ms: int
    aborted: list[tuple[int, int, int]]  # producer id, first and last offset
    newest: dict[bytes, int] = field(default_factory=dict)  # digest of a key -> offset of its newest record

    def drops_whole(self, head: batch.Batch) -> bool:
        return head.transactional and any(
            pid == head.producer_id and first <= head.base_offset <= last for pid, first, last in self.aborted
        )

    def may_touch(self, head: batch.Batch) -> bool:
        reached = head.base_offset + head.last_offset_delta
        return reached < self.below and not head.control and head.max_timestamp < self.older_than_ms

    def keeps(self, record: records.Record) -> bool:
        newest = self.newest.get(_digest(record.key))
        if newest is None:  # more keys than we had room for
            return True
        if record.offset != newest:
            return False
        return record.value is not None or record.timestamp >= self.tombstones_before_ms


def is_dirty(topic: Topic, written: int, compacted: int) -> bool:
    """Whether so much was added since the last time that rewriting pays."""
    return written > compacted and (written - compacted) >= written * topic.settings.min_dirty_ratio


async def compact(broker: Broker, topic: Topic, partition: int) -> bool:
    """Rewrite one log; False if somebody else did at the same time or there is nothing to do."""
    keys = broker.keys.partition(topic.name, partition)
    run = uuid.uuid4().hex
    if not await broker.scripts.run(Call("compact_begin", (keys.m, keys.new), (topic.id_text, run))):
        return False
    plan = await _plan(broker, topic, partition, keys)
    if plan is None:
        return False
    copied = "0-0"
    async for entry_id, data in _entries(broker, keys):
        kept = _rewritten(data, plan)
        copied = entry_id
        if kept is not None:
            await broker.store.call("XADD", keys.new, entry_id, "b", kept)
    while True:
        swap = (topic.id_text, run, copied, COPIED_AT_ONCE)
        reply = await broker.scripts.run(Call("compact_swap", (keys.log, keys.m, keys.new), swap))
        if reply[0] != 2:
            break
        copied = reply[1].decode()
    broker.log.touched(topic, partition)
    return bool(reply[0] == 1)


async def _plan(broker: Broker, topic: Topic, partition: int, keys: PartitionKeys) -> Plan | None:
    broker.log.expire_view(topic, partition)
    [view] = await broker.log.views([(topic, partition)])
    newest = await broker.store.call("XREVRANGE", keys.log, "+", "-", "COUNT", 1)
    if not isinstance(view, View) or not newest:
        return None
    last = int(newest[0][0].partition(b"-")[0])
    last_base = last - batch.header(newest[0][1][1]).last_offset_delta
    now_ms = broker.now_ms()
    members = await broker.store.call("ZRANGE", keys.abt, 0, -1)
    plan = Plan(
        below=min(view.lso, last_base),
        older_than_ms=now_ms - topic.settings.min_compaction_lag_ms + 1,
        tombstones_before_ms=now_ms - topic.settings.delete_retention_ms,
        aborted=[(int(pid), int(first), int(end)) for pid, first, end in (member.split() for member in members)],
    )
    async for _, data in _entries(broker, keys):
        head = batch.header(data)
        if head.control or head.base_offset + head.last_offset_delta >= view.lso or plan.drops_whole(head):
            continue
        for record in _readable(data):
            digest = _digest(record.key)
            if len(plan.newest) < COMPACTION_KEYS_MAX or digest in plan.newest:
                plan.newest[digest] = record.offset
    return plan


def _rewritten(data: bytes, plan: Plan) -> bytes | None:
    """The batch with what it keeps, or None if that is nothing."""
    head = batch.header(data)
    if not plan.may_touch(head):
        return data
    if plan.drops_whole(head):
        return None
    rows = _readable(data)
    kept = [record for record in rows if plan.keeps(record)]
    if len(kept) == len(rows):
        return data
    return records.thinned(data, kept) if kept else None


def _readable(data: bytes) -> list[records.Record]:
    try:
        return list(records.iterate(data))
    except records.BadRecords:
        return []


async def _entries(broker: Broker, keys: PartitionKeys) -> AsyncIterator[tuple[str, bytes]]:
    """(id, batch at its offset) of the whole log, page by page."""
    start = "-"
    while True:
        page = await broker.store.call("XRANGE", keys.log, start, "+", "COUNT", PAGE)
        for entry_id, fields in page:
            last = int(entry_id.partition(b"-")[0])
            data = fields[1]
            yield entry_id.decode(), batch.placed(data, last - batch.header(data).last_offset_delta)
        if len(page) < PAGE:
            return
        start = "(" + page[-1][0].decode()


def _digest(key: bytes | None) -> bytes:
    return hashlib.blake2b(key or b"", digest_size=16).digest()
