"""Fetch: read from an offset, wait for more if there is too little.

A fetch is a positional read and carries no group. It answers at once when it has `min_bytes`, an error to report or
no time left; else it waits for appends and reads again. At least one whole batch is given however small the limits.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic

from kio.schema.errors import ErrorCode

import respline
from penstock.broker import Broker
from penstock.errors import store_error_code
from penstock.limits import FETCH_BYTES_MAX, FETCH_TAIL_BYTES, FETCH_WAIT_MS_MAX
from penstock.request import Answer, IdleFetch, Request, Session
from penstock.store.log import Read, View
from penstock.store.topics import Topic
from penstock.waiters import Watch
from penstock.wire import batch
from penstock.wire.hot_fetch import FetchRequest, FetchRow, Wanted, read_fetch, write_fetch
from penstock.wire.schema import response_header_is_flexible

LEADER_EPOCH = 0
PARK_S_MIN = 0.1  # a parked fetch may be answered a tick early; for shorter waits that would be much


@dataclass(slots=True)
class Slot:
    """One partition of the request on its way to an answer."""

    wanted: Wanted
    topic: Topic | None
    code: ErrorCode = ErrorCode.none
    view: View | None = None
    row: FetchRow | None = None


async def fetch(broker: Broker, request: Request) -> Answer:
    again = await _same_as_before(broker, request)
    if again:
        return again
    await _gathered(broker, request.session)
    asked = read_fetch(request.frame, request.body_at, request.version)
    if asked.session_id != 0:
        return write_fetch(request.version, [], ErrorCode.fetch_session_id_not_found)
    topics = [(name, await _slots(broker, name, rows)) for name, rows in asked.topics]
    slots = [slot for _, rows in topics for slot in rows]
    size = await _filled_in_time(broker, request.session, asked, slots)
    broker.metrics.fetched_bytes += size
    if 0 < size < FETCH_TAIL_BYTES:
        request.session.tail_served_at = monotonic()
    rows = [(name, [slot.row for slot in partitions if slot.row]) for name, partitions in topics]
    answer = write_fetch(request.version, rows)
    if size == 0 and broker.nodes.alone and not any(slot.code for slot in slots):
        request.session.idle_fetch = _idle_fetch(broker, request, asked, answer)
    return answer


def _idle_fetch(broker: Broker, request: Request, asked: FetchRequest, answer: list[bytes | memoryview]) -> IdleFetch:
    frame = request.frame
    header_end = b"\0" if response_header_is_flexible(request.api_key, request.version) else b""
    end = b"".join((header_end, *answer))
    size = (4 + len(end)).to_bytes(4)
    return IdleFetch(frame[8:], frame[:4], broker.topics.epoch, asked.min_bytes, _wait_s(asked), answer, size, end)


async def _gathered(broker: Broker, session: Session) -> None:
    """Let records come together for a consumer that asks again as soon as it was served."""
    left = session.tail_served_at + broker.config.fetch_gather_ms / 1000 - monotonic()
    if left > 0 and not broker.waiters.closed:
        await asyncio.sleep(left)


async def _same_as_before(broker: Broker, request: Request) -> Answer:
    """The answer of an idle consumer's last fetch, if this one is the same and nothing happens until its time is up."""
    idle, watch = request.session.idle_fetch, request.session.watch
    if idle is None or watch is None or not _still_idle(broker, idle, watch, request.frame):
        return None
    await watch.wait(idle.min_bytes, idle.wait_s)
    return None if watch.changed or idle.catalogue != broker.topics.epoch else idle.answer


def park(broker: Broker, session: Session, frame: bytes, done: Callable[[bytes | None], None]) -> bool:
    """Take an idle consumer's next fetch without a task that waits, if that is what the frame is.

    `done` is called later: with the answer as it is on the wire, or with None if something happened and the fetch has
    to be answered as usual.
    """
    idle, watch = session.idle_fetch, session.watch
    if idle is None or watch is None or broker.waiters.closed or idle.wait_s < PARK_S_MIN:
        return False
    if not _still_idle(broker, idle, watch, frame):
        return False
    watch.park(idle.min_bytes, idle.wait_s, partial(_unpark, broker, idle, watch, frame, done))
    return True


def _unpark(broker: Broker, idle: IdleFetch, watch: Watch, frame: bytes, done: Callable[[bytes | None], None]) -> None:
    if watch.changed or idle.catalogue != broker.topics.epoch or broker.waiters.closed:
        done(None)
    else:
        broker.metrics.requests["Fetch"] += 1
        done(idle.answer_to(frame))


def _still_idle(broker: Broker, idle: IdleFetch, watch: Watch, frame: bytes) -> bool:
    if watch.changed or not broker.nodes.alone or idle.catalogue != broker.topics.epoch:
        return False
    return idle.is_asked_by(frame)


def release(broker: Broker, session: Session) -> None:
    """The client is gone."""
    if session.watch:
        broker.waiters.unwatch(session.watch)
        session.watch = session.idle_fetch = None


async def _filled_in_time(broker: Broker, session: Session, asked: FetchRequest, slots: list[Slot]) -> int:
    """Fill the rows, waiting for more while there is too little and time."""
    watch = _watch(broker, session, slots)
    session.idle_fetch = None
    until = monotonic() + _wait_s(asked)
    while True:
        watch.changed = False
        size = await _filled(broker, asked, slots)
        left = until - monotonic()
        if size >= asked.min_bytes or left <= 0 or broker.waiters.closed or any(slot.code for slot in slots):
            return size
        await watch.wait(asked.min_bytes - size, left)
        if not watch.changed:
            if broker.nodes.alone:
                return size
            # What another broker said it appended may have been lost on the way here.
            for slot in slots:
                broker.log.expire_view(slot.topic, slot.wanted.partition)


def _wait_s(asked: FetchRequest) -> float:
    return min(max(asked.max_wait_ms, 0), FETCH_WAIT_MS_MAX) / 1000


def _watch(broker: Broker, session: Session, slots: list[Slot]) -> Watch:
    keys = {(slot.topic.id, slot.wanted.partition) for slot in slots if slot.topic}
    if session.watch is None or session.watch.keys != keys:
        release(broker, session)
        session.watch = broker.waiters.watch(keys)
    return session.watch


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
        slot.row = _row(slot, asked.read_committed, batches, _begun_in(batches, aborts))
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


def _begun_in(batches: list[bytes], aborts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without the aborted transactions that begin after what is given: a reader far behind would get them all."""
    if not aborts or not batches:
        return []
    last = batch.header(batches[-1])
    return [(pid, first) for pid, first in aborts if first <= last.base_offset + last.last_offset_delta]


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
