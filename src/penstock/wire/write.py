"""Encode responses from dicts of plain values, by the plans of `schema`.

Called by the server for every response but Produce and Fetch (`hot`). A key the version does not have is left
out, so an API function builds one dict for all versions; a key the version needs and nobody gave is a KeyError,
which is a bug.
"""

import struct
from collections.abc import Callable
from dataclasses import MISSING
from functools import cache
from typing import Any

from penstock.wire.schema import (
    INTEGERS,
    FieldPlan,
    StructPlan,
    request_plan,
    response_header_is_flexible,
    response_plan,
)

Writer = Callable[[list[bytes], Any], None]  # appends to the parts; the caller joins them


def response_bytes(api_key: int, version: int, correlation_id: int, message: dict[str, Any]) -> bytes:
    """A whole response frame, size first."""
    parts = [struct.pack(">i", correlation_id)]
    if response_header_is_flexible(api_key, version):
        parts.append(b"\0")
    response_writer(api_key, version)(parts, message)
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


def request_bytes(api_key: int, version: int, correlation_id: int, client_id: str, message: dict[str, Any]) -> bytes:
    """A whole request frame, for tools and tests that talk to a broker."""
    name = client_id.encode()
    parts = [struct.pack(">hhih", api_key, version, correlation_id, len(name)), name]
    plan = request_plan(api_key, version)
    if plan.flexible:
        parts.append(b"\0")
    _struct_writer(plan)(parts, message)
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


@cache
def response_writer(api_key: int, version: int) -> Writer:
    return _struct_writer(response_plan(api_key, version))


def _struct_writer(plan: StructPlan) -> Writer:
    plain = [(f.name, f.default, _field_writer(f, plan.flexible)) for f in plan.fields if f.tag is None]
    tagged = [(f, _field_writer(f, plan.flexible)) for f in plan.fields if f.tag is not None]
    tagged.sort(key=lambda pair: pair[0].tag or 0)

    def write(parts: list[bytes], message: dict[str, Any]) -> None:
        for name, default, writer in plain:
            writer(parts, message[name] if default is MISSING else message.get(name, default))
        if plan.flexible:
            write_tagged(parts, message)

    def write_tagged(parts: list[bytes], message: dict[str, Any]) -> None:
        present = [(f, writer) for f, writer in tagged if message.get(f.name, f.default) != f.default]
        parts.append(uvarint(len(present)))
        for field, writer in present:
            value: list[bytes] = []
            writer(value, message[field.name])
            encoded = b"".join(value)
            parts.extend((uvarint(field.tag or 0), uvarint(len(encoded)), encoded))

    return write


def _field_writer(field: FieldPlan, flexible: bool) -> Writer:
    nullable = field.nullable and field.tag is None
    if not field.array:
        return _value_writer(field, flexible, nullable)
    return _array_writer(_value_writer(field, flexible, False), flexible)


def _value_writer(field: FieldPlan, flexible: bool, nullable: bool) -> Writer:
    if field.struct is not None:
        inner = _struct_writer(field.struct)
        return _nullable_struct_writer(inner) if nullable else inner
    if field.kind == "bool":
        return lambda parts, value: parts.append(b"\1" if value else b"\0")
    if field.kind == "uuid":
        return lambda parts, value: parts.append(value or bytes(16))
    if field.kind in INTEGERS:
        pack = struct.Struct(">" + INTEGERS[field.kind]).pack
        return lambda parts, value: parts.append(pack(value))
    return _sized_writer(field, flexible)


def _sized_writer(field: FieldPlan, flexible: bool) -> Writer:
    length = struct.Struct(">h" if field.kind == "string" else ">i").pack

    def write(parts: list[bytes], value: str | bytes | None) -> None:
        if value is None:
            if not field.nullable:
                raise ValueError(f"{field.name} must not be null")
            parts.append(b"\0" if flexible else length(-1))
            return
        data = value.encode() if isinstance(value, str) else value
        parts.append(uvarint(len(data) + 1) if flexible else length(len(data)))
        parts.append(data)

    return write


def _array_writer(item: Writer, flexible: bool) -> Writer:
    length = struct.Struct(">i").pack

    def write(parts: list[bytes], values: list[Any] | None) -> None:
        count = -1 if values is None else len(values)
        parts.append(uvarint(count + 1) if flexible else length(count))
        for value in values or ():
            item(parts, value)

    return write


def _nullable_struct_writer(inner: Writer) -> Writer:
    def write(parts: list[bytes], value: dict[str, Any] | None) -> None:
        if value is None:
            parts.append(b"\xff")
        else:
            parts.append(b"\1")
            inner(parts, value)

    return write


SMALL = [bytes([n]) for n in range(128)]


def uvarint(value: int) -> bytes:
    if value < 128:
        return SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
