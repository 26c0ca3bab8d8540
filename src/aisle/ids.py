"""Identifiers: time-ordered (UUID version 7), so rows written together lie together; unguessable in their tail.

48 bits  milliseconds since 1970   |  4 bits version 7  |  12 random  |  2 bits variant  |  62 random
"""

import os
from datetime import datetime
from uuid import UUID


def new_id(now: datetime) -> UUID:
    milliseconds = int(now.timestamp() * 1000)
    tail = int.from_bytes(os.urandom(10), "big")
    high = (milliseconds << 16) | 0x7000 | (tail >> 68)
    low = (0b10 << 62) | (tail & ((1 << 62) - 1))
    return UUID(int=(high << 64) | low)
