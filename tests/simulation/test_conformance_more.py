"""More stand-ins against the servers they stand for: refunds, late money, webhooks, pools, relays, epochs, carts."""

import asyncio
import json
import random
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from aisle.booking import store as bookings
from aisle.booking.cart import Cart
from aisle.booking.carts import Carts
from aisle.messages import BookingFailed, Part
from aisle.payment import store as payments
from aisle.payment.payment import PaymentState, Refund
from aisle.payment.provider import Notice
from aisle.relay import Relay
from aisle.reservation.claims import Verb
from aisle.reservation.pool import Pool as StorePool
from aisle.reservation.pool import PoolPlace, PoolSettlement, Take
from aisle.reservation.pools import Pools
from aisle.reservation.sweeper import sweep_once
from aisle.store import open_store
from aisle.ticketing import store as tickets
from aisle.ticketing import ticket_store
from aisle.ticketing.event import plan_hall, plan_pools
from aisle.ticketing.pool_store import Wanted, number_places
from tests.simulation.statements_payment import NOTICES, PAYMENTS, REFUNDS
from tests.simulation.statements_ticketing import EVENTS, GIVEN, POOLS, TICKETS
from tests.simulation.test_conformance import NOW, Nobody, without_times
from tests.simulation.world import StoreLine, World, pool_of
from tests.unit.test_event import describe

CALLS = 70
POOL = {"name": "GA", "price": 1000, "capacity": 5, "places_per_buyer": 4}


class Heard:
    """A log that remembers what was published."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    async def publish(self, messages: Any) -> None:
        self.messages += [message.id for message in messages]


async def act(chance: random.Random, pool: Any, event: int, ids: list[UUID], place: int) -> Any:
    """One call, the same for the same chance."""
    id, other = chance.choice(ids), chance.choice(ids)
    now = NOW + timedelta(seconds=chance.randint(0, 100))
    key = f"k{chance.randrange(4)}"
    what = chance.randrange(14)
    async with pool.acquire() as connection, connection.transaction():
        match what:
            case 0 | 1:
                new = payments.NewPayment(id, other, other, event, "sandbox", "card", 3000, "EUR", key, b"h")
                return await payments.insert(connection, [new], now=now, look_at=now)
            case 2:
                target = chance.choice((PaymentState.AUTHORISED, PaymentState.LATE, PaymentState.CAPTURED))
                return await payments.move(connection, [(id, "r")], target, now=now, taken=chance.random() < 0.5)
            case 3 | 4:
                if await payments.find(connection, id) is None:
                    return "no payment"
                amount = chance.choice((0, 500, 2000))
                refund = Refund(id=uuid_of(chance), payment=id, booking=other, amount=amount, currency="EUR",
                                state="ASKED", why="w", looks=0)  # fmt: skip
                return await payments.ask_refund(connection, refund, key=key, seats=(Part("A", 1, (1,), 5),), now=now)
            case 5:
                due = await payments.due_refunds(connection, now=now, lease=timedelta(seconds=9), limit=10)
                due.sort(key=lambda one: one.id)
                done = [await payments.refund_done(connection, one.id, now=now) for one in due[:1] * 2]
                for one in due[1:2]:
                    await payments.postpone_refund(connection, one.id, now)
                return sorted((one.amount, one.looks) for one in due) if len(due) > 1 else done
            case 6:
                found = await payments.refund_with_key(connection, other, key)
                return found and (found[0].amount, found[0].state, json.loads(found[1]))
            case 7:
                tries = chance.randint(1, 2)
                planned = await payments.plan_seats_again(connection, id, tries, [Part("A", 1, (0,), 3000)])
                if chance.random() < 0.3:
                    await payments.end_try(connection, id, tries)
                return planned, await payments.find(connection, id)
            case 8:
                await payments.note_held(connection, id, chance.choice((3000, 9000)), "EUR")
                await payments.note_decision(connection, id, chance.choice(("accept", "refund", "else")))
                return await payments.lock(connection, ids)
            case 9:
                heard = Notice(key, id, "charge")
                return await payments.note_heard(connection, "sandbox", heard, now=now)
            case 10 | 11:
                wanted = [Wanted(event, place, id, chance.randint(1, 2))]
                given = await number_places(connection, wanted)
                refs = [ticket_store.SeatRef(event, place, seat, id, 1000) for seat in given[wanted[0]]]
                counts = await ticket_store.reserve(connection, refs)
                if chance.random() < 0.4:
                    await ticket_store.release(connection, refs, from_states=[ticket_store.TicketState.RESERVED])
                return given, counts
            case 12:
                await bookings.write_outbox(connection, [failed(event, str(n)) for n in range(3)], now=now)
                return None
            case _:
                await tickets.begin_epoch(connection, event, chance.randint(1, 9))
                rows = await ticket_store.taken_by(connection, event, [id, other])
                epochs = await tickets.epochs_of(connection, [event, event])
                return list(epochs.values()), [(row["booking"], row["place"], row["seat"]) for row in rows]


def uuid_of(chance: random.Random) -> UUID:
    return UUID(int=chance.getrandbits(128))


def failed(event: int, id: str) -> BookingFailed:
    return BookingFailed(
        id=id, lane="shared", event=event, section="A", partition=0, epoch=1, booking="b", reason="taken"
    )


async def left(pool: Any, event: int, ids: list[UUID]) -> dict[str, Any]:
    """Everything the calls can have changed."""
    columns = {
        PAYMENTS: ("id", "state", "refunded", "held", "decision", "tries", "seats_again", "taken"),
        REFUNDS: ("id", "payment", "amount", "state", "looks", "look_at", "done_at"),
        NOTICES: ("id", "payment"), POOLS: ("pool", "numbered"), GIVEN: ("booking", "seats"),
        TICKETS: ("place", "seat", "state", "booking"), EVENTS: ("epoch",),
    }  # fmt: skip
    found = {}
    for table, names in columns.items():
        if isinstance(pool, asyncpg.Pool):
            rows = await pool.fetch(f"select * from {table}")  # noqa: S608
            rows = [r for r in rows if r.get("event_id", event) == event and (table != EVENTS or r["id"] == event)]
        else:
            rows = pool.tables[table].committed()
        found[table] = sorted(str([_plain(row[name]) for name in names]) for row in rows)
    return found


def _plain(value: Any) -> Any:
    """PostgreSQL writes JSON its own way."""
    if isinstance(value, str) and value.startswith("["):
        return json.dumps(json.loads(value), sort_keys=True)
    return list(value) if isinstance(value, tuple) else value


async def opened(real: Any, world: World) -> tuple[int, int]:
    """The same event on both sides, with the number of its pool."""
    description = describe(pools=[POOL])
    hall = plan_hall(description)
    pools = plan_pools(description, hall)
    async with real.acquire() as connection, connection.transaction():
        event = await tickets.insert_event(
            connection, uuid4(), description, hall, pools, own_lane_from_seats=5000, now=NOW
        )
    for table in (TICKETS, POOLS):
        for row in await real.fetch(f"select * from {table} where event_id = $1", event.id):  # noqa: S608
            world.tables[table].put(dict(row))
    world.tables[EVENTS].put(dict(await real.fetchrow("select * from ticketing.events where id = $1", event.id)))
    return event.id, pools[0].place


@pytest.mark.parametrize("seed", range(10))
def test_statements_about_money_and_pools_answer_as_postgresql_does(config, seed):
    async def compare() -> None:
        async with asyncpg.create_pool(config.database_url, min_size=1, max_size=2) as real:
            await real.execute("truncate payment.payments, payment.notices, booking.outbox cascade")
            world = World(seed)
            world.calm = True
            event, place = await opened(real, world)
            simulated = pool_of(world, Nobody())
            chance = random.Random(seed)
            ids = [uuid_of(chance) for _ in range(5)]
            heard = {pool: Heard() for pool in (real, simulated)}
            for call in range(CALLS):
                answers = []
                for pool in (real, simulated):
                    try:
                        answers.append(await act(random.Random(seed * 1000 + call), pool, event, ids, place))
                    except (asyncpg.CheckViolationError, asyncpg.UniqueViolationError) as error:
                        answers.append(type(error))
                assert answers[0] == answers[1], f"call {call}"
            for pool, log in heard.items():
                relay = Relay("booking", pool, log)  # type: ignore[arg-type]
                while await relay.relay_once():
                    pass
            assert heard[real].messages == heard[simulated].messages
            before, after = await left(real, event, ids), await left(simulated, event, ids)
            world.loop.close()
            assert before == after

    asyncio.run(compare())


def test_who_shares_an_event_keeps_it_from_being_stopped(config):
    """On both sides: two share it at once, and whoever stops it waits for both."""

    async def run(pool: Any, event: int) -> list[str]:
        said: list[str] = []
        shared, end = [asyncio.Event(), asyncio.Event()], asyncio.Event()

        async def share(has: asyncio.Event) -> None:
            async with pool.acquire() as connection, connection.transaction():
                epochs = await tickets.epochs_of(connection, [event])
                has.set()
                await end.wait()
                said.append(f"shared epoch {epochs[event]}")

        async def stop() -> None:
            async with pool.acquire() as connection, connection.transaction():
                await tickets.stop_event(connection, event)
                said.append("stopped")
                await tickets.begin_epoch(connection, event, 7)

        sharing = [asyncio.create_task(share(has)) for has in shared]
        for has in shared:
            await has.wait()
        stopping = asyncio.create_task(stop())
        await asyncio.sleep(0.3)
        assert said == [], "it was stopped under those who share it"
        end.set()
        await asyncio.gather(*sharing, stopping)
        async with pool.acquire() as connection:
            return [*said, str(await tickets.epochs_of(connection, [event]) == {event: 7})]

    async def compare() -> None:
        async with asyncpg.create_pool(config.database_url, min_size=4, max_size=4) as real:
            world = World(1)
            world.calm = True
            event, _ = await opened(real, world)
            expected = ["shared epoch 1", "shared epoch 1", "stopped", "True"]
            assert await run(real, event) == expected
            assert await run(pool_of(world, Nobody()), event) == expected
            world.loop.close()

    asyncio.run(compare())


@pytest.mark.parametrize("seed", range(4))
def test_pools_and_carts_answer_as_the_store_does(config, metrics, seed):
    async def run(store: Any) -> list[Any]:
        chance, place, buyer = random.Random(seed), PoolPlace(1, "GA"), UUID(int=seed)
        pools, carts = Pools(store), Carts(store)
        await pools.open([StorePool(place, 6, 1000, 3, one_per_buyer=bool(seed % 2))], epoch=1)
        await pools.switch([place], epoch=1, on_sale=True)
        answers: list[Any] = []
        for n in range(CALLS):
            ids = [f"claim-{chance.randrange(n + 1)}" for _ in range(2)]
            match chance.randrange(5):
                case 0 | 1:
                    hold_ms = chance.choice((0, 3_600_000))
                    asked = [Take(id=id, owner=f"o{chance.randrange(2)}", quantity=chance.randint(1, 3),
                                  hold_ms=hold_ms) for id in dict.fromkeys(ids)]  # fmt: skip
                    answers += await pools.take(place, asked, epoch=chance.choice((1, 1, 1, 2)))
                case 2:
                    verb = chance.choice(list(Verb))
                    some = {"quantity": 1, "operation": f"op-{chance.randrange(5)}"} if verb is Verb.REOPEN else {}
                    back = [PoolSettlement(verb=verb, id=id, owner="o0", why="w", **some) for id in ids]
                    answers += await pools.settle(place, back, epoch=1)
                case 3:
                    converted = await pools.convert(place, [ids[0]], booking=f"b-{n}", owner="o0", epoch=1)
                    answers += [converted, await sweep_once(store)]
                case _:
                    seen, _ = await carts.read(buyer)
                    following = chance.choice((None, Cart(event=1, deadline_ms=n, extendable_until_ms=n)))
                    expected = chance.choice((seen, None))
                    answers.append((seen, await carts.swap(buyer, expected, following, now_ms=0)))
        for key in pools.keys(place)[:2]:
            answers.append(sorted(without_times(await store.call("HGETALL", key), each=True)))
        answers.append(sorted(await store.call("ZRANGE", pools.keys(place)[2], 0, -1)))
        return answers

    async def compare() -> None:
        world = World(seed)
        world.calm = True
        simulated = await run(StoreLine(world, Nobody()))
        world.loop.close()
        async with open_store(config, metrics) as store:
            assert without_times(await run(store)) == without_times(simulated)

    asyncio.run(compare())
