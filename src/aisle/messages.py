"""Every message on the log: its fields, its topic and its partition. The hinge between the services.

Names follow one scheme, so that an operator can read a topic list:
    topic  event-id-{lane}______{action}______{from}___to___{to}       10 partitions each
    group  event-id-{lane}_____{service}--{lane}
    key    event-{event}-section-{section}-partition-{n}               n is set by the section, not hashed
`lane` is the event's id if the event has topics of its own, else `shared`. Delivery is at least once and unordered
across topics. A new field needs a default, an old one never changes its type; what a reader does not know it ignores.
"""

from typing import Any, ClassVar

import msgspec

PARTITIONS = 10
SHARED_LANE = "shared"
POOL = 0  # the subsection of a part that is places of a pool

BOOKING = "booking-service"
RESERVATION = "seat-reservation-service"
TICKETING = "event-ticketing-service"


class Part(msgspec.Struct, frozen=True):
    """Seats of one subsection that belong to one booking, by index, at the price of one seat in minor units.

    Subsection 0 is a pool: `section` is its name, `seats` are the numbers of its tickets.
    """

    section: str
    subsection: int
    seats: tuple[int, ...]
    price: int

    @property
    def in_pool(self) -> bool:
        return self.subsection == POOL


class Held(msgspec.Struct, frozen=True):
    """Holds of one buyer in one subsection, and what they hold: a part for each price that a seat had when held.

    For a pool it is one part without seats, and `places` says how many: their tickets are numbered later.
    """

    section: str
    subsection: int
    holds: tuple[str, ...]
    parts: tuple[Part, ...]
    places: int = 0


class Subhall(msgspec.Struct, frozen=True):
    """One subsection as the store has to open it."""

    subsection: int
    rows: int
    seats_per_row: int
    price: int
    rank: int
    blocked: tuple[int, ...] = ()
    accessible: tuple[int, ...] = ()


class OpenedPool(msgspec.Struct, frozen=True):
    """One pool as the store has to open it. `limit` is how many places one claim may take."""

    pool: str
    capacity: int
    price: int
    limit: int
    one_hold_per_buyer: bool


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What all messages carry. `id` makes an effect repeatable; `partition` is the section's."""

    action: ClassVar[str]
    sender: ClassVar[str]
    receiver: ClassVar[str]

    id: str
    lane: str
    event: int
    section: str
    partition: int
    epoch: int
    trace: str = ""
    version: int = 1


class SeatsInitialized(Message, frozen=True, kw_only=True, tag="seats_initialized"):
    """Ticketing has written the ticket rows of a section or a pool; the store is to open its subsections or it."""

    action = "seat-initialization-command-in-kvrocks"
    sender, receiver = TICKETING, RESERVATION
    halls: tuple[Subhall, ...]
    limit: int
    pools: tuple[OpenedPool, ...] = ()


class PriceChanged(Message, frozen=True, kw_only=True, tag="price_changed"):
    """Claims made from now on in these subsections of the section cost this; a pool is subsection 0."""

    action = "change-price-in-kvrocks"
    sender, receiver = TICKETING, RESERVATION
    subsections: tuple[int, ...]
    price: int
    revision: int


class TicketReserveRequested(Message, frozen=True, kw_only=True, tag="ticket_reserve_requested"):
    """A buyer wants the best `quantity` seats, the `seats` named (by index), places `in_pool`, or what is `held`."""

    action = "ticket-reserving-request-in-kvrocks"
    sender, receiver = BOOKING, RESERVATION
    booking: str
    buyer: str
    quantity: int
    in_section: str | None = None
    in_subsection: int | None = None
    seats: tuple[int, ...] | None = None
    accessible: int = 0
    allow_partial: bool = False
    in_pool: str | None = None
    held: tuple[Held, ...] = ()


class SeatsReserved(Message, frozen=True, kw_only=True, tag="seats_reserved"):
    """The store holds these seats for the booking; PostgreSQL is to follow."""

    action = "update-ticket-status-to-reserved-in-postgresql"
    sender, receiver = RESERVATION, TICKETING
    booking: str
    buyer: str
    parts: tuple[Part, ...]


class PlacesReserved(Message, frozen=True, kw_only=True, tag="places_reserved"):
    """The store holds so many places of a pool for the booking; PostgreSQL is to give each of them a ticket."""

    action = "give-tickets-to-places-in-postgresql"
    sender, receiver = RESERVATION, TICKETING
    booking: str
    buyer: str
    pool: str
    quantity: int
    price: int


class PlacesTicketed(Message, frozen=True, kw_only=True, tag="places_ticketed"):
    """The places of a pool have their tickets; the buyer may pay."""

    action = "update-booking-status-to-pending-payment"
    sender, receiver = TICKETING, BOOKING
    booking: str
    parts: tuple[Part, ...]


class BookingPendingPayment(Message, frozen=True, kw_only=True, tag="booking_pending_payment"):
    """Seats were found; the buyer may pay."""

    action = "update-booking-status-to-pending-payment"
    sender, receiver = RESERVATION, BOOKING
    booking: str
    parts: tuple[Part, ...]


class BookingFailed(Message, frozen=True, kw_only=True, tag="booking_failed"):
    """No seats for this party, with the reason the store gave."""

    action = "update-booking-status-to-failed"
    sender, receiver = RESERVATION, BOOKING
    booking: str
    reason: str


class TicketsRefused(Message, frozen=True, kw_only=True, tag="tickets_refused"):
    """PostgreSQL, the last line, did not have all the seats the store gave away: the booking ends."""

    action = "update-booking-status-to-failed"
    sender, receiver = TICKETING, BOOKING
    booking: str
    reason: str


class BookingPaid(Message, frozen=True, kw_only=True, tag="booking_paid"):
    """The money is there and the tickets are SOLD; the store is to follow."""

    action = "update-ticket-status-to-paid-in-postgresql"
    sender, receiver = BOOKING, TICKETING
    booking: str
    parts: tuple[Part, ...]
    buyer: str = ""


class SeatsFinalized(Message, frozen=True, kw_only=True, tag="seats_finalized"):
    """The tickets are sold in PostgreSQL; the store is to follow."""

    action = "finalize-ticket-status-to-paid-in-kvrocks"
    sender, receiver = TICKETING, RESERVATION
    booking: str
    buyer: str
    parts: tuple[Part, ...]


class BookingExpired(Message, frozen=True, kw_only=True, tag="booking_expired"):
    """The booking is CANCELLED, by its deadline or by its buyer; its tickets are to be AVAILABLE again."""

    action = "update-ticket-status-to-available-in-kvrocks"
    sender, receiver = BOOKING, TICKETING
    booking: str
    buyer: str
    parts: tuple[Part, ...]
    why: str = "expired"


class SeatsReleased(Message, frozen=True, kw_only=True, tag="seats_released"):
    """The tickets are AVAILABLE in PostgreSQL; the store is to offer the seats again. `sold` if they had been sold."""

    action = "release-ticket-status-to-available-in-kvrocks"
    sender, receiver = TICKETING, RESERVATION
    booking: str
    buyer: str
    parts: tuple[Part, ...]
    why: str = "expired"
    sold: bool = False


AnyMessage = (
    SeatsInitialized
    | PriceChanged
    | TicketReserveRequested
    | SeatsReserved
    | PlacesReserved
    | PlacesTicketed
    | BookingPendingPayment
    | BookingFailed
    | TicketsRefused
    | BookingPaid
    | SeatsFinalized
    | BookingExpired
    | SeatsReleased
)
MESSAGES: tuple[type[Message], ...] = AnyMessage.__args__

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(AnyMessage).decode


def topic(kind: type[Message], lane: str) -> str:
    return f"event-id-{lane}______{kind.action}______{kind.sender}___to___{kind.receiver}"


def topics(lane: str) -> list[str]:
    """Every topic of a lane."""
    return [topic(kind, lane) for kind in MESSAGES]


def topics_to(service: str, lane: str) -> list[str]:
    return [topic(kind, lane) for kind in MESSAGES if kind.receiver == service]


def group(service: str, lane: str) -> str:
    return f"event-id-{lane}_____{service}--{lane}"


def route_of(message: Message) -> dict[str, Any]:
    """The fields that an answer to this message takes over, so that it travels the same lane and partition."""
    return {name: getattr(message, name) for name in ("lane", "event", "section", "partition", "epoch", "trace")}


def key(message: Message) -> str:
    return f"event-{message.event}-section-{message.section}-partition-{message.partition}"


def dead_letters(lane: str) -> str:
    """Where messages go that could not be handled, with the reason in a header."""
    return f"event-id-{lane}______dead-letters"
