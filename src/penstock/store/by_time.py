"""Offsets by time, for ListOffsets.

The index (`tidx`) holds about one point in 64 KB: the greatest timestamp so far and a batch's base offset. It says
from where to look; the batches themselves decide, and the records inside the first one that reaches the time.
"""

from collections.abc import AsyncIterator

from penstock.store.keys import PartitionKeys
from penstock.store.scripts import Store
from penstock.wire import batch, records

PAGE = 32
Hit = tuple[int, int]  # offset, timestamp


async def first_record_at(store: Store, keys: PartitionKeys, when: int) -> Hit | None:
    """The first record whose timestamp is at or after `when`."""
    async for data in _batches(store, keys, await _start(store, keys, when)):
        if batch.header(data).max_timestamp >= when:
            hit = _first(data, when)
            if hit:
                return hit
    return None


async def first_batch_at(store: Store, keys: PartitionKeys, when: int) -> Hit | None:
    """(base offset, greatest timestamp) of the first batch that reaches `when`: all before it is older."""
    async for data in _batches(store, keys, await _start(store, keys, when)):
        head = batch.header(data)
        if head.max_timestamp >= when:
            return head.base_offset, head.max_timestamp
    return None


async def newest_record(store: Store, keys: PartitionKeys) -> Hit | None:
    """The first record that has the greatest timestamp of the log."""
    highest, base, log_start = await store.call("HMGET", keys.m, "max_ts", "max_ts_at", "log_start")
    if highest is None:
        return None
    if int(base) >= int(log_start):
        async for data in _batches(store, keys, int(base)):
            return _first(data, batch.header(data).max_timestamp)
    # What had the greatest timestamp was trimmed away: the rest has to be read.
    best: bytes | None = None
    async for data in _batches(store, keys, int(log_start)):
        if best is None or batch.header(data).max_timestamp > batch.header(best).max_timestamp:
            best = data
    return _first(best, batch.header(best).max_timestamp) if best else None


async def _start(store: Store, keys: PartitionKeys, when: int) -> int:
    """An offset before which every record is older than `when`."""
    below = await store.call("ZREVRANGEBYSCORE", keys.tidx, f"({when}", "-inf", "LIMIT", 0, 1)
    return int(below[0]) if below else 0


async def _batches(store: Store, keys: PartitionKeys, start: int) -> AsyncIterator[bytes]:
    """Every batch from the one that holds `start`, read page by page."""
    at = f"{start}-0"
    while True:
        page = await store.call("XRANGE", keys.log, at, "+", "COUNT", PAGE)
        for entry_id, fields in page:
            last = int(entry_id.partition(b"-")[0])
            yield batch.placed(fields[1], last - batch.header(fields[1]).last_offset_delta)
        if len(page) < PAGE:
            return
        at = f"{int(page[-1][0].partition(b'-')[0]) + 1}-0"


def _first(data: bytes, when: int) -> Hit | None:
    head = batch.header(data)
    if head.attributes & batch.LOG_APPEND_TIME:  # all its records have the batch's time
        return head.base_offset, head.max_timestamp
    try:
        return next(((r.offset, r.timestamp) for r in records.iterate(data) if r.timestamp >= when), None)
    except records.BadRecords:
        return head.base_offset, head.max_timestamp
