"""Messages keep their names and their bytes: other programs read these topics."""

import msgspec
import pytest

from aisle.messages import (
    BOOKING,
    MESSAGES,
    RESERVATION,
    TICKETING,
    BookingPendingPayment,
    Part,
    TicketReserveRequested,
    decode,
    encode,
    group,
    key,
    topic,
    topics,
    topics_to,
)

REQUEST = TicketReserveRequested(
    id="m1", lane="123", event=123, section="A", partition=0, epoch=1, booking="b1", buyer="u1", quantity=2
)


def test_names_are_those_of_the_published_scheme():
    assert (
        topic(TicketReserveRequested, "123")
        == "event-id-123______ticket-reserving-request-in-kvrocks______booking-service___to___seat-reservation-service"
    )
    assert group(RESERVATION, "1") == "event-id-1_____seat-reservation-service--1"
    assert key(REQUEST) == "event-123-section-A-partition-0"


def test_every_topic_name_is_legal_and_unique():
    names = topics("123456789012345678")
    assert len(set(names)) == len(MESSAGES)
    assert all(len(name) <= 249 and msgspec.json.encode(name).isascii() for name in names)


def test_every_message_has_exactly_one_reading_service():
    assert sorted(topics("x")) == sorted(
        n for service in (BOOKING, RESERVATION, TICKETING) for n in topics_to(service, "x")
    )


def test_golden_bytes():
    assert encode(REQUEST) == (
        b'{"type":"ticket_reserve_requested","id":"m1","lane":"123","event":123,"section":"A","partition":0,"epoch":1,'
        b'"trace":"","version":1,"booking":"b1","buyer":"u1","quantity":2,"in_section":null,"in_subsection":null,'
        b'"seats":null,"accessible":0,"allow_partial":false,"in_pool":null,"held":[]}'
    )
    paid = BookingPendingPayment(
        id="m2",
        lane="shared",
        event=7,
        section="B",
        partition=1,
        epoch=2,
        booking="b1",
        parts=(Part("B", 3, (1, 2), 3000),),
    )
    assert decode(encode(paid)) == paid


def test_a_field_this_reader_does_not_know_is_ignored():
    newer = msgspec.json.encode({**msgspec.json.decode(encode(REQUEST)), "colour": "red", "version": 2})
    assert decode(newer).booking == "b1"


@pytest.mark.parametrize(
    "poison", [b"", b"{", b'{"type":"no_such_message"}', b'{"type":"booking_failed"}', b"\xff\xfe"]
)
def test_poison_is_an_error_of_one_kind(poison):
    with pytest.raises(msgspec.MsgspecError):
        decode(poison)
