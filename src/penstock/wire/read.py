"""Decode requests from bytes nobody vouches for.

Called by the server for every request but Produce and Fetch (`hot`). Every length is compared with the bytes
that are there before anything is allocated, and the number of elements of one request is bounded, so a hostile
frame costs its sender a connection and the broker nothing. A decoded message is a dict of plain values:
integers as on the wire, str, bytes, 16 raw bytes for a UUID, lists, dicts.

    legacy    string  int16 n, n bytes (-1 null)     array  int32 n, items (-1 null)     bytes  int32 n, n bytes
    flexible  string  uvarint n+1, n bytes (0 null)  array  uvarint n+1, items (0 null)  struct ends with tagged fields
    tagged fields     uvarint count, then count x (uvarint tag, uvarint size, size bytes); unknown tags are skipped
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, cast

from penstock.limits import REQUEST_ELEMENTS_MAX
from penstock.wire.schema import INTEGERS, FieldPlan, StructPlan, request_plan, response_plan

# (frame, position, [elements still allowed]) -> (value, next position)
Reader = Callable[[bytes, int, list[int]], tuple[Any, int]]


class Malformed(Exception):
    """The bytes are not the message they claim to be. The connection is closed, as Kafka does."""


class RequestHeader(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


FIXED = struct.Struct(">hhih")


def read_header(frame: bytes, flexible: Callable[[int, int], bool]) -> RequestHeader:
    """The request header, v1 or v2. `flexible` says whether (api key, version) uses v2, which adds tagged fields."""
    if len(frame) < FIXED.size:
        raise Malformed(f"request header of {len(frame)} bytes")
    api_key, version, correlation_id, client_size = FIXED.unpack_from(frame)
    at = FIXED.size
    client_id = None
    if client_size >= 0:
        client_id, at = _text(frame, at, client_size)
    elif client_size != -1:
        raise Malformed(f"client id of {client_size} bytes")
    if flexible(api_key, version):
        at = skip_tagged_fields(frame, at)
    return RequestHeader(api_key, version, correlation_id, client_id, at)


def read_request(api_key: int, version: int, frame: bytes, at: int) -> dict[str, Any]:
    return _read_whole(request_reader(api_key, version), frame, at)


def read_response(api_key: int, version: int, frame: bytes, at: int) -> dict[str, Any]:
    """For tools and tests that talk to a broker; the broker itself only reads requests."""
    return _read_whole(_struct_reader(response_plan(api_key, version)), frame, at)


@cache
def request_reader(api_key: int, version: int) -> Reader:
    return _struct_reader(request_plan(api_key, version))


def _read_whole(reader: Reader, frame: bytes, at: int) -> dict[str, Any]:
    try:
        message, _ = reader(frame, at, [REQUEST_ELEMENTS_MAX])
    except (struct.error, IndexError) as error:
        raise Malformed("the message ends too early") from error
    # Bytes after the message are ignored, as Kafka does: librdkafka sends three when it asks for all topics.
    return cast(dict[str, Any], message)


def _struct_reader(plan: StructPlan) -> Reader:
    plain = [(f.name, _field_reader(f, plan.flexible)) for f in plan.fields if f.tag is None]
    tagged = {f.tag: (f.name, _field_reader(f, plan.flexible)) for f in plan.fields if f.tag is not None}
    absent = {f.name: f.default for f in plan.fields if f.tag is not None}

    def read_plain(frame: bytes, at: int, budget: list[int]) -> tuple[Any, int]:
        message = {}
        for name, reader in plain:
            message[name], at = reader(frame, at, budget)
        return message, at

    def read_flexible(frame: bytes, at: int, budget: list[int]) -> tuple[Any, int]:
        message = dict(absent)
        for name, reader in plain:
            message[name], at = reader(frame, at, budget)
        count, at = read_uvarint(frame, at)
        for _ in range(_bounded(count, frame, at)):
            tag, at = read_uvarint(frame, at)
            size, at = read_uvarint(frame, at)
            end = at + _bounded(size, frame, at)
            if tag in tagged:
                name, reader = tagged[tag]
                message[name], stopped = reader(frame, at, budget)
                if stopped != end:
                    raise Malformed(f"tagged field {name} is not as long as it says")
            at = end
        return message, at

    return read_flexible if plan.flexible else read_plain


def _field_reader(field: FieldPlan, flexible: bool) -> Reader:
    # A tagged field is null by being absent: when it is present its value has the plain form.
    nullable = field.nullable and field.tag is None
    if not field.array:
        return _value_reader(field, flexible, nullable)
    return _array_reader(_value_reader(field, flexible, False), field.name, flexible, nullable)


def _value_reader(field: FieldPlan, flexible: bool, nullable: bool) -> Reader:
    if field.struct is not None:
        inner = _struct_reader(field.struct)
        return _nullable_struct_reader(inner) if nullable else inner
    if field.kind == "bool":
        return lambda frame, at, budget: (frame[at] != 0, at + 1)
    if field.kind == "uuid":
        return lambda frame, at, budget: (_take(frame, at, 16), at + 16)
    if field.kind in INTEGERS:
        return _number_reader(struct.Struct(">" + INTEGERS[field.kind]))
    take: Callable[[bytes, int, int], tuple[Any, int]] = _text if field.kind == "string" else _bytes
    return _sized_reader(take, field, flexible, nullable)


def _number_reader(layout: struct.Struct) -> Reader:
    unpack, size = layout.unpack_from, layout.size
    return lambda frame, at, budget: (unpack(frame, at)[0], at + size)


def _sized_reader(take: Callable[..., tuple[Any, int]], field: FieldPlan, flexible: bool, nullable: bool) -> Reader:
    length = struct.Struct(">h" if field.kind == "string" else ">i")

    def read_legacy(frame: bytes, at: int, budget: list[int]) -> tuple[Any, int]:
        [size] = length.unpack_from(frame, at)
        return finish(frame, at + length.size, size)

    def read_compact(frame: bytes, at: int, budget: list[int]) -> tuple[Any, int]:
        size, at = read_uvarint(frame, at)
        return finish(frame, at, size - 1)

    def finish(frame: bytes, at: int, size: int) -> tuple[Any, int]:
        if size >= 0:
            return take(frame, at, size)
        if size != -1 or not nullable:
            raise Malformed(f"{field.name} must not be null")
        return None, at

    return read_compact if flexible else read_legacy


def _array_reader(item: Reader, name: str, flexible: bool, nullable: bool) -> Reader:
    length = struct.Struct(">i")

    def read_array(frame: bytes, at: int, budget: list[int]) -> tuple[Any, int]:
        if flexible:
            count, at = read_uvarint(frame, at)
            count -= 1
        else:
            [count] = length.unpack_from(frame, at)
            at += 4
        if count < 0:
            if count != -1 or not nullable:
                raise Malformed(f"{name} must not be null")
            return None, at
        budget[0] -= _bounded(count, frame, at)
        if budget[0] < 0:
            raise Malformed(f"more than {REQUEST_ELEMENTS_MAX} elements in one request")
        items = []
        for _ in range(count):
            value, at = item(frame, at, budget)
            items.append(value)
        return items, at

    return read_array


def _nullable_struct_reader(inner: Reader) -> Reader:
    def read_nullable(frame: bytes, at: int, budget: list[int]) -> tuple[Any, int]:
        return (None, at + 1) if frame[at] > 127 else inner(frame, at + 1, budget)

    return read_nullable


def read_uvarint(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise Malformed("a variable-length number of more than 5 bytes")


def skip_tagged_fields(frame: bytes, at: int) -> int:
    try:
        count, at = read_uvarint(frame, at)
        for _ in range(_bounded(count, frame, at)):
            _, at = read_uvarint(frame, at)
            size, at = read_uvarint(frame, at)
            at += _bounded(size, frame, at)
    except IndexError as error:
        raise Malformed("the message ends too early") from error
    return at


def _bounded(count: int, frame: bytes, at: int) -> int:
    """Every element takes at least one byte, so a count above the bytes left is a lie."""
    if count > len(frame) - at:
        raise Malformed(f"{count} elements announced, {len(frame) - at} bytes left")
    return count


def _take(frame: bytes, at: int, size: int) -> bytes:
    if size > len(frame) - at:
        raise Malformed(f"{size} bytes announced, {len(frame) - at} left")
    return frame[at : at + size]


def _bytes(frame: bytes, at: int, size: int) -> tuple[bytes, int]:
    return _take(frame, at, size), at + size


def _text(frame: bytes, at: int, size: int) -> tuple[str, int]:
    try:
        return _take(frame, at, size).decode(), at + size
    except UnicodeDecodeError as error:
        raise Malformed("text that is not UTF-8") from error
