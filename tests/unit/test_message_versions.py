"""Old and new processes share one log during an upgrade: each reads what the other writes.

`FIRST` is what the first version of every message carried, as it stood on the wire. It never changes: a message is
added here when it is born, with the fields that it cannot do without.
"""

from typing import Any

import msgspec
import pytest

from aisle.messages import MESSAGES, Message, decode, encode

ROUTE = {"id": "m1", "lane": "shared", "event": 7, "section": "A", "partition": 3, "epoch": 1, "version": 1}
PARTS = [{"section": "A", "subsection": 1, "seats": [0, 1], "price": 3000}]
HALL = {"subsection": 1, "rows": 2, "seats_per_row": 10, "price": 3000, "rank": 0}

FIRST: dict[str, dict[str, Any]] = {
    "seats_initialized": {"halls": [HALL], "limit": 10},
    "price_changed": {"subsections": [1], "price": 100, "revision": 2},
    "ticket_reserve_requested": {"booking": "b1", "buyer": "p1", "quantity": 2},
    "seats_reserved": {"booking": "b1", "buyer": "p1", "parts": PARTS},
    "places_reserved": {"booking": "b1", "buyer": "p1", "pool": "GA", "quantity": 2, "price": 100},
    "places_ticketed": {"booking": "b1", "parts": PARTS},
    "booking_pending_payment": {"booking": "b1", "parts": PARTS},
    "booking_failed": {"booking": "b1", "reason": "sold_out"},
    "tickets_refused": {"booking": "b1", "reason": "taken"},
    "booking_paid": {"booking": "b1", "parts": PARTS},
    "seats_finalized": {"booking": "b1", "buyer": "p1", "parts": PARTS},
    "booking_expired": {"booking": "b1", "buyer": "p1", "parts": PARTS},
    "seats_released": {"booking": "b1", "buyer": "p1", "parts": PARTS},
}


def on_the_wire(kind: str, **more: Any) -> bytes:
    return msgspec.json.encode({"type": kind, **ROUTE, **FIRST[kind], **more})


def tag(kind: type[Message]) -> str:
    return str(kind.__struct_config__.tag)


def test_every_message_has_a_first_version():
    assert set(FIRST) == {tag(kind) for kind in MESSAGES}


@pytest.mark.parametrize("kind", sorted(FIRST))
def test_what_an_older_process_wrote_is_read(kind):
    message = decode(on_the_wire(kind))
    written = msgspec.to_builtins(message)
    for name, value in {**ROUTE, **FIRST[kind]}.items():
        told = written[name]
        if name == "halls":
            told = [{field: hall[field] for field in HALL} for hall in told]
        assert msgspec.json.encode(told) == msgspec.json.encode(value)


@pytest.mark.parametrize("kind", sorted(FIRST))
def test_what_a_newer_process_adds_is_passed_over(kind):
    newer = on_the_wire(kind, version=2, new_field={"of": ["the", "next", "version"]})
    assert decode(newer) == msgspec.structs.replace(decode(on_the_wire(kind)), version=2)


@pytest.mark.parametrize("kind", sorted(FIRST))
def test_an_older_process_reads_what_this_one_writes(kind):
    """Its decoder knows the fields of the first version only."""
    older = msgspec.defstruct(
        "Older", [(name, type(value)) for name, value in {**ROUTE, **FIRST[kind]}.items()], tag_field="type", tag=kind
    )
    read = msgspec.to_builtins(msgspec.json.decode(encode(decode(on_the_wire(kind))), type=older))
    assert {name: read[name] for name in ROUTE} == ROUTE
    assert set(FIRST[kind]) <= set(read)
