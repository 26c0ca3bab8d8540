"""The stand-ins against the servers they stand for: the same random calls on both, every answer and what is left equal.

The calls are the product's own functions, so each runs its own SQL, or its own script, on either side.
"""

import asyncio
import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from aisle.booking import order_store
from aisle.booking import store as bookings
from aisle.booking.booking import Request, State
from aisle.booking.expire import expire_overdue, give_up_unanswered
from aisle.messages import Part
from aisle.payment import ledger
from aisle.payment import store as payments
from aisle.payment.payment import PaymentState
from aisle.reservation.claims import Claim, Kind, Settlement, Verb
from aisle.reservation.inventory import Hall, Inventory
from aisle.reservation.keys import Place
from aisle.reservation.subsection import Subsection
from aisle.reservation.sweeper import sweep_once
from aisle.store import open_store
from aisle.ticketing import store as tickets
from aisle.ticketing import ticket_store
from aisle.ticketing.event import TicketState, plan_hall
from tests.simulation.statements_booking import BOOKINGS, PURCHASES
from tests.simulation.statements_payment import LEDGER, PAYMENTS
from tests.simulation.statements_ticketing import TICKETS
from tests.simulation.world import StoreLine, World, pool_of
from tests.unit.test_event import describe

CALLS = 60
NOW = datetime(2026, 11, 15, 20, 0, tzinfo=UTC)


class Nobody:
    """A process that never dies."""

    def __init__(self) -> None:
        self.transactions: dict[Any, None] = {}

    def require_alive(self) -> None: ...


async def act(chance: random.Random, pool: Any, event: int, ids: list[UUID], buyers: list[UUID]) -> Any:
    """One call, the same for the same chance."""
    id, buyer = chance.choice(ids), chance.choice(buyers)
    now = NOW + timedelta(seconds=chance.randint(0, 100))
    seats = [
        ticket_store.SeatRef(event, 0, seat, chance.choice(ids), 3000) for seat in sorted(chance.sample(range(6), 3))
    ]
    part = Part("A", 1, (chance.randrange(6),), 3000)
    what = chance.randrange(16)
    async with pool.acquire() as connection, connection.transaction():
        match what:
            case 0 | 1 | 2:
                key = f"key-{chance.randrange(4)}"
                new = chance.choice(ids)
                request = Request(quantity=chance.randint(1, 3))
                placing = order_store.Placing(new, event, "shared", buyer, request, key, key.encode(), 4)
                known = await bookings.bookings_of(connection, [new])
                return "there" if known else await order_store.place(connection, [placing], now=now)
            case 3:
                return await bookings.to_pending_payment(connection, [(id, (part,))], deadline=now)
            case 4:
                return await bookings.move(connection, ids[:4], chance.choice((State.PAYING, State.PAID)))
            case 5:
                state = chance.choice((State.CANCELLED, State.FAILED, State.REFUNDED))
                ended = await bookings.end(connection, [(id, "why")], state, now=now)
                return [(row["id"], row["quantity"]) for row in ended]
            case 6:
                found = await bookings.lock(connection, ids)
                return [(row["id"], row["state"], row["total"], row["reason"]) for row in found.values()]
            case 7:
                return await bookings.ended_bookings(connection, ids), await bookings.paid_bookings(connection, ids)
            case 8:
                stale = await order_store.stale_placings(connection, not_asked_since=now, limit=2, now=now)
                return sorted(placing.id for placing in stale)
            case 9:
                return await ticket_store.reserve(connection, seats)
            case 10:
                return await ticket_store.release(connection, seats, from_states=[TicketState.RESERVED])
            case 11:
                return await ticket_store.sell(connection, seats), await ticket_store.unsell(connection, seats[:1])
            case 12:
                return await ticket_store.take_back(connection, seats)
            case 13:
                new_payment = payments.NewPayment(
                    chance.choice(ids),
                    id,
                    buyer,
                    event,
                    "sandbox",
                    "card",
                    3000,
                    "EUR",
                    f"p{chance.randrange(5)}",
                    b"h",
                )
                return await payments.insert(connection, [new_payment], now=now, look_at=now)
            case 14:
                target = chance.choice((PaymentState.AUTHORISED, PaymentState.LATE, PaymentState.DECLINED))
                try:
                    async with connection.transaction():
                        return await payments.move(connection, [(id, "ref")], target, now=now)
                except asyncpg.UniqueViolationError:
                    return "one payment a booking"
            case _:
                entry = ledger.Entry(id, id, "sale", "provider:sandbox", "sales", 5, "EUR")
                await ledger.book(connection, [entry, entry], now=now)
                due = await payments.due(connection, now=now, lease=timedelta(seconds=9), limit=10)
                return sorted((payment.id, payment.state, payment.looks) for payment in due if payment.id in ids)


async def left(pool: Any, event: int) -> dict[str, Any]:
    """Everything the calls can have changed."""
    columns = {
        BOOKINGS: ("id", "state", "total", "reason", "quantity", "deadline", "ended_at", "asked_at"),
        PURCHASES: ("buyer", "pool", "seats"), TICKETS: ("place", "seat", "state", "booking", "price", "code_version"),
        PAYMENTS: ("id", "booking", "state", "reference", "looks", "look_at", "late_at", "ended_at"),
        LEDGER: ("cause", "what", "amount"),
    }  # fmt: skip
    found = {}
    for table, names in columns.items():
        if isinstance(pool, asyncpg.Pool):
            rows = await pool.fetch(f"select * from {table}")  # noqa: S608
            rows = [row for row in rows if row.get("event_id", event) == event]
        else:
            rows = pool.tables[table].committed()
        found[table] = sorted(str([row[name] for name in names]) for row in rows)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_statements_answer_as_postgresql_does(config, seed):
    async def compare() -> None:
        async with asyncpg.create_pool(config.database_url, min_size=1, max_size=2) as real:
            await real.execute("truncate booking.bookings, booking.purchases, payment.payments cascade")
            async with real.acquire() as connection, connection.transaction():
                event = await tickets.insert_event(
                    connection, uuid4(), describe(), plan_hall(describe()), own_lane_from_seats=5000, now=NOW
                )
            world = World(seed)
            world.calm = True
            for sub in plan_hall(describe()):
                for seat in range(sub.seats):
                    state = 3 if seat in sub.blocked else 0
                    row = {"event_id": event.id, "place": sub.place, "seat": seat, "state": state, "price": sub.price}
                    world.tables[TICKETS].put(row)
            chance = random.Random(seed)
            ids = [UUID(int=chance.getrandbits(128)) for _ in range(8)]
            buyers = [UUID(int=chance.getrandbits(128)) for _ in range(3)]
            simulated = pool_of(world, Nobody())
            for call in range(CALLS):
                answers = []
                for pool in (real, simulated):
                    try:
                        answers.append(await act(random.Random(seed * 1000 + call), pool, event.id, ids, buyers))
                    except (asyncpg.CheckViolationError, asyncpg.UniqueViolationError) as error:
                        answers.append(type(error))
                assert answers[0] == answers[1], f"call {call}"
            for pool in (real, simulated):
                await expire_overdue(pool, now=NOW + timedelta(seconds=50))
                await give_up_unanswered(pool, placed_before=NOW + timedelta(seconds=50), now=NOW)
            before, after = await left(real, event.id), await left(simulated, event.id)
            before[LEDGER] = [line for line in before[LEDGER] if any(str(id) in line for id in ids)]
            world.loop.close()
            assert before == after

    asyncio.run(compare())


def without_times(answers: list[Any], *, each: bool = False) -> Any:
    """The two servers have two clocks."""
    return [re.sub(r"\d{13}", "T", str(one)) for one in answers] if each else re.sub(r"\d{13}", "T", str(answers))


@pytest.mark.parametrize("seed", range(6))
def test_scripts_answer_as_the_store_does(config, metrics, seed):
    async def run(store: Any) -> list[Any]:
        chance, place = random.Random(seed), Place(1, "A", 1)
        inventory = Inventory(store)
        await inventory.open([Hall(place, Subsection(2, 5), 3000, 4, blocked=frozenset({3}))], epoch=1)
        await inventory.switch([place], epoch=1, on_sale=True)
        answers: list[Any] = []
        for n in range(CALLS):
            ids = [f"claim-{chance.randrange(n + 1)}" for _ in range(2)]
            match chance.randrange(4):
                case 0 | 1:
                    kind = chance.choice((Kind.BOOKING, Kind.HOLD))
                    hold_ms = 3_600_000 if kind is Kind.HOLD else 0
                    seats = (chance.randrange(10),) if chance.random() < 0.3 else None
                    size = 1 if seats else chance.randint(1, 4)
                    asked = [Claim(id=id, owner="o", kind=kind, size=size, seats=seats, hold_ms=hold_ms) for id in ids]
                    answers += await inventory.claim(place, asked, epoch=chance.choice((1, 1, 1, 2)))
                case 2:
                    verb = chance.choice(list(Verb))
                    answers += await inventory.settle(place, [Settlement(verb, id, "o") for id in ids], epoch=1)
                case _:
                    converted = await inventory.convert(place, [ids[0]], booking=f"b-{n}", owner="o", epoch=1)
                    answers += [converted, await sweep_once(store)]
        for key in inventory.keys(place)[1:6]:
            answers.append(sorted(without_times(await store.call("HGETALL", key), each=True)))
        answers.append(await store.call("GET", inventory.keys(place)[0]))
        answers.append(sorted(await store.call("ZRANGE", inventory.keys(place)[6], 0, -1)))
        return answers

    async def compare() -> None:
        world = World(seed)
        world.calm = True
        simulated = await run(StoreLine(world, Nobody()))
        world.loop.close()
        async with open_store(config, metrics) as store:
            assert without_times(await run(store)) == without_times(simulated)

    asyncio.run(compare())
