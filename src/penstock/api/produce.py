"""Produce: check the batches, append them, say where they went.

Everything that can be judged without the store is judged here; what depends on the partition's state (sequence,
epoch, transaction) is decided by the append script.
"""

from collections.abc import Iterator, Sequence

from kio.schema.errors import ErrorCode

import respline
from penstock.broker import Broker
from penstock.limits import OPEN_BATCH_RECORDS_MAX
from penstock.request import Answer, Request
from penstock.store.log import Append, Appended
from penstock.store.topics import Topic
from penstock.wire import batch, records
from penstock.wire.batch import Refused
from penstock.wire.hot_produce import ProduceRequest, ProduceRow, read_produce, write_produce
from penstock.wire.read import Malformed

ACKS = (-1, 0, 1)
OLDEST, ZSTD_FROM = 3, 7

# What becomes of each partition of a request, by topic.
Judged = list[tuple[str, list[tuple[int, Append | Refused]]]]


async def produce(broker: Broker, request: Request) -> Answer:
    [answer] = await _produced(broker, [(request, _read(request))])
    return answer


async def produce_all(broker: Broker, requests: Sequence[Request]) -> list[Answer]:
    """Requests of one connection that arrived together, appended in their order and in one round trip: librdkafka sends
    a request for each partition."""
    asked = [(request, _read(request)) for request in requests]
    if {one.acks for _, one in asked} in ({-1}, {1}):
        return await _produced(broker, asked)
    return [answer for one in asked for answer in await _produced(broker, [one])]


def _read(request: Request) -> ProduceRequest:
    return read_produce(request.frame, request.body_at, request.version)


async def _produced(broker: Broker, asked: Sequence[tuple[Request, ProduceRequest]]) -> list[Answer]:
    """All with the same acks."""
    now_ms = broker.now_ms()
    judged = [await _judged_topics(broker, one, request.version, now_ms) for request, one in asked]
    appends = [verdict for topics in judged for _, rows in topics for _, verdict in rows if isinstance(verdict, Append)]
    durable = asked[0][1].acks == -1
    appended = iter(await broker.log.append(appends, now_ms=now_ms, durable=durable))
    return [
        _answer(broker, request, one.acks, _rows(topics, appended, now_ms))
        for (request, one), topics in zip(asked, judged, strict=True)
    ]


async def _judged_topics(broker: Broker, asked: ProduceRequest, version: int, now_ms: int) -> Judged:
    whole = _whole_refusal(asked, version)
    if whole:
        return [(name, [(index, whole) for index, _ in rows]) for name, rows in asked.topics]
    return [
        (name, [(index, await _judged(broker, name, index, data, version, now_ms)) for index, data in rows])
        for name, rows in asked.topics
    ]


def _rows(judged: Judged, appended: Iterator[Appended], now_ms: int) -> list[tuple[str, list[ProduceRow]]]:
    return [
        (
            name,
            [
                _row(index, verdict, next(appended), now_ms)
                if isinstance(verdict, Append)
                else _refused(index, verdict)
                for index, verdict in rows
            ],
        )
        for name, rows in judged
    ]


def _answer(broker: Broker, request: Request, acks: int, rows: list[tuple[str, list[ProduceRow]]]) -> Answer:
    for row in (row for _, partitions in rows for row in partitions if row.code):
        broker.metrics.refused_batches[row.code.name] += 1
        if acks == 0:
            # The producer does not listen; a closed connection is the only way to tell it, and Kafka's way.
            raise Malformed(f"a batch with acks=0 was refused: {row.code.name}")
    return None if acks == 0 else write_produce(request.version, rows)


def _whole_refusal(asked: ProduceRequest, version: int) -> Refused | None:
    if version < OLDEST:
        return Refused(ErrorCode.unsupported_version, "Produce versions before 3 are no longer supported.")
    if asked.acks not in ACKS:
        return Refused(ErrorCode.invalid_required_acks, f"acks must be -1, 0 or 1, not {asked.acks}.")
    return None


async def _judged(
    broker: Broker, name: str, partition: int, data: bytes | None, version: int, now_ms: int
) -> Append | Refused:
    topic = broker.topics.by_name.get(name)
    if topic is None:
        topic = await _looked_up(broker, name)
    if topic is None or not 0 <= partition < topic.partitions:
        return Refused(ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
    if data is None:
        return Refused(ErrorCode.invalid_record, "A produce request must hold exactly one record batch a partition.")
    if len(data) > topic.settings.max_message_bytes:
        limit = topic.settings.max_message_bytes
        return Refused(ErrorCode.message_too_large, f"The batch of {len(data)} bytes is larger than {limit}.")
    verdict = batch.checked(data)
    if isinstance(verdict, Refused):
        return verdict
    if verdict.compression == batch.ZSTD and version < ZSTD_FROM:
        return Refused(ErrorCode.unsupported_compression_type, "zstd needs Produce version 7 or newer.")
    why = _content_refusal(topic, data, verdict, now_ms)
    if why:
        return why
    if topic.settings.log_append_time:
        data = batch.stamped(data, now_ms)
        verdict = batch.header(data)
    if topic.settings.open_layout:
        return _in_entries(topic, partition, data, verdict)
    return Append(topic, partition, data, verdict)


def _in_entries(topic: Topic, partition: int, data: bytes, head: batch.Batch) -> Append | Refused:
    if head.transactional:
        return Refused(ErrorCode.unsupported_for_message_format, "The open layout has no transactions.")
    if head.record_count > OPEN_BATCH_RECORDS_MAX:
        return Refused(ErrorCode.record_list_too_large, f"More than {OPEN_BATCH_RECORDS_MAX} records in a batch.")
    try:
        rows = list(records.iterate(data))
    except records.BadRecords as error:
        return Refused(ErrorCode.corrupt_message, str(error))
    if len(rows) != head.record_count:
        return Refused(ErrorCode.corrupt_message, "The batch does not hold as many records as it says.")
    return Append(topic, partition, data, head, rows)


async def _looked_up(broker: Broker, name: str) -> Topic | None:
    try:
        await broker.topics.refresh_if_stale()
    except respline.ResplineError:
        broker.metrics.store_failures += 1
    return broker.topics.by_name.get(name)


def _content_refusal(topic: Topic, data: bytes, head: batch.Batch, now_ms: int) -> Refused | None:
    settings = topic.settings
    if not settings.log_append_time:
        early, late = now_ms - settings.timestamp_before_max_ms, now_ms + settings.timestamp_after_max_ms
        if head.max_timestamp > late or 0 <= head.base_timestamp < early:
            return Refused(ErrorCode.invalid_timestamp, "A timestamp is out of the range this topic accepts.")
    if settings.compacted:
        try:
            if any(record.key is None for record in records.iterate(data)):
                return Refused(ErrorCode.invalid_record, "Compacted topic cannot accept message without key.")
        except records.BadRecords as error:
            return Refused(ErrorCode.corrupt_message, str(error))
    return None


def _refused(partition: int, refused: Refused) -> ProduceRow:
    return ProduceRow(partition, refused.code, message=refused.why)


def _row(partition: int, append: Append, appended: Appended, now_ms: int) -> ProduceRow:
    if appended.code:
        return ProduceRow(partition, appended.code)
    stamp = now_ms if append.topic.settings.log_append_time else -1
    return ProduceRow(partition, ErrorCode.none, appended.base_offset, stamp, appended.log_start)
