"""Produce, decoded and encoded by hand: the schema-driven codec costs five times as much on the busiest path.

Tests compare every version byte for byte with kio. Versions 0 to 2 are read only so that they can be refused politely.

    request   v3+  transactional id, acks int16, timeout int32, topics [name, partitions [index int32, records bytes]]
    response       topics [name, partitions [index int32, error int16, base offset int64
                   v2+ log append time int64  v5+ log start int64  v8+ record errors [], message string ]]  v1+ throttle
    v9+ is flexible
"""

import struct
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from penstock.wire.read import Malformed, read_uvarint, skip_tagged_fields
from penstock.wire.write import uvarint

ACKS = struct.Struct(">hi")
INT16, INT32 = struct.Struct(">h"), struct.Struct(">i")
ROW = struct.Struct(">ihqqq")  # index, error, base offset, log append time, log start
FLEXIBLE_FROM = 9
Topics = list[tuple[str, list[tuple[int, bytes | None]]]]  # (name, [(partition, records)])


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: Topics


class ProduceRow(NamedTuple):
    """One partition of the answer."""

    partition: int
    code: ErrorCode
    base_offset: int = -1
    log_append_ms: int = -1
    log_start: int = -1
    message: str | None = None


def read_produce(frame: bytes, at: int, version: int) -> ProduceRequest:
    try:
        return _read_flexible(frame, at) if version >= FLEXIBLE_FROM else _read_legacy(frame, at, version)
    except (struct.error, IndexError) as error:
        raise Malformed("the produce request ends too early") from error
    except UnicodeDecodeError as error:
        raise Malformed("text that is not UTF-8") from error


def write_produce(version: int, topics: list[tuple[str, list[ProduceRow]]]) -> list[bytes | memoryview]:
    flexible = version >= FLEXIBLE_FROM
    parts: list[bytes] = [uvarint(len(topics) + 1) if flexible else INT32.pack(len(topics))]
    for name, rows in topics:
        encoded = name.encode()
        parts.append(uvarint(len(encoded) + 1) if flexible else INT16.pack(len(encoded)))
        parts.append(encoded)
        parts.append(uvarint(len(rows) + 1) if flexible else INT32.pack(len(rows)))
        for row in rows:
            _write_row(parts, row, version, flexible)
        if flexible:
            parts.append(b"\0")
    if version >= 1:
        parts.append(b"\0\0\0\0\0" if flexible else b"\0\0\0\0")  # throttle time, tagged fields
    return [b"".join(parts)]


def _read_legacy(frame: bytes, at: int, version: int) -> ProduceRequest:
    transactional_id = None
    if version >= 3:
        [size] = INT16.unpack_from(frame, at)
        at += 2
        if size >= 0:
            transactional_id, at = _take(frame, at, size).decode(), at + size
    acks, timeout_ms = ACKS.unpack_from(frame, at)
    count, at = _count(frame, at + 6)
    topics: Topics = []
    for _ in range(count):
        [size] = INT16.unpack_from(frame, at)
        name = _take(frame, at + 2, size).decode()
        partitions, at = _count(frame, at + 2 + size)
        rows: list[tuple[int, bytes | None]] = []
        for _ in range(partitions):
            index, size = INT32.unpack_from(frame, at)[0], INT32.unpack_from(frame, at + 4)[0]
            at += 8
            rows.append((index, None if size < 0 else _take(frame, at, size)))
            at += max(size, 0)
        topics.append((name, rows))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_flexible(frame: bytes, at: int) -> ProduceRequest:
    transactional_id = None
    size, at = read_uvarint(frame, at)
    if size:
        transactional_id, at = _take(frame, at, size - 1).decode(), at + size - 1
    acks, timeout_ms = ACKS.unpack_from(frame, at)
    count, at = read_uvarint(frame, at + 6)
    topics: Topics = []
    for _ in range(_bounded(count - 1, frame, at)):
        size, at = read_uvarint(frame, at)
        name = _take(frame, at, size - 1).decode()
        partitions, at = read_uvarint(frame, at + size - 1)
        rows: list[tuple[int, bytes | None]] = []
        for _ in range(_bounded(partitions - 1, frame, at)):
            [index] = INT32.unpack_from(frame, at)
            size, at = read_uvarint(frame, at + 4)
            rows.append((index, None if size == 0 else _take(frame, at, size - 1)))
            at = skip_tagged_fields(frame, at + max(size - 1, 0))
        at = skip_tagged_fields(frame, at)
        topics.append((name, rows))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _write_row(parts: list[bytes], row: ProduceRow, version: int, flexible: bool) -> None:
    packed = ROW.pack(row.partition, row.code, row.base_offset, row.log_append_ms, row.log_start)
    parts.append(packed if version >= 5 else packed[:22] if version >= 2 else packed[:14])
    if version < 8:
        return
    message = None if row.message is None else row.message.encode()
    if flexible:
        parts.append(b"\1" + (b"\0" if message is None else uvarint(len(message) + 1) + message) + b"\0")
    else:
        parts.append(b"\0\0\0\0" + (b"\xff\xff" if message is None else INT16.pack(len(message)) + message))


def _count(frame: bytes, at: int) -> tuple[int, int]:
    return _bounded(INT32.unpack_from(frame, at)[0], frame, at), at + 4


def _bounded(count: int, frame: bytes, at: int) -> int:
    """A topic or partition takes at least four bytes."""
    if not 0 <= count <= (len(frame) - at) // 4 + 1:
        raise Malformed(f"{count} elements announced, {len(frame) - at} bytes left")
    return count


def _take(frame: bytes, at: int, size: int) -> bytes:
    if not 0 <= size <= len(frame) - at:
        raise Malformed(f"{size} bytes announced, {len(frame) - at} left")
    return frame[at : at + size]
