"""Fetch, decoded and encoded by hand. Tests compare every version byte for byte with kio.

The answer is a list of buffers, so record batches go from the store's reply or the tail cache to the socket uncopied.

    request   replica int32 (to v14), max wait int32, min bytes int32, max bytes int32, isolation int8
              v7+ session id int32, session epoch int32
              topics [name, or 16-byte id from v13, partitions [index int32  v9+ leader epoch int32  offset int64
                      v12+ last fetched epoch int32  v5+ log start int64  max bytes int32]]
              v7+ forgotten topics, v11+ rack: read by nobody here
    response  throttle int32  v7+ error int16, session id int32
              topics [name or id, partitions [index int32, error int16, high watermark int64, last stable offset int64
                      v5+ log start int64, aborted [producer id int64, first offset int64]
                      v11+ replica int32, records bytes]]
    v12+ is flexible
"""

import struct
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from penstock.wire.read import Malformed, read_uvarint, skip_tagged_fields
from penstock.wire.write import uvarint

INT16, INT32, INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
LIMITS = struct.Struct(">iiib")  # max wait, min bytes, max bytes, isolation
SESSION = struct.Struct(">ii")
ABORTED = struct.Struct(">qq")
FLEXIBLE_FROM, IDS_FROM = 12, 13


class Wanted(NamedTuple):
    """One partition of a request."""

    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    session_id: int
    session_epoch: int
    topics: list[tuple[str | bytes, list[Wanted]]]  # name, or id from version 13


class FetchRow(NamedTuple):
    """One partition of the answer."""

    partition: int
    code: ErrorCode
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    aborted: list[tuple[int, int]] | None = None  # None for readers that did not ask
    batches: list[bytes] | None = None


# Partition rows by version: the fields, and where leader epoch, offset and max bytes are among them.
ROWS = {
    4: (struct.Struct(">iqi"), -1, 1, 2),
    5: (struct.Struct(">iqqi"), -1, 1, 3),
    9: (struct.Struct(">iiqqi"), 1, 2, 4),
    12: (struct.Struct(">iiqiqi"), 1, 2, 5),
}
ROW_OF_VERSION = {version: ROWS[max(low for low in ROWS if low <= version)] for version in range(4, 19)}


def read_fetch(frame: bytes, at: int, version: int) -> FetchRequest:
    try:
        return _read(frame, at, version)
    except (struct.error, IndexError) as error:
        raise Malformed("the fetch request ends too early") from error
    except UnicodeDecodeError as error:
        raise Malformed("text that is not UTF-8") from error


def write_fetch(
    version: int, topics: list[tuple[str | bytes, list[FetchRow]]], code: ErrorCode = ErrorCode.none
) -> list[bytes | memoryview]:
    flexible = version >= FLEXIBLE_FROM
    # Session id 0 says "no session", so clients send their whole list every time.
    head = b"\0\0\0\0" + (INT16.pack(code) + b"\0\0\0\0" if version >= 7 else b"")
    out: list[bytes | memoryview] = []
    small = [head, _length(len(topics), flexible)]
    for topic, rows in topics:
        if isinstance(topic, bytes):
            small.append(topic)
        else:
            name = topic.encode()
            small.append((uvarint(len(name) + 1) if flexible else INT16.pack(len(name))) + name)
        small.append(_length(len(rows), flexible))
        for row in rows:
            small.append(_row_head(row, version, flexible))
            if row.batches:
                out.append(b"".join(small))
                out.extend(row.batches)
                small = []
            if flexible:
                small.append(b"\0")
        if flexible:
            small.append(b"\0")
    if flexible:
        small.append(b"\0")
    out.append(b"".join(small))
    return out


def _read(frame: bytes, at: int, version: int) -> FetchRequest:
    flexible = version >= FLEXIBLE_FROM
    if version <= 14:
        at += 4
    max_wait_ms, min_bytes, max_bytes, isolation = LIMITS.unpack_from(frame, at)
    at += LIMITS.size
    session = (0, -1)
    if version >= 7:
        session = SESSION.unpack_from(frame, at)
        at += SESSION.size
    count, at = _count(frame, at, flexible)
    topics: list[tuple[str | bytes, list[Wanted]]] = []
    for _ in range(count):
        name, at = _topic(frame, at, version)
        rows, at = _rows(frame, at, version, flexible)
        topics.append((name, rows))
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, isolation == 1, *session, topics)


def _topic(frame: bytes, at: int, version: int) -> tuple[str | bytes, int]:
    if version >= IDS_FROM:
        return _take(frame, at, 16), at + 16
    if version >= FLEXIBLE_FROM:
        size, at = read_uvarint(frame, at)
        return _take(frame, at, size - 1).decode(), at + size - 1
    [size] = INT16.unpack_from(frame, at)
    return _take(frame, at + 2, size).decode(), at + 2 + size


def _rows(frame: bytes, at: int, version: int, flexible: bool) -> tuple[list[Wanted], int]:
    layout, epoch_at, offset_at, max_at = ROW_OF_VERSION[version]
    count, at = _count(frame, at, flexible)
    rows = []
    for _ in range(count):
        values = layout.unpack_from(frame, at)
        at += layout.size
        if flexible:
            # Nearly always empty: worth not calling a function for.
            at = at + 1 if frame[at] == 0 else skip_tagged_fields(frame, at)
        epoch = values[epoch_at] if epoch_at > 0 else -1
        rows.append(Wanted(values[0], epoch, values[offset_at], values[max_at]))
    return rows, skip_tagged_fields(frame, at) if flexible else at


def _row_head(row: FetchRow, version: int, flexible: bool) -> bytes:
    """Everything of a row up to the bytes of its records."""
    head = struct.pack(">ihqq", row.partition, row.code, row.high_watermark, row.last_stable)
    if version >= 5:
        head += INT64.pack(row.log_start)
    if row.aborted is None:
        head += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        pairs = [ABORTED.pack(*pair) + (b"\0" if flexible else b"") for pair in row.aborted]
        head += _length(len(pairs), flexible) + b"".join(pairs)
    if version >= 11:
        head += b"\xff\xff\xff\xff"  # no preferred replica
    size = sum(map(len, row.batches)) if row.batches else 0
    return head + (uvarint(size + 1) if flexible else INT32.pack(size))


def _length(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else INT32.pack(count)


def _count(frame: bytes, at: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, at = read_uvarint(frame, at)
        count -= 1
    else:
        count, at = INT32.unpack_from(frame, at)[0], at + 4
    if not 0 <= count <= (len(frame) - at) // 4 + 1:
        raise Malformed(f"{count} elements announced, {len(frame) - at} bytes left")
    return count, at


def _take(frame: bytes, at: int, size: int) -> bytes:
    if not 0 <= size <= len(frame) - at:
        raise Malformed(f"{size} bytes announced, {len(frame) - at} left")
    return frame[at : at + size]
