"""The whole money path in one process, with a clock that the test turns and messages that the test carries.

Bookings, payments, tickets and the store are real; only the log is replaced by `carry`, so that a test decides when,
and in which order, what was committed arrives.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID, uuid4

import asyncpg

from aisle.booking import order_store
from aisle.booking import store as booking_store
from aisle.booking.booking import Request, State
from aisle.booking.expire import expire_overdue
from aisle.booking.late_money import LateMoney
from aisle.booking.order_store import Placing
from aisle.booking.pay import Payer
from aisle.booking.resolve import Resolver
from aisle.booking.store import ended_bookings, paid_bookings
from aisle.booking.worker import BookingWorker
from aisle.bridges import sales_from
from aisle.config import Config
from aisle.messages import BOOKING, RESERVATION, TICKETING, Message, Part, SeatsReserved, decode
from aisle.metrics import Metrics
from aisle.money_bridges import StoreSeats, number_with, sell_free_with
from aisle.payment.sandbox import Sandbox
from aisle.reservation.claims import Claim
from aisle.reservation.inventory import Hall, Inventory
from aisle.reservation.keys import Place
from aisle.reservation.pools import Pools
from aisle.reservation.reads import seat_maps
from aisle.reservation.subsection import Subsection, unpack
from aisle.reservation.worker import ReservationWorker
from aisle.store import Store, open_store
from aisle.ticketing import store as event_store
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.event import Description, plan_hall
from aisle.ticketing.sell import TicketSeller
from aisle.ticketing.worker import TicketingWorker
from tests.invariants import assert_event_consistent, unsettled
from tests.payment.till import till_on
from tests.unit.test_event import describe

WINDOW = timedelta(minutes=15)
VERDICT = timedelta(minutes=5)


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, time: timedelta) -> None:
        self.now += time


class Counter:
    def __init__(self, database: asyncpg.Pool, store: Store, clock: Clock, event: event_store.Event) -> None:
        self.database, self.store, self.clock, self.event = database, store, clock, event
        self.inventory = Inventory(store)
        self.bank = Sandbox(database, clock=clock, late_s=60, secret="a secret of the test")
        self.till = till_on(database, self.bank, clock=clock)
        self.payer = Payer(self.till)
        catalogue = Catalogue(database, store)
        self.pools = Pools(store)
        seats = StoreSeats(store, self.inventory, self.pools, SimpleNamespace(require_open=_yes), catalogue)
        self.late_money = LateMoney(
            self.till, self.payer, seats, sales_from(catalogue),
            number=number_with(catalogue), sell_free=sell_free_with(TicketSeller()),
        )  # fmt: skip
        self.resolver = Resolver(self.till, self.payer, self.late_money, verdict_seconds=VERDICT.total_seconds())
        self._workers = {
            BOOKING: BookingWorker(database, payment_seconds=900, clock=clock),
            TICKETING: TicketingWorker(database, ended=ended_bookings, paid=paid_bookings),
            RESERVATION: ReservationWorker(store, self.inventory, self.pools),
        }

    async def pending(self, seats: Sequence[int] = (0, 1), *, buyer: UUID | None = None, section: str = "A") -> UUID:
        """A booking with these seats of a section's first subsection, which waits for its payment."""
        id, buyer = uuid4(), buyer or uuid4()
        number = 7 if section == "B" else 1
        claim = Claim(id=str(id), owner=str(buyer), seats=tuple(seats))
        place = Place(self.event.id, section, number)
        [outcome] = await self.inventory.claim(place, [claim], epoch=1)
        assert outcome.ok, outcome
        parts = (Part(section, number, tuple(seats), outcome.price),)
        placing = Placing(id, self.event.id, "shared", buyer, Request(quantity=len(seats)), id.hex, b"h", 10)
        async with self.database.acquire() as connection:
            await order_store.place(connection, [placing], now=self.clock())
            await booking_store.to_pending_payment(connection, [(id, parts)], deadline=self.clock() + WINDOW)
        reserved = SeatsReserved(
            id=f"{id}.reserved", lane="shared", event=self.event.id, section=section, partition=0, epoch=1,
            booking=str(id), buyer=str(buyer), parts=parts,
        )  # fmt: skip
        assert await self._workers[TICKETING].handle([reserved]) == []
        return id

    async def is_free(self, seat: int) -> bool:
        """Whether a seat of A-1 can be taken, in the store and in PostgreSQL."""
        [found] = await seat_maps(self.store, [Place(self.event.id, "A", 1)])
        ticket = await self.database.fetchval(
            "select state from ticketing.tickets where event_id = $1 and place = 0 and seat = $2", self.event.id, seat
        )
        return ticket == 0 and unpack(Subsection(2, 10), found.packed)[seat] == 0

    async def buyer_of(self, booking: UUID) -> UUID:
        return await self.database.fetchval("select buyer from booking.bookings where id = $1", booking)

    async def pay(self, booking: UUID, card: str = "card_ok", *, key: str = ""):
        return await self.payer.pay(booking, await self.buyer_of(booking), method=card, key=key or uuid4().hex)

    async def expire(self) -> int:
        return await expire_overdue(self.database, now=self.clock())

    async def state_of(self, booking: UUID) -> State:
        return State(await self.database.fetchval("select state from booking.bookings where id = $1", booking))

    async def payments_of(self, buyer: UUID) -> list[asyncpg.Record]:
        return await self.database.fetch("select * from payment.payments where buyer = $1 order by id", buyer)

    async def resolve(self) -> None:
        """Let enough time pass for everything that is due, and go on with it."""
        self.clock.pass_by(timedelta(seconds=11))
        await self.resolver.resolve_due()

    async def carry(self, chance: random.Random | None = None) -> None:
        """Take every message to its receiver until none is left; with `chance`, some twice and in any order."""
        while messages := await self._unsent():
            if chance is not None:
                messages += [message for message in messages if chance.random() < 0.3]
                chance.shuffle(messages)
            while messages:
                batch = [message for message in messages if message.receiver == messages[0].receiver]
                messages = [message for message in messages if message not in batch]
                messages += await self._workers[batch[0].receiver].handle(batch)

    async def settle(self) -> None:
        """Everything arrives, and the event is held against the invariants."""
        for _ in range(20):
            await self.resolve()
            await self.carry()
            if not await unsettled(self.database, self.store, [self.event.id]):
                break
        await assert_event_consistent(self.database, self.store, self.event.id)

    async def _unsent(self) -> list[Message]:
        rows = await self.database.fetch("delete from booking.outbox returning message")
        rows += await self.database.fetch("delete from ticketing.outbox returning message")
        return [decode(row["message"]) for row in rows]


async def _yes() -> bool:
    return True


@asynccontextmanager
async def counter(config: Config, description: Description | None = None) -> AsyncIterator[Counter]:
    """An event on sale: A-1 and A-2 of 2 rows of 10 at 3000, B-7 of one row of 4 at 1500."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(asyncpg.create_pool(config.database_url, min_size=1, max_size=30))
        store = await stack.enter_async_context(open_store(config, Metrics()))
        clock = Clock()
        description = description or describe()
        hall = plan_hall(description)
        async with database.acquire() as connection, connection.transaction():
            # What earlier tests left in this database is not ours to end.
            await connection.execute("update booking.bookings set deadline = 'infinity' where deadline is not null")
            await connection.execute("update payment.payments set look_at = 'infinity'")
            await connection.execute("update payment.refunds set look_at = 'infinity'")
            await connection.execute("delete from booking.outbox")
            await connection.execute("delete from ticketing.outbox")
            event = await event_store.insert_event(
                connection, uuid4(), description, hall, own_lane_from_seats=5000, now=clock()
            )
            await event_store.move_event(connection, event.id, sources=["creating"], target="on_sale", now=clock())
        inventory = Inventory(store)
        halls = [
            Hall(
                Place(event.id, sub.section, sub.subsection), Subsection(sub.rows, sub.seats_per_row), sub.price,
                min(event.seats_per_booking, sub.seats), sub.place, frozenset(sub.blocked),
            )
            for sub in hall
        ]  # fmt: skip
        await inventory.open(halls, epoch=1)
        await inventory.switch([one.place for one in halls], epoch=1, on_sale=True)
        at_work = Counter(database, store, clock, event)
        yield at_work
        await asyncio.gather(at_work.payer.aclose(), at_work.bank.aclose())
