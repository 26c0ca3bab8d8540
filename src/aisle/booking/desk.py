"""What the routes of this slice work with, put together once a process by the composition root."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from aisle.booking.checkout import Checkout
from aisle.booking.hold import Holder
from aisle.booking.place import FindSale, Placer
from aisle.relay import Relay


@dataclass(frozen=True, slots=True)
class BookingDesk:
    database: asyncpg.Pool
    placer: Placer
    holder: Holder
    checkout: Checkout
    relay: Relay
    find_sale: FindSale
    clock: Callable[[], datetime]
