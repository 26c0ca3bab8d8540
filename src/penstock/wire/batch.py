"""The record batch (version 2), the only thing producers send and consumers get.

    0         8        12            16     17    21          23                27              35
    | base    | length | leader      | magic | crc | attributes | last offset    | base           | max
    | offset  |        | epoch       | (= 2) |     |            | delta          | timestamp      | timestamp ...
    | int64   | int32  | int32       | int8  | u32 | int16      | int32          | int64          | int64
    43            51              53               57            61
    | producer id | producer      | base           | record      | records, compressed together
    | int64       | epoch  int16  | sequence int32 | count int32 |

`length` counts from byte 12. The crc covers byte 21 to the end, so base offset and leader epoch can be set without
touching it: batches are kept as the producer sent them and get their offset when they are read.

    attributes  bits 0-2 compression (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd)
                bit 3 LogAppendTime   bit 4 transactional   bit 5 control
"""

import struct
from typing import NamedTuple

from crc32c import crc32c
from kio.schema.errors import ErrorCode

from penstock.limits import BATCH_RECORDS_MAX

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_AT = 17
CHECKED_FROM = 21  # the first byte the crc covers
COMPRESSION, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
ZSTD = 4


class Batch(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)


class Refused(NamedTuple):
    code: ErrorCode
    why: str


def header(data: bytes) -> Batch:
    return Batch._make(HEADER.unpack_from(data))


def checked(data: bytes) -> Batch | Refused:
    """The header of what must be exactly one sound batch from a producer, or why it is not."""
    if len(data) < HEADER.size:
        return Refused(ErrorCode.corrupt_message, "The record batch is shorter than its header.")
    batch = header(data)
    if batch.magic != 2:
        return Refused(ErrorCode.invalid_record, "Only record batches with magic 2 are accepted.")
    if batch.length + 12 > len(data) or batch.length < HEADER.size - 12:
        return Refused(ErrorCode.corrupt_message, "The record batch is not as long as it says.")
    if batch.length + 12 < len(data):
        return Refused(ErrorCode.invalid_record, "A produce request must hold exactly one record batch a partition.")
    if crc32c(memoryview(data)[CHECKED_FROM:]) != batch.crc:
        return Refused(ErrorCode.corrupt_message, "The record batch has a wrong checksum.")
    if not 0 < batch.record_count <= BATCH_RECORDS_MAX or batch.last_offset_delta != batch.record_count - 1:
        return Refused(ErrorCode.invalid_record, "The record count and the last offset delta do not agree.")
    if batch.compression > ZSTD:
        return Refused(ErrorCode.unsupported_compression_type, "Unknown compression type.")
    if batch.control:
        return Refused(ErrorCode.invalid_record, "Clients cannot write control records.")
    if batch.producer_id >= 0 and (batch.producer_epoch < 0 or batch.base_sequence < 0):
        return Refused(ErrorCode.invalid_record, "A producer id needs an epoch and a sequence.")
    if batch.producer_id < 0 and batch.transactional:
        return Refused(ErrorCode.invalid_record, "A transactional batch needs a producer id.")
    return batch


def placed(data: bytes, base_offset: int, leader_epoch: int = 0) -> bytes:
    """The batch as consumers get it: at its offset."""
    return b"".join((struct.pack(">q", base_offset), data[8:12], struct.pack(">i", leader_epoch), data[16:]))


def stamped(data: bytes, now_ms: int) -> bytes:
    """The batch with the broker's time, for topics with LogAppendTime."""
    return resealed(data, attributes=header(data).attributes | LOG_APPEND_TIME, max_timestamp=now_ms)


def resealed(data: bytes, *, attributes: int, max_timestamp: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(">h", changed, 21, attributes)
    struct.pack_into(">q", changed, 35, max_timestamp)
    return _sealed(changed)


def assembled(
    records: bytes,
    *,
    count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch around encoded records: for control records and for logs that are not kept as batches."""
    head = (base_offset, HEADER.size - 12 + len(records), 0, 2, 0, attributes, last_offset_delta, base_timestamp)
    tail = (max_timestamp, producer_id, producer_epoch, base_sequence, count)
    return _sealed(bytearray(HEADER.pack(*head, *tail)) + records)


def _sealed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return bytes(batch)
