"""The usual design, to measure ours against: FastAPI, asyncpg, `SELECT ... FOR UPDATE`, one transaction a booking.

Nothing of Aisle: no log, no logins, no idempotency, no limits, no live updates, which would all make it slower. Served
by `yardstick.py` with two worker processes, one for each core of the machine that the budgets are written for.
"""

import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

POOL = int(os.environ.get("YARDSTICK_POOL", "10"))

FREE = """
    select seat, row_no, seat_no, price from tickets
    where event_id = $1 and section = $2 and subsection = $3 and status = 'AVAILABLE' order by seat for update
"""
BOOK = """
    insert into bookings (id, event_id, section, subsection, quantity, seats, total, status)
    values ($1, $2, $3, $4, $5, $6, $7, 'PENDING_PAYMENT')
"""
RESERVE = """
    update tickets set status = 'RESERVED', booking_id = $1, updated_at = now()
    where event_id = $2 and section = $3 and subsection = $4 and seat = any($5::int[])
"""


class Order(BaseModel):
    event_id: int
    section: str
    subsection: int
    quantity: int


class Booked(BaseModel):
    id: uuid.UUID
    status: str
    seats: list[str]
    total: int


pools: list[asyncpg.Pool] = []


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with asyncpg.create_pool(os.environ["YARDSTICK_DATABASE"], min_size=POOL, max_size=POOL) as pool:
        pools.append(pool)
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/book", status_code=201)
async def book(order: Order) -> Booked:
    async with pools[0].acquire() as connection, connection.transaction():
        free = await connection.fetch(FREE, order.event_id, order.section, order.subsection)
        found = adjacent(free, order.quantity)
        if not found:
            raise HTTPException(409, "no seats")
        booking, seats = uuid.uuid4(), [f"{row['row_no']}-{row['seat_no']}" for row in found]
        total = sum(row["price"] for row in found)
        place = (order.event_id, order.section, order.subsection)
        await connection.execute(BOOK, booking, *place, order.quantity, seats, total)
        await connection.execute(RESERVE, booking, *place, [row["seat"] for row in found])
    return Booked(id=booking, status="PENDING_PAYMENT", seats=seats, total=total)


def adjacent(free: Sequence[asyncpg.Record], quantity: int) -> list[asyncpg.Record]:
    run: list[asyncpg.Record] = []
    for row in free:
        follows = run and (row["row_no"], row["seat_no"]) == (run[-1]["row_no"], run[-1]["seat_no"] + 1)
        run = [*run, row] if follows else [row]
        if len(run) == quantity:
            return run
    return []
