"""A rebuild, and a restart, between a change of tickets and its word to the store: nothing falls between them.

Whoever sends word to the store in an epoch keeps that epoch from ending. What was given away in an epoch that has ended
is refused by the tickets, unless they had it by then.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg
import pytest

from aisle.booking import order_store
from aisle.booking import store as bookings
from aisle.booking.booking import Request, State
from aisle.booking.store import ended_bookings, paid_bookings
from aisle.config import Config
from aisle.epochs import confirm_event, rebuild_event
from aisle.messages import BookingExpired, Part, SeatsInitialized, SeatsReleased, SeatsReserved, Subhall, TicketsRefused
from aisle.metrics import Metrics
from aisle.reservation.claims import Claim
from aisle.reservation.generation import Gate
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place
from aisle.reservation.pools import Pools
from aisle.reservation.verify import verify_places
from aisle.reservation.worker import ReservationWorker
from aisle.store import Store, open_store
from aisle.ticket_facts import facts_of
from aisle.ticketing import store as tickets
from aisle.ticketing import ticket_store
from aisle.ticketing.event import plan_hall
from aisle.ticketing.worker import TicketingWorker
from tests.unit.test_event import describe

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
PRICE = 3000


class Sale:
    """An event on sale, alike in PostgreSQL and in the store, and the workers of both."""

    def __init__(self, database: asyncpg.Pool, store: Store, event: int) -> None:
        self.database, self.store, self.event = database, store, event
        self.place = Place(event, "A", 1)
        self.inventory = Inventory(store)
        self.ticketing = TicketingWorker(database, ended=ended_bookings, paid=paid_bookings)
        self.reservation = ReservationWorker(store, self.inventory, Pools(store))

    async def claim(self, seats: tuple[int, ...], *, epoch: int) -> SeatsReserved:
        """A booking that has its seats in the store, and the word of it that the tickets have not heard."""
        placing = order_store.Placing(
            uuid4(), self.event, "shared", uuid4(), Request(quantity=2), str(uuid4()), b"h", 10
        )
        async with self.database.acquire() as connection:
            await order_store.place(connection, [placing], now=NOW)
        claim = Claim(id=str(placing.id), owner=str(placing.buyer), seats=seats)
        [outcome] = await self.inventory.claim(self.place, [claim], epoch=epoch)
        assert outcome.ok
        return SeatsReserved(
            id=f"{placing.id}.reserved", booking=str(placing.id), buyer=str(placing.buyer), lane="shared",
            event=self.event, section="A", partition=0, epoch=epoch, parts=(Part("A", 1, seats, PRICE),),
        )  # fmt: skip

    async def end(self, claimed: SeatsReserved) -> None:
        async with self.database.acquire() as connection, connection.transaction():
            await bookings.end(connection, [(UUID(claimed.booking), "cancelled")], State.FAILED, now=NOW)

    async def has(self, booking: str) -> int:
        return await self.database.fetchval(
            "select count(*) from ticketing.tickets where event_id = $1 and booking = $2", self.event, UUID(booking)
        )

    async def findings(self) -> list[str]:
        facts = await facts_of(self.database, self.event)
        return [str(finding) for finding in (await verify_places(self.store, facts.halls)).findings]


@asynccontextmanager
async def on_sale(config: Config, metrics: Metrics) -> AsyncIterator[Sale]:
    async with (
        asyncpg.create_pool(config.database_url, min_size=1, max_size=5) as database,
        open_store(config, metrics) as store,
    ):
        async with database.acquire() as connection, connection.transaction():
            event = await tickets.insert_event(
                connection, uuid4(), describe(), plan_hall(describe()), own_lane_from_seats=5000, now=NOW
            )
        halls = [known.hall for known in (await facts_of(database, event.id)).halls]
        inventory = Inventory(store)
        await inventory.open(halls, epoch=1)
        await inventory.switch([hall.place for hall in halls], epoch=1, on_sale=True)
        await database.execute("update ticketing.events set state = 'on_sale' where id = $1", event.id)
        yield Sale(database, store, event.id)


async def test_seats_given_away_before_a_rebuild_are_refused_after_it_and_go_to_the_next_buyer(config, metrics):
    async with on_sale(config, metrics) as sale:
        lost = await sale.claim((0, 1), epoch=1)
        await rebuild_event(sale.database, sale.store, sale.event)
        winner = await sale.claim((0, 1), epoch=2)
        answers = await sale.ticketing.handle([lost, winner])
        assert [(type(a), a.booking) for a in answers] == [
            (TicketsRefused, lost.booking), (SeatsReleased, lost.booking)
        ]  # fmt: skip
        assert (await sale.has(lost.booking), await sale.has(winner.booking)) == (0, 2)
        await sale.reservation.handle([a for a in answers if isinstance(a, SeatsReleased)])
        assert await sale.findings() == []


async def test_a_flushed_event_is_on_sale_again_after_a_rebuild_because_its_seller_said_so(config, metrics):
    async with on_sale(config, metrics) as sale:
        for hall in (await facts_of(sale.database, sale.event)).halls:
            await sale.store.call("DEL", *sale.inventory.keys(hall.hall.place))
        done = await rebuild_event(sale.database, sale.store, sale.event)
        assert all(one.on_sale for one in done.rebuilt)
        await sale.claim((0, 1), epoch=2)


async def test_seats_that_were_tickets_before_a_rebuild_stay_when_their_word_comes_again(config, metrics):
    async with on_sale(config, metrics) as sale:
        kept = await sale.claim((0, 1), epoch=1)
        await sale.ticketing.handle([kept])
        await rebuild_event(sale.database, sale.store, sale.event)
        assert await sale.ticketing.handle([kept]) == []
        assert (await sale.has(kept.booking), await sale.findings()) == (2, [])


@pytest.mark.parametrize("first", ["the-dead", "the-living"])
async def test_a_late_copy_of_a_booking_that_is_over_takes_no_seat_from_a_living_one(config, metrics, first):
    """Without `_ghosts` the one statement that reserves both gives the tickets to either of them."""
    async with on_sale(config, metrics) as sale:
        over = await sale.claim((0, 1), epoch=1)
        await sale.end(over)
        back = BookingExpired(id="x", why="cancelled", **{f: getattr(over, f) for f in over.__struct_fields__ if f in (
            "lane", "event", "section", "partition", "epoch", "booking", "buyer", "parts")})  # fmt: skip
        await sale.reservation.handle(await sale.ticketing.handle([back]))
        alive = await sale.claim((0, 1), epoch=1)
        batch = [over, alive] if first == "the-dead" else [alive, over]
        answers = await sale.ticketing.handle(batch)
        assert all(answer.booking == over.booking for answer in answers)
        assert await sale.has(alive.booking) == 2


async def test_a_rebuild_waits_for_who_sends_word_in_the_old_epoch_and_finds_what_they_did(config, metrics):
    """Facts that were read before would have the tickets back for a booking that has just let go of them."""
    async with on_sale(config, metrics) as sale:
        kept = await sale.claim((0, 1), epoch=1)
        await sale.ticketing.handle([kept])
        refs = [ticket_store.SeatRef(sale.event, 0, seat, UUID(kept.booking), PRICE) for seat in (0, 1)]
        async with sale.database.acquire() as connection, connection.transaction():
            assert await tickets.epochs_of(connection, [sale.event]) == {sale.event: 1}
            rebuild = asyncio.create_task(rebuild_event(sale.database, sale.store, sale.event))
            async with asyncio.timeout(60):
                while not await sale.database.fetchval(
                    "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
                ):
                    await asyncio.sleep(0.01)
            await ticket_store.release(connection, refs, from_states=[tickets.TicketState.RESERVED])
        assert (await rebuild).findings == ()
        # The word of it, sent in epoch 1, is refused; the store knows already.
        assert await sale.findings() == []
        await sale.claim((0, 1), epoch=2)


async def test_a_rebuild_that_dies_before_postgresql_knows_of_it_is_found_and_mended(config, metrics, monkeypatch):
    class Died(BaseException):
        pass

    async def die(*_: object) -> None:
        raise Died

    async with on_sale(config, metrics) as sale:
        with monkeypatch.context() as patched:
            patched.setattr(tickets, "begin_epoch", die)
            with pytest.raises(Died):
                await rebuild_event(sale.database, sale.store, sale.event)
        assert any("epoch: 2 in the store, 1 in fact" in finding for finding in await sale.findings())
        done = await rebuild_event(sale.database, sale.store, sale.event)
        assert {one.epoch for one in done.rebuilt} == {3}
        assert all(one.on_sale for one in done.rebuilt), "it was on sale before the first of them"
        assert await sale.findings() == []


async def test_a_store_that_came_back_without_its_last_claims_goes_on_in_a_new_epoch(config, metrics):
    """The claim is gone, and word of it is still on its way to the tickets, which are all free: nothing differs yet."""
    async with on_sale(config, metrics) as sale:
        before = {key: await sale.store.call("DUMP", key) for key in sale.inventory.keys(sale.place)}
        lost = await sale.claim((0, 1), epoch=1)
        for key, value in before.items():
            await (sale.store.call("RESTORE", key, 0, value, "REPLACE") if value else sale.store.call("DEL", key))
        gate = Gate(sale.store, "an installation")
        assert await confirm_event(sale.database, sale.store, gate, sale.event) == []
        answers = await sale.ticketing.handle([lost])
        assert TicketsRefused in {type(answer) for answer in answers}
        assert (await sale.has(lost.booking), await sale.findings()) == (0, [])
        await sale.claim((0, 1), epoch=2)


async def test_what_differs_is_not_taken_into_a_new_epoch(config, metrics):
    async with on_sale(config, metrics) as sale:
        await sale.claim((0, 1), epoch=1)
        gate = Gate(sale.store, "an installation")
        assert await confirm_event(sale.database, sale.store, gate, sale.event) != []
        assert await sale.database.fetchval("select epoch from ticketing.events where id = $1", sale.event) == 1


async def test_a_late_message_that_opens_what_was_rebuilt_since_changes_nothing(config, metrics):
    async with on_sale(config, metrics) as sale:
        await rebuild_event(sale.database, sale.store, sale.event)
        [hall, *_] = (await facts_of(sale.database, sale.event)).halls
        shape = hall.hall.shape
        late = SeatsInitialized(
            id="late", lane="shared", event=sale.event, section="A", partition=0, epoch=1, limit=4,
            halls=(Subhall(1, shape.rows, shape.seats_per_row, PRICE, 0),),
        )  # fmt: skip
        await sale.reservation.handle([late])
        assert await sale.findings() == []
