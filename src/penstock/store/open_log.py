"""Logs in the open layout: one stream entry a record, shared with clients that use XADD and XREAD directly.

Called by `log` for topics with penstock.layout=entries. Others write to these streams without telling us, so nothing is
cached: every look first gives offsets to what they added (`entries_adopt`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

import respline
from penstock.errors import store_error_code
from penstock.limits import FETCH_ENTRIES_MAX, OPEN_ADOPT_MAX
from penstock.store.keys import Keys
from penstock.store.scripts import Argument, Call, Scripts, Store
from penstock.store.topics import Topic
from penstock.wire import entries
from penstock.wire.batch import Batch
from penstock.wire.records import Record

RUN_BETWEEN_ANCHORS = 500


class Ends(NamedTuple):
    leo: int
    log_start: int


class OpenLog:
    def __init__(self, store: Store, scripts: Scripts, keys: Keys) -> None:
        self._store = store
        self._scripts = scripts
        self._keys = keys

    def append_call(
        self, topic: Topic, partition: int, head: Batch, rows: Sequence[Record], now_ms: int, announce: tuple[str, str]
    ) -> Call:
        """Answers -1 when plain clients added so much that their entries must be numbered first: ask again then."""
        keys = self._keys.partition(topic.name, partition)
        args: list[Argument] = [topic.id_text, topic.settings.sequence_bits, OPEN_ADOPT_MAX, len(rows)]
        args += (head.producer_id, head.producer_epoch, head.base_sequence, now_ms, *announce)
        for row in rows:
            fields = entries.fields_of(row)
            args.append(len(fields))
            args += fields
        return Call("entries_append", (keys.log, keys.m, keys.pid, keys.moved), args)

    async def ends(self, partitions: Sequence[tuple[Topic, int]]) -> list[Ends | ErrorCode]:
        calls = [self._adopt_call(topic, partition) for topic, partition in partitions]
        found: list[Ends | ErrorCode] = []
        for reply in await self._scripts.run_many(calls):
            if isinstance(reply, respline.ServerError):
                found.append(store_error_code(reply))
            elif reply[0] != 0:
                found.append(ErrorCode(reply[0]))
            else:
                found.append(Ends(reply[1], reply[2]))
        return found

    async def read(self, topic: Topic, partition: int, offset: int, max_bytes: int, below: int) -> list[bytes]:
        rows = await self._records(topic, partition, offset, below, _entries_for(max_bytes))
        return entries.batches_of(rows, max_bytes)

    async def first_record_at(self, topic: Topic, partition: int, when: int) -> tuple[int, int] | None:
        """By the time of the entries' ids, which is when they were added."""
        rows = await self._records(topic, partition, when << topic.settings.sequence_bits, 2**63, 1)
        return (rows[0].offset, rows[0].timestamp) if rows else None

    async def newest_record(self, topic: Topic, partition: int, leo: int) -> tuple[int, int] | None:
        keys = self._keys.partition(topic.name, partition)
        last = await self._store.call("XREVRANGE", keys.log, "+", "-", "COUNT", 1)
        if not last:
            return None
        return leo - 1, entries.record_of(leo - 1, entries.parts_of(last[0][0])[0], last[0][1]).timestamp

    async def trim(self, topic: Topic, partition: int, offset: int, keep: int = -1) -> tuple[ErrorCode, int]:
        """Begin at `offset` (-1: the end), or with the newest `keep` entries."""
        keys = self._keys.partition(topic.name, partition)
        args = (topic.id_text, topic.settings.sequence_bits, offset, keep)
        code, log_start = await self._scripts.run(Call("entries_trim", (keys.log, keys.m, keys.moved), args))
        return ErrorCode(code), log_start

    def _adopt_call(self, topic: Topic, partition: int) -> Call:
        keys = self._keys.partition(topic.name, partition)
        args = (topic.id_text, topic.settings.sequence_bits, OPEN_ADOPT_MAX)
        return Call("entries_adopt", (keys.log, keys.m, keys.moved), args)

    async def _records(self, topic: Topic, partition: int, offset: int, below: int, count: int) -> list[Record]:
        """Records from the first at or after `offset`, below another, about `count` of them."""
        keys, bits = self._keys.partition(topic.name, partition), topic.settings.sequence_bits
        anchor = await self._store.call("ZREVRANGEBYSCORE", keys.moved, offset, "-inf", "WITHSCORES", "LIMIT", 0, 1)
        start, expected = entries.id_of(offset, bits), 0
        if anchor:
            anchored = int(float(anchor[1]))
            if not entries.is_regular(*entries.parts_of(anchor[0]), anchored, bits):
                start, expected = anchor[0].decode(), anchored
                count += RUN_BETWEEN_ANCHORS
        rows: list[Record] = []
        for entry_id, fields in await self._store.call("XRANGE", keys.log, start, "+", "COUNT", count):
            ms, seq = entries.parts_of(entry_id)
            expected = max(entries.natural_offset(ms, seq, bits), expected)
            if expected >= below:
                break
            if expected >= offset:
                rows.append(entries.record_of(expected, ms, fields))
            expected += 1
        return rows


def _entries_for(max_bytes: int) -> int:
    return min(max(max_bytes // 256, 1), 20 * FETCH_ENTRIES_MAX)
