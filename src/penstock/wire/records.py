"""The records inside a batch: the cold path, for what cannot be done on whole batches.

Used to look offsets up by time, to check keys of compacted topics, to compact, and for the open layout. Parsing and
building is aiokafka's compiled codec; decompression is done here, because a batch of a megabyte may claim to hold
terabytes and only we know the limit.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import cramjam
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from penstock.limits import DECOMPRESSED_BYTES_MAX
from penstock.wire import batch

GZIP_OR_ZLIB = 47  # zlib's window bits for "find out which"
XERIAL = b"\x82SNAPPY\0"


class BadRecords(Exception):
    """The batch has a sound checksum and unsound records."""


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def iterate(data: bytes) -> Iterator[Record]:
    """The records of one batch, offsets counted from its base offset. Raises BadRecords."""
    try:
        for record in DefaultRecordBatch(_uncompressed(data)):
            yield Record(record.offset, record.timestamp, record.key, record.value, record.headers)
    except (CorruptRecordException, UnicodeDecodeError, struct.error, IndexError, ValueError) as error:
        raise BadRecords(f"The records of the batch cannot be read: {error}") from error


def build(rows: Iterable[Record], base_offset: int) -> bytes:
    """An uncompressed batch at `base_offset`; offsets may have gaps, as after compaction."""
    rows = list(rows)
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**31 - 1,
    )
    for row in rows:
        builder.append(row.offset - base_offset, row.timestamp, row.key, row.value, list(row.headers))
    return batch.placed(bytes(builder.build()), base_offset)


def thinned(data: bytes, kept: Sequence[Record]) -> bytes:
    """A batch with some of its records: same offsets, same producer, same end; uncompressed."""
    head = batch.header(data)
    built = build(kept, head.base_offset)
    stamped = head.attributes & batch.LOG_APPEND_TIME
    return batch.assembled(
        built[batch.HEADER.size :],
        count=len(kept),
        last_offset_delta=head.last_offset_delta,
        base_timestamp=batch.header(built).base_timestamp,
        max_timestamp=head.max_timestamp if stamped else max(record.timestamp for record in kept),
        attributes=head.attributes & ~batch.COMPRESSION,
        base_offset=head.base_offset,
        producer_id=head.producer_id,
        producer_epoch=head.producer_epoch,
        base_sequence=head.base_sequence,
    )


def _uncompressed(data: bytes) -> bytes:
    head = batch.header(data)
    if head.compression == 0:
        return data
    body = DECOMPRESS[head.compression](data[batch.HEADER.size :])
    changed = bytearray(data[: batch.HEADER.size])
    struct.pack_into(">i", changed, 8, batch.HEADER.size - 12 + len(body))
    struct.pack_into(">h", changed, 21, head.attributes & ~batch.COMPRESSION)
    return bytes(changed) + body


def _gunzip(data: bytes) -> bytes:
    inflater = zlib.decompressobj(GZIP_OR_ZLIB)
    try:
        out = inflater.decompress(data, DECOMPRESSED_BYTES_MAX)
    except zlib.error as error:
        raise BadRecords(f"bad gzip: {error}") from error
    if inflater.unconsumed_tail:
        raise BadRecords(f"more than {DECOMPRESSED_BYTES_MAX} bytes when decompressed")
    return out


def _unsnappy(data: bytes) -> bytes:
    if not data.startswith(XERIAL):
        return _unsnappy_block(data, DECOMPRESSED_BYTES_MAX)
    out, at = [], 16
    left = DECOMPRESSED_BYTES_MAX
    while at < len(data):
        [size] = struct.unpack_from(">i", data, at)
        if size < 0:
            raise BadRecords("bad snappy: a block of negative size")
        out.append(_unsnappy_block(data[at + 4 : at + 4 + size], left))
        left -= len(out[-1])
        at += 4 + size
    return b"".join(out)


def _unsnappy_block(data: bytes, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(data) > limit:
            raise BadRecords(f"more than {DECOMPRESSED_BYTES_MAX} bytes when decompressed")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise BadRecords(f"bad snappy: {error}") from error


def _into_growing_buffer(codec: Any) -> Callable[[bytes], bytes]:
    """lz4 and zstd do not say how much will come, so the room is doubled until it fits or is too much."""

    def decompress(data: bytes) -> bytes:
        room = min(max(len(data) * 8, 65536), DECOMPRESSED_BYTES_MAX)
        while True:
            out = bytearray(room)
            try:
                size = codec.decompress_into(data, out)
            except cramjam.DecompressionError as error:
                # Only a full buffer is worth a larger one; trying that on noise would cost its sender nothing.
                if room >= DECOMPRESSED_BYTES_MAX or "whole buffer" not in str(error):
                    raise BadRecords(f"cannot be decompressed within {room} bytes: {error}") from error
                room = min(room * 8, DECOMPRESSED_BYTES_MAX)
                continue
            return bytes(out[:size])

    return decompress


DECOMPRESS: dict[int, Callable[[bytes], bytes]] = {
    1: _gunzip,
    2: _unsnappy,
    3: _into_growing_buffer(cramjam.lz4),
    4: _into_growing_buffer(cramjam.zstd),
}
