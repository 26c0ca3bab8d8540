"""One process of the product, put together as the composition root does it, on simulated servers. It can be killed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from aisle.booking.expire import expire_overdue, give_up_unanswered
from aisle.booking.late_money import LateMoney
from aisle.booking.pay import Payer, Till
from aisle.booking.place import Placer, ask_again
from aisle.booking.resolve import Resolver
from aisle.booking.store import ended_bookings, paid_bookings
from aisle.booking.worker import BookingWorker
from aisle.bridges import report_lapsed, sales_from
from aisle.cart_bridges import holder_and_checkout
from aisle.messages import BOOKING, RESERVATION, SHARED_LANE, TICKETING
from aisle.metrics import MoneyMetrics
from aisle.money_bridges import StoreSeats, _currencies, number_with, sell_free_with, sell_with, take_back_with
from aisle.relay import Relay
from aisle.reservation.generation import Gate
from aisle.reservation.inventory import Inventory
from aisle.reservation.pools import Pools
from aisle.reservation.sweeper import sweep_once
from aisle.reservation.worker import ReservationWorker
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.sell import TicketSeller
from aisle.ticketing.worker import TicketingWorker
from aisle.worker import run_worker
from tests.simulation.bank import Bank, BankLine
from tests.simulation.log import Log, Reader, Writer
from tests.simulation.tables import Transaction
from tests.simulation.world import Killed, StoreLine, World, pool_of, process_of

# Minutes in production. Here the whole of a booking's life fits into one or two.
PAYMENT_SECONDS, HOLD_SECONDS, HOLD_SECONDS_MAX, VERDICT_SECONDS, PROCESSING_SECONDS = 40, 20, 45, 15, 30
INSTALLATION = "the-installation"

METRICS = MoneyMetrics(CollectorRegistry())


async def nothing_is_certain(_event: int, _request: Any) -> bool:
    return False


class Process:
    def __init__(self, world: World, log: Log, bank: Bank, name: str) -> None:
        self.world, self.log, self.name = world, log, name
        self.alive = True
        # In the order they came: nothing may depend on where an object lies in memory.
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.transactions: dict[Transaction, None] = {}
        self.database: Any = pool_of(world, self)
        self.store: Any = StoreLine(world, self)
        self.writer: Any = Writer(world, log, self)
        self.gate = Gate(self.store, INSTALLATION)
        self.catalogue = Catalogue(self.database, self.store)
        self.find_sale = sales_from(self.catalogue)
        self.inventory, self.pools = Inventory(self.store, self.gate), Pools(self.store, self.gate)
        self.relays = {service: Relay(service, self.database, self.writer) for service in ("booking", "ticketing")}
        self.placer = Placer(self.database, self.writer, nothing_is_certain, clock=world.now)
        self._put_carts_together()
        self._put_money_together(BankLine(bank, self))

    def _put_carts_together(self) -> None:
        settings: Any = SimpleNamespace(
            hold_seconds=HOLD_SECONDS, hold_seconds_max=HOLD_SECONDS_MAX, payment_seconds=PAYMENT_SECONDS
        )
        parts: Any = SimpleNamespace(
            config=settings, store=self.store, gate=self.gate, database=self.database, inventory=self.inventory,
            pools=self.pools, catalogue=self.catalogue, relays=self.relays, clock=self.world.now,
        )  # fmt: skip
        self.holder, self.checkout = holder_and_checkout(parts, self.find_sale, AsyncExitStack())

    def _put_money_together(self, provider: BankLine) -> None:
        seller = TicketSeller()
        self.till = Till(
            database=self.database, providers={provider.name: provider}, provider=provider.name, provider_seconds=8,
            sell=sell_with(seller), take_back=take_back_with(seller), currency_of=_currencies(),
            relay=self.relays["booking"], clock=self.world.now, metrics=METRICS,
        )  # fmt: skip
        self.payer = Payer(self.till)
        seats = StoreSeats(self.store, self.inventory, self.pools, self.gate, self.catalogue)
        late_money = LateMoney(
            self.till, self.payer, seats, self.find_sale,
            number=number_with(self.catalogue), sell_free=sell_free_with(seller),
        )  # fmt: skip
        self.resolver = Resolver(self.till, self.payer, late_money, verdict_seconds=VERDICT_SECONDS)

    def start(self) -> None:
        """Workers for every service. What runs now and then is run by the history, in an order of its own."""
        handlers = {
            BOOKING: BookingWorker(self.database, payment_seconds=PAYMENT_SECONDS, clock=self.world.now).handle,
            RESERVATION: ReservationWorker(self.store, self.inventory, self.pools).handle,
            TICKETING: TicketingWorker(self.database, ended=ended_bookings, paid=paid_bookings).handle,
        }
        for service, handle in handlers.items():
            reader: Any = Reader(self.world, self.log, self, service)
            self.log.readers[service].append(reader)
            self.spawn(run_worker(service, SHARED_LANE, reader, self.writer, handle))
            self.log.rebalance(service)

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """A task of this process: it inherits nothing from whoever asked for it."""
        token = process_of.set(self)
        try:
            return self.world.loop.create_task(work)
        finally:
            process_of.reset(token)

    def require_alive(self) -> None:
        if not self.alive:
            raise Killed

    def kill(self) -> None:
        """As with SIGKILL: open transactions are rolled back by the server, memory is gone, nobody is told."""
        if not self.alive:
            return
        self.alive = False
        self.world.tell(f"{self.name} is killed")
        for transaction in list(self.transactions):
            transaction.end(commit=False)
        self.log.miss(self)
        for task in list(self.tasks):
            if task is not asyncio.current_task():
                task.cancel()

    def jobs(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        """What services.py runs in loops."""
        world, report = self.world, report_lapsed(self.database)

        async def ask() -> None:
            now = world.now()
            window = timedelta(seconds=PROCESSING_SECONDS)
            await give_up_unanswered(self.database, placed_before=now - window, now=now)
            await ask_again(self.database, self.writer, self.find_sale, now=now)

        return {
            "relay booking": self.relays["booking"].relay_once,
            "relay ticketing": self.relays["ticketing"].relay_once,
            "expire": lambda: expire_overdue(self.database, now=world.now()),
            "ask again": ask,
            "sweep": lambda: sweep_once(self.store, report),
            "resolve": self.resolver.resolve_due,
        }
