"""The open layout: one stream entry a record, as plain clients read and write it.

    XADD penstock:{orders:0}:log * key order-123 value '{"total": 5}' timestamp 1234567890123 header.trace 7f

    key, value             absent means null; empty means empty
    timestamp              milliseconds; the entry's own time if absent or unreadable
    header.<name>          a header; may repeat
    header-null.<name>     a header whose value is null
    anything else          arrives as a header of that name, so nothing a client wrote is lost

    entry id <ms>-<seq>    offset (ms << bits) + seq; `entry_offsets.lua` has the rule for ids that do not fit

The worked example of the encoding: 1234567890123-5 with 10 bits is 1264197519485957.
"""

from collections.abc import Iterable, Sequence

from penstock.limits import OFFSET_MAX
from penstock.wire.records import Record, build

HEADER, NULL_HEADER = b"header.", b"header-null."
ODD_IDS_FROM = OFFSET_MAX - 2**40  # above, an id says nothing about the offset
DELTA_MAX = 2**31 - 1


def fields_of(record: Record) -> list[str | bytes]:
    """What XADD is given for a record."""
    fields: list[str | bytes] = []
    if record.key is not None:
        fields += (b"key", record.key)
    if record.value is not None:
        fields += (b"value", record.value)
    fields += (b"timestamp", str(record.timestamp))
    for name, value in record.headers:
        fields += (NULL_HEADER + name.encode(), b"") if value is None else (HEADER + name.encode(), value)
    return fields


def record_of(offset: int, ms: int, fields: Sequence[bytes]) -> Record:
    key = value = None
    timestamp = ms
    headers: list[tuple[str, bytes | None]] = []
    for name, content in zip(fields[::2], fields[1::2], strict=True):
        if name == b"key":
            key = content
        elif name == b"value":
            value = content
        elif name == b"timestamp" and content.isdigit() and len(content) < 16:
            timestamp = int(content)
        elif name.startswith(HEADER):
            headers.append((_text(name[len(HEADER) :]), content))
        elif name.startswith(NULL_HEADER):
            headers.append((_text(name[len(NULL_HEADER) :]), None))
        else:
            headers.append((_text(name), content))
    return Record(offset, timestamp, key, value, headers)


def id_of(offset: int, bits: int) -> str:
    return f"{offset >> bits}-{offset & ((1 << bits) - 1)}"


def parts_of(entry_id: bytes) -> tuple[int, int]:
    ms, _, seq = entry_id.partition(b"-")
    return int(ms), int(seq)


def natural_offset(ms: int, seq: int, bits: int) -> int:
    """The offset an id asks for; it gets a later one if that is taken, or if it is out of range."""
    offset = (ms << bits) + seq
    return offset if offset <= ODD_IDS_FROM else 0


def is_regular(ms: int, seq: int, offset: int, bits: int) -> bool:
    return (ms << bits) + seq == offset and seq < 1 << bits


def batches_of(rows: Iterable[Record], limit: int) -> list[bytes]:
    """Record batches of up to `limit` bytes together; one record at least. Offsets far apart need separate batches."""
    groups: list[list[Record]] = []
    size = 0
    for row in rows:
        size += 32 + len(row.key or b"") + len(row.value or b"") + sum(len(n) + len(v or b"") for n, v in row.headers)
        if size > limit and groups:
            break
        if not groups or row.offset - groups[-1][0].offset > DELTA_MAX:
            groups.append([])
        groups[-1].append(row)
    return [build(group, group[0].offset) for group in groups]


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
