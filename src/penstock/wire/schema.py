"""The layout of every Kafka message, taken from kio's generated dataclasses.

`read` and `write` compile these plans into functions, once per (API, version). kio gives us the schemas of
Kafka itself; its native reader is not used on requests, because a crafted array length aborts the process.
"""

from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from kio.index import load_request_schema, load_response_schema

# kio turns times into timedelta and datetime; we keep the integers of the wire.
INTEGERS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}

# Response fields that the schema gives no default for, and that we have one answer to.
IMPLIED = {"throttle_time": 0}


@dataclass(frozen=True, slots=True)
class FieldPlan:
    name: str
    kind: str  # a kafka_type, or "struct"
    array: bool
    nullable: bool
    tag: int | None
    default: Any  # MISSING where a value must be given
    struct: "StructPlan | None"


@dataclass(frozen=True, slots=True)
class StructPlan:
    name: str
    flexible: bool
    fields: tuple[FieldPlan, ...]


@cache
def request_plan(api_key: int, version: int) -> StructPlan:
    return _struct_plan(load_request_schema(api_key, version))


@cache
def response_plan(api_key: int, version: int) -> StructPlan:
    return _struct_plan(load_response_schema(api_key, version))


@cache
def response_header_is_flexible(api_key: int, version: int) -> bool:
    """ApiVersions answers always carry header version 0, which is why the schema is asked and not the version."""
    return int(load_response_schema(api_key, version).__header_schema__.__version__) >= 1


def _struct_plan(entity: type[Any]) -> StructPlan:
    return StructPlan(entity.__name__, bool(entity.__flexible__), tuple(_field_plan(f) for f in fields(entity)))


def _field_plan(field: "Field[Any]") -> FieldPlan:
    kind, nullable = _without_none(field.type)
    array = get_origin(kind) is tuple
    if array:
        kind, _ = _without_none(get_args(kind)[0])
    struct = _struct_plan(kind) if isinstance(kind, type) and is_dataclass(kind) else None
    return FieldPlan(
        name=field.name,
        kind="struct" if struct else str(field.metadata["kafka_type"]),
        array=array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        default=_default(field, array, nullable, struct),
        struct=struct,
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is not UnionType:
        return annotation, False
    [inner] = [part for part in get_args(annotation) if part is not NoneType]
    return inner, True


def _default(field: "Field[Any]", array: bool, nullable: bool, struct: StructPlan | None) -> Any:
    kind = field.metadata.get("kafka_type")
    if field.default is MISSING:
        if "tag" not in field.metadata:
            return IMPLIED.get(field.name, MISSING)
        if array:
            return None if nullable else []
        if struct or nullable:
            return None
        return {"string": "", "bytes": b"", "uuid": bytes(16), "bool": False}.get(str(kind), 0)
    if array:
        return None if field.default is None else []
    if is_dataclass(field.default):
        return {f.name: _field_plan(f).default for f in fields(field.default)}
    if kind == "uuid":
        return bytes(16)
    if kind in ("timedelta_i32", "timedelta_i64"):
        return round(field.default.total_seconds() * 1000)
    if kind == "datetime_i64":
        return -1 if field.default is None else round(field.default.timestamp() * 1000)
    return int(field.default) if kind == "error_code" else field.default
