"""The codec says what kio says, for every API and version we speak, and refuses what is not a message."""

import contextlib
import dataclasses
import datetime
import io
import struct
import uuid
from typing import Any, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from penstock.dispatch import APIS
from penstock.wire.read import Malformed, read_request, read_response, read_uvarint
from penstock.wire.schema import FieldPlan, StructPlan, request_plan, response_plan
from penstock.wire.write import response_writer, uvarint

SPOKEN = [(key, version) for key, api in APIS.items() for version in range(api.low, api.high + 1)]
SPOKEN = [(key, version) for key, version in SPOKEN if not (key == 0 and version < 3)]
RANGES = {"b": 8, "h": 16, "i": 32, "q": 64}


def values(field: FieldPlan) -> st.SearchStrategy[Any]:
    one = _one(field)
    if field.array:
        one = st.lists(one, max_size=3)
    elif field.struct is None and field.kind not in ("string", "bytes", "records"):
        return one
    return st.none() | one if field.nullable and field.tag is None else one


def messages(plan: StructPlan) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: values(field) for field in plan.fields})


def _one(field: FieldPlan) -> st.SearchStrategy[Any]:
    if field.struct:
        return messages(field.struct)
    match field.kind:
        case "bool":
            return st.booleans()
        case "string":
            return st.text(max_size=12)
        case "bytes" | "records":
            return st.binary(max_size=200)
        case "uuid":
            return st.binary(min_size=16, max_size=16)
        case "error_code":
            return st.integers(-1, 120)
        case "timedelta_i32" | "timedelta_i64":
            return st.integers(0, 2**31 - 1)
        case "datetime_i64":
            return st.integers(0, 4_000_000_000_000).map(lambda ms: ms // 1000 * 1000)
        case "uint16":
            return st.integers(0, 2**16 - 1)
        case "float64":
            return st.floats(allow_nan=False)
        case "int8" | "int16" | "int32" | "int64":
            bits = int(field.kind[3:])
            return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    raise NotImplementedError(field.kind)


def as_kio(cls: type[Any], message: dict[str, Any]) -> Any:
    """The same message as kio's dataclass."""
    return cls(**{f.name: _as_kio_value(f.type, f.metadata.get("kafka_type"), message[f.name]) for f in _fields(cls)})


def _as_kio_value(annotation: Any, kind: str | None, value: Any) -> Any:
    if get_origin(annotation) is not None and get_origin(annotation) is not tuple:
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if value is None:
        return None
    if get_origin(annotation) is tuple:
        return tuple(_as_kio_value(get_args(annotation)[0], kind, item) for item in value)
    if dataclasses.is_dataclass(annotation):
        return as_kio(annotation, value)
    match kind:
        case "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
        case "error_code":
            from kio.schema.errors import ErrorCode

            return ErrorCode(value)
    return value


def _fields(cls: Any) -> Any:
    return dataclasses.fields(cls)


@pytest.mark.parametrize(("key", "version"), SPOKEN)
@settings(max_examples=12, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_requests_written_by_kio_are_read_back_value_for_value(key: int, version: int, data: st.DataObject) -> None:
    message = data.draw(messages(request_plan(key, version)))
    cls = load_request_schema(key, version)
    out = io.BytesIO()
    entity_writer(cls)(out, as_kio(cls, message))
    assert read_request(key, version, out.getvalue(), 0) == message


@pytest.mark.parametrize(("key", "version"), SPOKEN)
@settings(max_examples=12, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_responses_are_byte_for_byte_what_kio_writes(key: int, version: int, data: st.DataObject) -> None:
    message = data.draw(messages(response_plan(key, version)))
    cls = load_response_schema(key, version)
    expected = io.BytesIO()
    entity_writer(cls)(expected, as_kio(cls, message))
    parts: list[bytes] = []
    response_writer(key, version)(parts, message)
    assert b"".join(parts) == expected.getvalue()
    assert entity_reader(cls)(b"".join(parts), 0)[1] == len(expected.getvalue())
    assert read_response(key, version, expected.getvalue(), 0) == message


@pytest.mark.parametrize(("key", "version"), SPOKEN)
@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(noise=st.binary(max_size=80))
def test_random_bytes_are_read_or_refused_and_nothing_else(key: int, version: int, noise: bytes) -> None:
    with contextlib.suppress(Malformed):
        read_request(key, version, noise, 0)


def test_an_array_of_four_billion_is_refused_before_it_is_allocated() -> None:
    hostile = b"\xff\xff\xff\xff\x0f" + b"\0\0\0"
    with pytest.raises(Malformed, match="elements announced"):
        read_request(3, 9, hostile, 0)


def test_more_elements_than_one_request_may_have_are_refused() -> None:
    names = 260_000
    frame = struct.pack(">i", names) + struct.pack(">h", 0) * names
    with pytest.raises(Malformed, match="more than"):
        read_request(3, 1, frame, 0)


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = b"\x01" + b"\1\1\1"  # no topics, three flags, then the tagged fields
    assert read_request(3, 9, plain + b"\0", 0) == read_request(3, 9, plain + b"\x02" + b"\x63\x03abc" + b"\x64\0", 0)


def test_bytes_after_the_message_are_ignored_as_kafka_does() -> None:
    plain = b"\x01" + b"\1\1\1" + b"\0"
    assert read_request(3, 9, plain + b"\1\0\0", 0) == read_request(3, 9, plain, 0)


@given(st.integers(0, 2**32 - 1))
def test_variable_length_numbers_come_back(number: int) -> None:
    assert read_uvarint(uvarint(number), 0) == (number, len(uvarint(number)))
