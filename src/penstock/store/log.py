"""The partitions' logs: append, read, and where they begin and end.

Truth is in the store; this keeps a view per active partition (ends and tail) that its own appends keep current. When
another broker may have written (`touched`), the store was away or the catalogue changed, the view is dropped and read
again. Callers get lists for lists, one round trip for a batch.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

import respline
from penstock.errors import store_error_code
from penstock.limits import FETCH_ENTRIES_MAX, TAIL_BYTES_PER_PARTITION, TAIL_BYTES_TOTAL
from penstock.metrics import Metrics
from penstock.store import by_time
from penstock.store.durability import Durability
from penstock.store.keys import Keys
from penstock.store.open_log import Ends, OpenLog
from penstock.store.scripts import Call, Scripts, Store
from penstock.store.tail import Tail
from penstock.store.topics import Topic
from penstock.waiters import Key, Waiters
from penstock.wire import batch
from penstock.wire.batch import Batch
from penstock.wire.records import Record

FIRST_ENTRIES = 4  # read of a log whose batches may be of any size
READ_ROUNDS = 3
LOAD_ATTEMPTS = 3
OPEN_ATTEMPTS = 100
INDEX_POINTS_PER_TRIM = 100_000


class Append(NamedTuple):
    topic: Topic
    partition: int
    data: bytes
    header: Batch
    rows: Sequence[Record] = ()  # what `data` holds, for topics in the open layout


class Appended(NamedTuple):
    code: ErrorCode
    base_offset: int = -1
    log_start: int = -1


class Read(NamedTuple):
    topic: Topic
    partition: int
    offset: int
    max_bytes: int
    below: int  # give no batch that reaches this offset
    continued: bool = False  # something was given already, so nothing more need be


@dataclass(slots=True)
class View:
    """What we know of one partition."""

    leo: int
    lso: int
    log_start: int
    aborts: bool  # whether any aborted transaction is on record
    tail: Tail = field(default_factory=Tail)
    typical_batch: int = 0  # bytes, as far as seen


@dataclass(slots=True, eq=False)
class Loading:
    """Views on their way from the store, and those of them that changed before they arrived."""

    keys: set[Key]
    outdated: set[Key] = field(default_factory=set)


class Log:
    def __init__(
        self,
        store: Store,
        scripts: Scripts,
        keys: Keys,
        waiters: Waiters,
        metrics: Metrics,
        node_id: int,
        durability: Durability | None = None,
    ) -> None:
        self._store = store
        self._scripts = scripts
        self._keys = keys
        self._waiters = waiters
        self._metrics = metrics
        self._node_id = node_id
        self._durability = durability
        self._views: OrderedDict[Key, View] = OrderedDict()  # the most recently appended last
        self._tail_bytes = 0
        self._loading: list[Loading] = []
        self.open = OpenLog(store, scripts, keys)
        self.announce_on = ""  # the channel appends are told on; empty while no other broker is there

    async def append(self, appends: Sequence[Append], *, now_ms: int, durable: bool = False) -> list[Appended]:
        """Append one batch to each named partition; refusals are values, each partition on its own."""
        if not appends:
            return []
        durability = self._durability if durable else None
        scripts = durability.scripts if durability else self._scripts
        try:
            replies = await self._run_appends(scripts, [self._append_call(append, now_ms) for append in appends])
            done = [self._appended(append, reply) for append, reply in zip(appends, replies, strict=True)]
            if durability and not await durability.confirmed():
                return [one if one.code else Appended(ErrorCode.not_enough_replicas_after_append) for one in done]
        except respline.ResplineError as error:
            self._metrics.store_failures += 1
            return [Appended(store_error_code(error))] * len(appends)
        return done

    async def views(self, partitions: Sequence[tuple[Topic, int]]) -> list[View | ErrorCode]:
        """What is known of these partitions, asking the store for those we have no view of."""
        failed = await self._load_open([p for p in partitions if p[0].settings.open_layout])
        missing = [p for p in partitions if (p[0].id, p[1]) not in self._views and not p[0].settings.open_layout]
        for _ in range(LOAD_ATTEMPTS):
            if not missing:
                break
            refused, outdated = await self._load(missing)
            failed |= refused
            missing = [p for p in missing if (p[0].id, p[1]) in outdated]
        found: list[View | ErrorCode] = []
        for topic, partition in partitions:
            view = self._views.get((topic.id, partition))
            found.append(view if view else failed.get((topic.id, partition), ErrorCode.unknown_topic_or_partition))
        for topic, partition in missing:
            # Others wrote during every attempt. What was seen is true for this answer, and not worth keeping.
            self._drop_view((topic.id, partition))
        return found

    async def read(self, reads: Sequence[Read]) -> list[list[bytes]]:
        """Whole batches from the one that holds each offset; one at least if there is one, whatever the limit."""
        found: list[list[bytes]] = [[] for _ in reads]
        from_store: list[int] = []
        for at, read in enumerate(reads):
            view = self._views.get((read.topic.id, read.partition))
            if read.topic.settings.open_layout:
                found[at] = await self.open.read(*read[:5])
            elif view and view.tail.covers(read.offset):
                self._metrics.tail_reads += 1
                found[at] = view.tail.read(read.offset, read.max_bytes, read.below)
            else:
                from_store.append(at)
        self._metrics.store_reads += len(from_store)
        await self._read_from_store({at: reads[at] for at in from_store}, found)
        return found

    async def _read_from_store(self, wanted: dict[int, Read], found: list[list[bytes]]) -> None:
        """A few entries first, then as many as their size says: a guess could read a hundred times what was asked."""
        for _ in range(READ_ROUNDS):
            if not wanted:
                return
            ranges = [self._range(read) for read in wanted.values()]
            replies = await self._store.call_many([command for command, _ in ranges])
            unfinished: dict[int, Read] = {}
            for (at, read), (_, count), reply in zip(wanted.items(), ranges, replies, strict=True):
                if isinstance(reply, respline.ServerError):
                    raise reply
                batches, following = self._batches(read, reply)
                found[at] += batches
                if following and len(reply) == count:
                    unfinished[at] = following
            wanted = unfinished

    async def aborted(self, reads: Sequence[Read]) -> list[list[tuple[int, int]]]:
        """(producer id, first offset) of the aborted transactions that end at or after each read's offset."""
        calls = []
        for read in reads:
            abt = self._keys.partition(read.topic.name, read.partition).abt
            calls.append(("ZRANGEBYSCORE", abt, str(read.offset), "+inf"))
        replies = await self._store.call_many(calls)
        found = []
        for reply in replies:
            if isinstance(reply, respline.ServerError):
                raise reply
            found.append([(int(pid), int(first)) for pid, first, _ in (member.split() for member in reply)])
        return found

    async def trim(
        self, topic: Topic, partition: int, offset: int, *, newest_ms: int | None = None
    ) -> tuple[ErrorCode, int]:
        """Let the log begin at `offset` (-1: at its end); return the code and where it begins now.

        `newest_ms` is the greatest timestamp of the batch there, if known; it keeps the index by time exact.
        """
        self._metrics.trims += 1
        if topic.settings.open_layout:
            return await self.open.trim(topic, partition, offset)
        keys = self._keys.partition(topic.name, partition)
        stamp = "" if newest_ms is None else newest_ms
        args = (topic.id_text, offset, stamp, INDEX_POINTS_PER_TRIM)
        code, log_start = await self._scripts.run(Call("trim", (keys.log, keys.m, keys.abt, keys.tidx), args))
        view = self._views.get((topic.id, partition))
        if code == 0 and view:
            view.log_start, view.lso = log_start, max(view.lso, log_start)
        self._waiters.changed((topic.id, partition))
        return ErrorCode(code), log_start

    async def first_record_at(self, topic: Topic, partition: int, when: int) -> by_time.Hit | None:
        """(offset, timestamp) of the first record at or after a time."""
        if topic.settings.open_layout:
            return await self.open.first_record_at(topic, partition, when)
        return await by_time.first_record_at(self._store, self._keys.partition(topic.name, partition), when)

    async def newest_record(self, topic: Topic, partition: int) -> by_time.Hit | None:
        if topic.settings.open_layout:
            return await self.open.newest_record(topic, partition, self._views[topic.id, partition].leo)
        return await by_time.newest_record(self._store, self._keys.partition(topic.name, partition))

    def expire_view(self, topic: Topic | None, partition: int) -> None:
        """Ask the store next time."""
        if topic:
            self._drop_view((topic.id, partition))

    def touched(self, topic: Topic, partition: int) -> None:
        """Somebody else wrote to, marked or trimmed this partition: look again, and wake who waits."""
        self._drop_view((topic.id, partition))
        self._outdate((topic.id, partition))
        self._waiters.changed((topic.id, partition))

    def forget(self) -> None:
        """The store may have lost or gained anything: no view is worth keeping."""
        for load in self._loading:
            load.outdated |= load.keys
        self._views.clear()
        self._tail_bytes = 0
        for key in self._waiters.watched():
            self._waiters.changed(key)

    def forget_topics_except(self, topic_ids: "dict[bytes, Topic]") -> None:
        for key in [key for key in self._views if key[0] not in topic_ids]:
            self._drop_view(key)

    def _append_call(self, append: Append, now_ms: int) -> Call:
        topic, partition, data, head, rows = append
        announce = (self.announce_on, f"{self._node_id} {partition} {topic.name}" if self.announce_on else "")
        if topic.settings.open_layout:
            return self.open.append_call(topic, partition, head, rows, now_ms, announce)
        keys = self._keys.partition(topic.name, partition)
        producer = (head.producer_id, head.producer_epoch, head.base_sequence, int(head.transactional))
        return Call(
            "append",
            (keys.log, keys.m, keys.pid, keys.open, keys.txn, keys.tidx),
            (topic.id_text, data, head.record_count, head.max_timestamp, *producer, now_ms, *announce),
        )

    def _appended(self, append: Append, reply: Any) -> Appended:
        if isinstance(reply, respline.ServerError):
            self._metrics.store_failures += 1
            return Appended(store_error_code(reply))
        if reply[0] != 0:
            return Appended(ErrorCode(reply[0]))
        _, base, leo, lso, log_start, duplicate = reply
        if duplicate:
            self._metrics.duplicate_batches += 1
            return Appended(ErrorCode.none, base, log_start)
        key = (append.topic.id, append.partition)
        self._metrics.produced_records += append.header.record_count
        self._metrics.produced_bytes += len(append.data)
        self._waiters.appended(key, len(append.data))
        self._outdate(key)
        view = self._views.get(key)
        if view is None or append.topic.settings.open_layout:  # nobody reads here yet, or nothing may be remembered
            return Appended(ErrorCode.none, base, log_start)
        # What was written since the view was made and is not ours may be the end of an aborted transaction.
        view.aborts = view.aborts or base != view.leo
        view.leo, view.lso, view.log_start = leo, max(lso, log_start), log_start
        self._keep(key, view, base, append)
        return Appended(ErrorCode.none, base, log_start)

    def _keep(self, key: Key, view: View, base: int, append: Append) -> None:
        self._tail_bytes -= view.tail.size
        last = base + append.header.last_offset_delta
        view.tail.add(base, last, batch.placed(append.data, base), TAIL_BYTES_PER_PARTITION)
        self._tail_bytes += view.tail.size
        self._views.move_to_end(key)
        if self._tail_bytes > TAIL_BYTES_TOTAL:
            for other in self._views.values():  # oldest append first
                self._tail_bytes -= other.tail.size
                other.tail.clear()
                if self._tail_bytes <= TAIL_BYTES_TOTAL // 2:
                    break

    async def _run_appends(self, scripts: Scripts, calls: list[Call]) -> list[Any]:
        replies = await scripts.run_many(calls)
        for _ in range(OPEN_ATTEMPTS):
            again = [at for at, reply in enumerate(replies) if isinstance(reply, list) and reply[0] == -1]
            if not again:
                return replies
            for at, reply in zip(again, await scripts.run_many([calls[at] for at in again]), strict=True):
                replies[at] = reply
        return [[int(ErrorCode.request_timed_out)] if isinstance(r, list) and r[0] == -1 else r for r in replies]

    async def _load_open(self, partitions: Sequence[tuple[Topic, int]]) -> dict[Key, ErrorCode]:
        """Views of logs that others write to without telling us: always read anew."""
        failed = {}
        try:
            ends = await self.open.ends(partitions) if partitions else []
        except respline.ResplineError as error:
            ends = [store_error_code(error)] * len(partitions)
        for (topic, partition), end in zip(partitions, ends, strict=True):
            self._views.pop((topic.id, partition), None)
            if isinstance(end, Ends):
                self._views[topic.id, partition] = View(end.leo, end.leo, end.log_start, aborts=False)
            else:
                failed[topic.id, partition] = end
        return failed

    async def _load(self, partitions: Sequence[tuple[Topic, int]]) -> tuple[dict[Key, ErrorCode], set[Key]]:
        """Make views; return why some could not be made, and which were outdated before they arrived."""
        calls: list[tuple[str, ...]] = []
        for topic, partition in partitions:
            keys = self._keys.partition(topic.name, partition)
            calls.append(("HMGET", keys.m, "id", "leo", "log_start"))
            calls.append(("ZRANGE", keys.open, "0", "0", "WITHSCORES"))
            calls.append(("ZCARD", keys.abt))
        load = Loading({(topic.id, partition) for topic, partition in partitions})
        self._loading.append(load)
        try:
            replies = await self._store.call_many(calls)
        except respline.ResplineError as error:
            self._metrics.store_failures += 1
            return {(topic.id, partition): store_error_code(error) for topic, partition in partitions}, set()
        finally:
            self._loading.remove(load)
        failed = {}
        for at, (topic, partition) in enumerate(partitions):
            meta, first_open, aborts = replies[3 * at : 3 * at + 3]
            refused = next((r for r in (meta, first_open, aborts) if isinstance(r, respline.ServerError)), None)
            if refused:
                failed[topic.id, partition] = store_error_code(refused)
            elif meta[0] == topic.id_text.encode():
                leo = int(meta[1])
                lso = min(leo, int(float(first_open[1]))) if first_open else leo
                log_start = int(meta[2])
                self._drop_view((topic.id, partition))
                self._views[topic.id, partition] = View(leo, max(lso, log_start), log_start, aborts=aborts > 0)
        return failed, load.outdated

    def _range(self, read: Read) -> tuple[tuple[str, ...], int]:
        view = self._views.get((read.topic.id, read.partition))
        typical = view.typical_batch if view else 0
        count = min(read.max_bytes // typical + 1, FETCH_ENTRIES_MAX) if typical else FIRST_ENTRIES
        log = self._keys.partition(read.topic.name, read.partition).log
        return ("XRANGE", log, f"{read.offset}-0", "+", "COUNT", str(count)), count

    def _batches(self, read: Read, reply: Any) -> tuple[list[bytes], Read | None]:
        """The batches of a reply that may be given, and the read that would follow if there is room for more."""
        found: list[bytes] = []
        left, last = read.max_bytes, -1
        for entry_id, fields in reply:
            data = fields[1]
            last = int(entry_id[: entry_id.index(b"-")])
            if last >= read.below or (left < len(data) and (found or read.continued)):
                left = 0
                break
            left -= len(data)
            found.append(batch.placed(data, last - batch.header(data).last_offset_delta))
        view = self._views.get((read.topic.id, read.partition))
        if view and found:
            view.typical_batch = max(sum(map(len, found)) // len(found), 64)
        following = read._replace(offset=last + 1, max_bytes=left, continued=True) if left > 0 and found else None
        return found, following

    def _outdate(self, key: Key) -> None:
        for load in self._loading:
            load.outdated.add(key)

    def _drop_view(self, key: Key) -> None:
        view = self._views.pop(key, None)
        if view:
            self._tail_bytes -= view.tail.size
