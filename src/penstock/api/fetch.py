"""Fetch: read from an offset, wait for more if there is too little.

A fetch is a positional read and carries no group. It answers at once when it has `min_bytes`, an error to report or
no time left; else it waits for appends and reads again. At least one whole batch is given however small the limits.
"""

from dataclasses import dataclass
from time import monotonic

from kio.schema.errors import ErrorCode

import respline
from penstock.broker import Broker
from penstock.errors import store_error_code
from penstock.limits import FETCH_BYTES_MAX, FETCH_WAIT_MS_MAX
from penstock.request import Answer, Request
from penstock.store.log import Read, View
from penstock.store.topics import Topic
from penstock.wire.hot_fetch import FetchRequest, FetchRow, Wanted, read_fetch, write_fetch

LEADER_EPOCH = 0


@dataclass(slots=True)
class Slot:
    """One partition of the request on its way to an answer."""

    wanted: Wanted
    topic: Topic | None
    code: ErrorCode = ErrorCode.none
    view: View | None = None
    row: FetchRow | None = None


async def fetch(broker: Broker, request: Request) -> Answer:
    asked = read_fetch(request.frame, request.body_at, request.version)
    if asked.session_id != 0:
        return write_fetch(request.version, [], ErrorCode.fetch_session_id_not_found)
    topics = [(name, await _slots(broker, name, rows)) for name, rows in asked.topics]
    slots = [slot for _, rows in topics for slot in rows]
    until = monotonic() + min(max(asked.max_wait_ms, 0), FETCH_WAIT_MS_MAX) / 1000
    size = await _filled(broker, asked, slots)
    while size < asked.min_bytes and not any(slot.code for slot in slots):
        left = until - monotonic()
        if left <= 0:
            break
        keys = [(slot.topic.id, slot.wanted.partition) for slot in slots if slot.topic]
        await broker.waiters.wait(keys, asked.min_bytes - size, left)
        if monotonic() >= until and not broker.nodes.alone:
            # What another broker said it appended may have been lost on the way here.
            for slot in slots:
                broker.log.expire_view(slot.topic, slot.wanted.partition)
        size = await _filled(broker, asked, slots)
        if broker.waiters.closed:
            break
    broker.metrics.fetched_bytes += size
    return write_fetch(request.version, [(name, [slot.row for slot in rows if slot.row]) for name, rows in topics])


async def _slots(broker: Broker, name: str | bytes, rows: list[Wanted]) -> list[Slot]:
    topic = _topic(broker, name)
    if topic is None:
        try:
            await broker.topics.refresh_if_stale()
        except respline.ResplineError:
            broker.metrics.store_failures += 1
        topic = _topic(broker, name)
    if topic is None:
        code = ErrorCode.unknown_topic_or_partition if isinstance(name, str) else ErrorCode.unknown_topic_id
        return [Slot(wanted, None, code) for wanted in rows]
    return [Slot(wanted, topic, _refusal(topic, wanted)) for wanted in rows]


def _topic(broker: Broker, name: str | bytes) -> Topic | None:
    return broker.topics.by_name.get(name) if isinstance(name, str) else broker.topics.by_id.get(name)


def _refusal(topic: Topic, wanted: Wanted) -> ErrorCode:
    if not 0 <= wanted.partition < topic.partitions:
        return ErrorCode.unknown_topic_or_partition
    return epoch_refusal(wanted.leader_epoch)


def epoch_refusal(leader_epoch: int) -> ErrorCode:
    """A client that knows a later leader than we do must ask again; -1 means it does not care."""
    return ErrorCode.unknown_leader_epoch if leader_epoch > LEADER_EPOCH else ErrorCode.none


async def _filled(broker: Broker, asked: FetchRequest, slots: list[Slot]) -> int:
    """Fill the row of every slot; return the bytes of records in them."""
    sound = [slot for slot in slots if slot.topic and not slot.code]
    views = await broker.log.views([(slot.topic, slot.wanted.partition) for slot in sound if slot.topic])
    for slot, view in zip(sound, views, strict=True):
        if isinstance(view, View):
            slot.view = view
            if not view.log_start <= slot.wanted.offset <= view.leo:
                slot.code = ErrorCode.offset_out_of_range
        else:
            slot.code = view
    ready = [slot for slot in sound if slot.view and not slot.code and slot.wanted.offset < _end(asked, slot.view)]
    for slot in slots:
        slot.row = _row(slot, asked.read_committed)
    if not ready:
        return 0
    try:
        return await _read(broker, asked, ready)
    except respline.ResplineError as error:
        broker.metrics.store_failures += 1
        for slot in ready:
            slot.code = store_error_code(error)
            slot.row = _row(slot, asked.read_committed)
        return 0


def _end(asked: FetchRequest, view: View) -> int:
    return view.lso if asked.read_committed else view.leo


async def _read(broker: Broker, asked: FetchRequest, ready: list[Slot]) -> int:
    left = min(asked.max_bytes, FETCH_BYTES_MAX)
    reads: list[tuple[Slot, Read]] = []
    planned = 0
    for slot in ready:
        limit = min(slot.wanted.max_bytes, left - planned)
        if (limit <= 0 and reads) or slot.topic is None or slot.view is None:
            continue
        below = _end(asked, slot.view)
        reads.append((slot, Read(slot.topic, slot.wanted.partition, slot.wanted.offset, max(limit, 1), below)))
        planned += max(limit, 0)
    found = await broker.log.read([read for _, read in reads])
    aborted = await _aborted(broker, asked, [read for _, read in reads], [slot for slot, _ in reads])
    size = 0
    for (slot, _), batches, aborts in zip(reads, found, aborted, strict=True):
        # The first partition with data gives one batch whatever its size; the others must fit in what is left.
        if batches and size and len(batches[0]) > left - size:
            continue
        size += sum(map(len, batches))
        slot.row = _row(slot, asked.read_committed, batches, aborts)
    return size


async def _aborted(
    broker: Broker, asked: FetchRequest, reads: list[Read], slots: list[Slot]
) -> list[list[tuple[int, int]]]:
    found: list[list[tuple[int, int]]] = [[] for _ in reads]
    asking = [at for at, slot in enumerate(slots) if asked.read_committed and slot.view and slot.view.aborts]
    if asking:
        for at, aborts in zip(asking, await broker.log.aborted([reads[at] for at in asking]), strict=True):
            found[at] = aborts
    return found


def _row(
    slot: Slot,
    read_committed: bool,
    batches: list[bytes] | None = None,
    aborted: list[tuple[int, int]] | None = None,
) -> FetchRow:
    partition, view = slot.wanted.partition, slot.view
    if slot.code or view is None:
        return FetchRow(partition, slot.code)
    aborts = (aborted or []) if read_committed else None
    return FetchRow(partition, ErrorCode.none, view.leo, view.lso, view.log_start, aborts, batches)
