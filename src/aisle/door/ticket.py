"""A ticket as its holder has it: a seat of an event, paid, with the code that opens the door. Pure."""

from datetime import datetime
from uuid import UUID

import msgspec


class Seat(msgspec.Struct, frozen=True):
    """Where somebody sits: by its key in the tickets table, and as people say it. Row 0 is a place of a pool."""

    place: int
    seat: int
    section: str
    subsection: int
    row: int
    number: int

    @property
    def name(self) -> str:
        if self.row == 0:
            return f"{self.section}-{self.number}"
        return f"{self.section}-{self.subsection}-{self.row}-{self.number}"


class Show(msgspec.Struct, frozen=True):
    """What a ticket says about its event."""

    id: int
    name: str
    venue: str
    starts_at: datetime
    time_zone: str
    currency: str


class Bought(msgspec.Struct, frozen=True):
    """A booking as far as its tickets need to know it."""

    booking: UUID
    state: str
    show: Show
    seats: tuple[Seat, ...]


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # the seat as people say it, such as `A-1-5-10`, or a pool's place, such as `GA-17`: unique in its event
    section: str
    subsection: int
    row: int
    seat: int
    price: int
    version: int
    code: str
    admitted_at: datetime | None


def place_of(place: int, number: int, pool: str) -> Seat:
    return Seat(place, number, pool, 0, 0, number + 1)


def seat_of(place: int, seat: int, section: str, subsection: int, seats_per_row: int) -> Seat:
    return Seat(place, seat, section, subsection, seat // seats_per_row + 1, seat % seats_per_row + 1)
