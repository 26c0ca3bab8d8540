"""One history: a small hall, a few buyers, processes that die, and in the end the question whether all is true."""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import asyncpg
import msgspec
import structlog

import aisle.ids
from aisle.booking.booking import MOVES, State
from aisle.booking.order_store import parts_of
from aisle.bridges import verify_and_admit
from aisle.crash_points import BOOKING_POINTS, CART_POINTS, PAYMENT_POINTS, crash_point
from aisle.epochs import rebuild_event
from aisle.errors import Problem, StoreScriptFailed
from aisle.messages import BOOKING, RESERVATION, TICKETING
from aisle.payment.payment import MOVES as PAYMENT_MOVES
from aisle.payment.payment import PaymentState
from aisle.payment.provider import ProviderSilent
from aisle.reservation.generation import Gate, Standing
from aisle.reservation.hall import HallChooser
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place
from aisle.reservation.one_turn import OneTurn
from aisle.reservation.pool import PoolPlace
from aisle.reservation.pools import Pools
from aisle.reservation.rebuilt import RebuildRaced
from aisle.reservation.verify import verify_places
from aisle.ticket_facts import facts_of
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.create import opening_messages
from aisle.ticketing.event import Subhall
from aisle.ticketing.pool import Pool
from aisle.ticketing.store import Event
from tests.invariants import Picture, assert_picture_consistent
from tests.simulation.bank import Bank
from tests.simulation.buyers import EVENT, Buyer, NoAnswer
from tests.simulation.defects import DEFECTS, put_in, script_with
from tests.simulation.log import Log
from tests.simulation.process import Process
from tests.simulation.statements_booking import BOOKINGS, PURCHASES
from tests.simulation.statements_payment import LEDGER, PAYMENTS, REFUNDS
from tests.simulation.statements_ticketing import EVENTS, POOLS, SECTIONS, SUBSECTIONS, TICKETS
from tests.simulation.world import Killed, World, process_of

POINTS = (*BOOKING_POINTS, *CART_POINTS, *PAYMENT_POINTS)
# A dependency was away: the job is done again later, as the loops of services.py do.
AWAY = (
    Problem,
    StoreScriptFailed,
    ProviderSilent,
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
)
ROUNDS_MAX = 80
LOOKS_MAX = 300
FAILOVERS = 0.2  # in how many histories the store loses something


class Ended(NamedTuple):
    seed: int
    violations: list[str]
    sometimes: dict[str, int]
    trace: list[str]


class History:
    def __init__(self, seed: int, defect: str = "", *, without: Iterable[str] = (), loses: bool | None = None) -> None:
        self.defect = defect
        if loses is None:
            loses = bool(defect) and DEFECTS[defect].loses
        self.failovers = 1.0 if loses else FAILOVERS
        self.world = World(seed, partial(script_with, defect)) if defect else World(seed)
        self.world.without = frozenset(without)
        self.log = Log(self.world)
        self.bank = Bank(self.world)
        self.bank.send = self._carry_webhook
        self.processes: list[Process] = []
        self.started = 0
        self.closing = False
        self.operator: asyncio.Task[None] | None = None
        chance = self.world.chance
        # Where and at which visit a process dies; one that dies is started again after a while.
        self.crashes = {chance.choice(POINTS): chance.randint(1, 3) for _ in range(chance.choice((0, 1, 2, 4)))}
        self.visits: dict[str, int] = {}

    def run(self) -> Ended:
        world = self.world
        _make_repeatable(self)
        asyncio.set_event_loop(world.loop)
        try:
            with put_in(self.defect):
                world.loop.run_until_complete(self._run())
        except Exception as error:  # noqa: BLE001 - whatever a history raises is what it has found
            world.violations.append(f"{type(error).__name__}: {error}")
        finally:
            self._throw_away()
        return Ended(world.seed, world.violations, dict(world.sometimes), world.trace)

    async def _run(self) -> None:
        world = self.world
        self._create_event()
        self._watch_moves()
        self._start_process()
        await self._open_sale()
        for _ in range(world.chance.choice((0, 1, 1))):
            self._start_process()
        rush = world.chance.random() < 0.3
        if rush:
            world.note("everybody came at once")
        buyers = [Buyer(self, number + 1, rush=rush) for number in range(world.chance.choice((2, 3, 4)))]
        background = [world.loop.create_task(self._jobs()), world.loop.create_task(self._nemesis())]
        if world.chance.random() < self.failovers and "failovers" not in world.without:
            background.append(world.loop.create_task(self._lose_the_tail()))
        await asyncio.gather(*(buyer.live() for buyer in buyers))
        world.calm = self.closing = True
        for task in background:
            task.cancel()
        if self.operator is not None or world.run_id != "run-1":
            await (self.operator or self._verify_or_rebuild())
        if await self._come_to_rest():
            await self._judge(buyers)

    # -- the event ----------------------------------------------------------------------------------------------------

    def _watch_moves(self) -> None:
        """I10, at every commit: bookings, payments and tickets move along their tables only."""

        def watch(table: str, moves: Any, kind: Any) -> None:
            def see(old: Any, new: Any) -> None:
                if old is None or new is None or old["state"] == new["state"]:
                    return
                if kind(new["state"]) not in moves[kind(old["state"])]:
                    self.world.violations.append(f"I10: {table} moved from {old['state']} to {new['state']}")
                # A deadline ends nothing that is being paid for: the payment decides.
                if (
                    old["state"] == "PAYING"
                    and new["state"] == "CANCELLED"
                    and new["reason"] in ("expired", "cancelled")
                ):
                    self.world.violations.append(f"I10: booking {new['id']} was PAYING and is {new['reason']}")

            self.world.tables[table].watch = see

        def count(_old: Any, new: Any) -> None:
            """I13: no buyer ever has more than the seller allows, of the hall or of a pool."""
            allowed = self.pools[0].places_per_buyer if new and new["pool"] else self.event.seats_per_buyer
            if new is not None and new["seats"] > allowed:
                self.world.violations.append(f"I13: a buyer has {new['seats']} where {allowed} are allowed")

        self.world.tables[PURCHASES].watch = count
        watch(BOOKINGS, MOVES, State)
        watch(PAYMENTS, PAYMENT_MOVES, PaymentState)

    def _create_event(self) -> None:
        world, tables = self.world, self.world.tables
        now = world.now()
        self.event = Event(
            id=EVENT, seller=Buyer(self, 0).id, name="", description="", venue="", starts_at=now, time_zone="UTC",
            currency="EUR", lane="shared", state="on_sale", epoch=1, seats=12, seats_per_booking=4, seats_per_buyer=5,
            created_at=now, updated_at=now,
        )  # fmt: skip
        tables[EVENTS].put(msgspec.structs.asdict(self.event))
        tables[SECTIONS].put({"event_id": EVENT, "section": "A", "rank": 0, "partition": 0, "price": 3000})
        self.halls = [
            Subhall(section="A", subsection=n + 1, place=n, price=3000, rows=2, seats_per_row=3, blocked=(),
                    accessible=())
            for n in range(2)
        ]  # fmt: skip
        self.pools = [
            Pool(pool="GA", place=2, partition=1, price=1000, capacity=3, places_per_buyer=2, one_hold_per_buyer=False)
        ]
        for hall in self.halls:
            row = {**msgspec.structs.asdict(hall), "event_id": EVENT, "rank": hall.place}
            tables[SUBSECTIONS].put(row)
        for pool in self.pools:
            tables[POOLS].put({**msgspec.structs.asdict(pool), "event_id": EVENT})
        for place, seats, price in ((0, 6, 3000), (1, 6, 3000), (2, 3, 1000)):
            for seat in range(seats):
                tables[TICKETS].put({"event_id": EVENT, "place": place, "seat": seat, "state": 0, "price": price})

    async def _open_sale(self) -> None:
        """The messages that open the hall travel like all others; some come again when seats are sold already."""
        admin = self.admin()
        self.world.calm = True
        await admin.gate.admit(admin.gate.connected(), fresh=True)
        self.world.calm = False
        self.log.append(list(opening_messages(self.event, self.halls, self.pools)))
        inventory, pools = Inventory(admin.store), Pools(admin.store)
        while True:
            await asyncio.sleep(0.5)
            try:
                await inventory.switch([Place(EVENT, "A", 1), Place(EVENT, "A", 2)], epoch=1, on_sale=True)
                await pools.switch([PoolPlace(EVENT, "GA")], epoch=1, on_sale=True)
                return
            except (LookupError, Problem):
                continue

    # -- processes and what befalls them ------------------------------------------------------------------------------

    def admin(self) -> Process:
        """Somebody with access to everything, who is no process of the product and never dies."""
        return Process(self.world, self.log, self.bank, "operator")

    def _start_process(self) -> Process:
        self.started += 1
        process = Process(self.world, self.log, self.bank, f"process {self.started}")
        self.processes.append(process)
        self.world.tell(f"{process.name} starts")
        process.start()
        return process

    def kill(self, process: Process) -> None:
        process.kill()
        self.processes.remove(process)
        self.world.loop.call_later(self.world.chance.uniform(0, 8), self._start_process)

    def at_crash_point(self, name: str) -> None:
        process = process_of.get()
        if process is None or not process.alive:
            return
        self.world.sometimes[f"at {name}"] += 1
        self.visits[name] = self.visits.get(name, 0) + 1
        if not self.closing and self.crashes.get(name) == self.visits[name] and "crashes" not in self.world.without:
            self.world.note(f"died {name}")
            self.world.tell(f"{process.name} reaches {name}")
            self.kill(process)
            raise Killed

    async def serve(self, act: Callable[[Process], Awaitable[Any]]) -> Any:
        """A request to any process that lives."""
        while not self.processes:
            await asyncio.sleep(0.5)
        process = self.world.chance.choice(self.processes)
        task = process.spawn(_do(act, process))
        try:
            return await task
        except (Killed, asyncio.CancelledError):
            if process.alive:
                raise
            raise NoAnswer from None
        except AWAY as error:
            if isinstance(error, Problem):
                raise
            raise NoAnswer from None

    def _carry_webhook(self, body: bytes) -> None:
        async def carry() -> None:
            for _ in range(5):
                try:
                    await self.serve(lambda p: p.resolver.hear("sandbox", body, {}))
                except (Problem, NoAnswer):
                    await asyncio.sleep(self.world.chance.uniform(0.5, 20))
                else:
                    return

        self.world.loop.create_task(carry())

    async def _jobs(self) -> None:
        """What runs now and then in every process, in an order that nobody can rely on."""
        chance = self.world.chance
        while True:
            await asyncio.sleep(chance.uniform(0.05, 1.2))
            if not self.processes:
                continue
            process = chance.choice(self.processes)
            name = chance.choice(JOBS)
            if self._is_due(name):
                copies = 2 if chance.random() < 0.15 else 1
                for other in chance.sample(self.processes, min(copies, len(self.processes))):
                    other.spawn(_quietly(other.jobs()[name]))
                if copies == 1:
                    process.spawn(_quietly(process.jobs()[name]))

    def _is_due(self, name: str) -> bool:
        """Whether a job would find anything: one that would not is not worth its time."""
        tables, now = self.world.tables, self.world.now()
        match name:
            case "relay booking":
                return bool(tables["booking.outbox"].rows)
            case "relay ticketing":
                return bool(tables["ticketing.outbox"].rows)
            case "expire":
                return any(b["state"] == "PENDING_PAYMENT" and b["deadline"] <= now for b in self._rows(BOOKINGS))
            case "ask again":
                return any(b["state"] == "PROCESSING" for b in self._rows(BOOKINGS))
            case "resolve":
                return any(p["look_at"] <= now for p in self._rows(PAYMENTS)) or any(
                    r["look_at"] <= now and r["state"] == "ASKED" for r in self._rows(REFUNDS)
                )
        return b"holding" in self.world.hot.keys

    async def _nemesis(self) -> None:
        chance = self.world.chance
        while True:
            await asyncio.sleep(chance.uniform(2, 25))
            if chance.random() < 0.3 and self.processes:
                victim = chance.choice(self.processes)
                if "kills" not in self.world.without:
                    self.world.note("a process was killed at any moment")
                    self.kill(victim)
            elif "rebalances" not in self.world.without:
                self.world.note("partitions found new owners")
                self.log.rebalance(chance.choice((BOOKING, RESERVATION, TICKETING)))

    async def _lose_the_tail(self) -> None:
        """The store fails over to a replica that lags behind, or comes back empty; an operator sees to it."""
        world, chance = self.world, self.world.chance
        await asyncio.sleep(chance.uniform(3, 40))
        copy = world.hot.copy()
        await asyncio.sleep(chance.choice((0.05, 0.5, 2)) * chance.random())
        lost = chance.random() < 0.25
        world.note("the store was wiped" if lost else "the store lost its last writes")
        world.tell("the store is wiped" if lost else "the store loses its last writes")
        world.hot.become(({}, {}) if lost else copy)
        world.run_id = "run-2"
        if self.processes and chance.random() < 0.5:
            self.kill(chance.choice(self.processes))  # it was on the same machine
        await asyncio.sleep(chance.uniform(0.1, 5))
        self.operator = world.loop.create_task(self._verify_or_rebuild())

    async def _verify_or_rebuild(self) -> None:
        """As the documentation says: verify; if it stays unclean, rebuild from PostgreSQL; then let claims through."""
        admin = self.admin()
        for look in range(LOOKS_MAX):
            try:
                if await admin.gate.check() is not Standing.VERIFIED:
                    await verify_and_admit(admin.database, admin.store, admin.gate)
                if admin.gate.standing is Standing.VERIFIED:
                    self.world.tell("the store is admitted")
                    return
                if look >= 3:
                    await self._rebuild(admin)
            except (*AWAY, RebuildRaced, LookupError) as error:
                self.world.tell(f"the operator waits: {error}")
            await asyncio.sleep(2)

    async def _rebuild(self, admin: Process) -> None:
        self.world.note("the store was rebuilt")
        done = await rebuild_event(admin.database, admin.store, EVENT)
        epoch = max(one.epoch for one in done.rebuilt)
        self.world.tell(f"the operator has rebuilt the store, epoch {epoch}, {done.findings}")

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _come_to_rest(self) -> bool:
        """Nothing gets lost any more; whatever was begun has to come to its end."""
        for round in range(ROUNDS_MAX):
            while not self.processes:
                await asyncio.sleep(1)
            if round == 1:
                for service in (BOOKING, RESERVATION, TICKETING):
                    self.log.rebalance(service)
            for name in JOBS:
                if self._is_due(name):
                    await self.processes[0].spawn(_quietly(self.processes[0].jobs()[name]))
            await asyncio.sleep(3 if round < 40 else 20)
            if round > 1 and not self._under_way():
                return True
        self.world.violations.append(f"I22: does not come to rest: {self._under_way()}")
        return False

    def _under_way(self) -> list[str]:
        live = [b for b in self._rows(BOOKINGS) if b["state"] in ("PROCESSING", "PENDING_PAYMENT", "PAYING")]
        moving = ("STARTED", "ACTION", "AUTHORISED", "ABANDONED", "LATE")
        payments = [p for p in self._rows(PAYMENTS) if p["state"] in moving]
        refunds = [r for r in self._rows(REFUNDS) if r["state"] == "ASKED"]
        found = [f"booking {b['id']} is {b['state']}" for b in live]
        found += [f"payment {p['id']} is {p['state']}" for p in payments] + [f"refund {r['id']}" for r in refunds]
        found += [f"{name} is not empty" for name in ("booking.outbox", "ticketing.outbox") if self._rows(name)]
        found += [] if self.log.is_empty() else ["messages are on their way"]
        found += [] if not self._holds() else ["holds are live"]
        return found

    def _holds(self) -> bool:
        records = [v for k, h in self.world.hot.keys.items() if b"holds:" in k for v in h.values()]
        return any(line.startswith(b"L|h|") for line in records)

    def _rows(self, table: str) -> list[dict[str, Any]]:
        return self.world.tables[table].committed()

    def parts_of(self, booking: dict[str, Any]) -> Any:
        return parts_of(booking["parts"])

    async def _judge(self, buyers: list[Buyer]) -> None:
        violations = self.world.violations
        for what in self.log.buried:
            violations.append(f"buried: {what}")
        admin = self.admin()
        facts = await facts_of(admin.database, EVENT)
        report = await verify_places(admin.store, facts.halls, facts.pools)
        violations += [f"I8: {found}" for found in report.findings]
        try:
            assert_picture_consistent(self._picture())
        except AssertionError as error:
            violations.append(f"I4 I5 I8 I13 I23: {error}")
        bookings = {b["id"]: b for b in self._rows(BOOKINGS)}
        payments = {p["id"]: p for p in self._rows(PAYMENTS)}
        for buyer in buyers:
            violations += _promises_broken(buyer, bookings, payments)

    def _picture(self) -> Picture:
        return Picture(
            bookings=self._rows(BOOKINGS),
            places={("A", 1): 0, ("A", 2): 1, ("GA", 0): 2},
            tickets=[t for t in self._rows(TICKETS) if t["state"] in (1, 2)],
            purchases=self._rows(PURCHASES),
            payments=self._rows(PAYMENTS),
            ledger=self._rows(LEDGER),
            charges=list(self.bank.charges.values()),
        )

    def _throw_away(self) -> None:
        loop = self.world.loop
        for process in self.processes:
            process.alive = False
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            task.cancel()
        loop._ready.clear()  # type: ignore[attr-defined]
        loop._scheduled.clear()  # type: ignore[attr-defined]
        loop.close()
        asyncio.set_event_loop(None)


TROUBLES = ("losses", "pauses", "duplicates", "kills", "crashes", "rebalances", "failovers")
JOBS = ("relay booking", "relay ticketing", "expire", "ask again", "sweep", "resolve")


async def _do(act: Callable[[Process], Awaitable[Any]], process: Process) -> Any:
    await process.world.travel()
    process.require_alive()
    found = await act(process)
    await process.world.travel()
    if process.world.is_lost():
        raise NoAnswer
    return found


async def _quietly(job: Callable[[], Awaitable[Any]]) -> None:
    try:
        await job()
    except AWAY:
        return


def _promises_broken(buyer: Buyer, bookings: dict[Any, Any], payments: dict[Any, Any]) -> list[str]:
    broken = [f"I3: booking {id} was answered and is gone" for id in buyer.answered.values() if id not in bookings]
    for id in buyer.told_captured:
        booking = bookings[payments[id]["booking"]]
        refunded = booking["state"] == "REFUNDED" and booking["id"] in buyer.refunds_asked
        if booking["state"] != "PAID" and not refunded:
            broken.append(f"I3: payment {id} was answered as done, and its booking is {booking['state']}")
    for id in buyer.cancels_told:
        if bookings[id]["state"] not in ("CANCELLED",):
            broken.append(f"I3: booking {id} was cancelled and is {bookings[id]['state']}")
    return broken


_current: list[History] = []


def _make_repeatable(history: History) -> None:
    """Ids, chance and clocks come from the seed, and the named places where a process can die ask the history."""
    if not _current:
        _replace_for_good()
    _current[:] = [history]
    random.seed(history.world.seed)


def _replace_for_good() -> None:
    # Each looks up the history that runs now.
    def urandom(count: int) -> bytes:
        return _current[0].world.chance.randbytes(count)

    def at_crash_point(name: str) -> None:
        _current[0].at_crash_point(name)

    aisle.ids.os = SimpleNamespace(urandom=urandom)  # type: ignore[attr-defined]
    for name, module in list(sys.modules.items()):
        if name.startswith("aisle.") and getattr(module, "crash_point", None) is crash_point:
            module.crash_point = at_crash_point  # type: ignore[attr-defined]
    for kind in (HallChooser, OneTurn, Catalogue, Gate):
        kind.__init__.__kwdefaults__["clock"] = lambda: _current[0].world.loop.virtual  # type: ignore[misc]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50), cache_logger_on_first_use=True)
