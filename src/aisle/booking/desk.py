"""What the routes of this slice work with, put together once a process by the composition root."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

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
    # Raises 429 for a buyer who takes holds too often.
    allow_hold: Callable[[UUID], Awaitable[None]]
