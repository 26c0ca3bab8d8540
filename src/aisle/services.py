"""The background work of a process: workers on every lane, relays, expiry, and what makes new events ready.

Started by the composition root for the roles it was given. Any number of processes may run the same roles: the log
shares partitions among workers, rows are shared by SKIP LOCKED, scripts decide in the store.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import asyncpg
import structlog

from aisle import db
from aisle.booking.books import watch_books_for_ever
from aisle.booking.expire import expire_for_ever, give_up_unanswered
from aisle.booking.place import ask_again
from aisle.booking.resolve import Resolver
from aisle.booking.store import ended_bookings, paid_bookings
from aisle.booking.worker import BookingWorker
from aisle.bridges import make_ready_for_ever, report_lapsed, sales_from, watch_gate_for_ever
from aisle.config import Config
from aisle.counted import counted_booking, counted_lapses, counted_reservation, counted_ticketing
from aisle.errors import Problem
from aisle.limits import (
    ASK_AGAIN_INTERVAL_SECONDS,
    EXPIRE_INTERVAL_SECONDS,
    GATE_SECOND_LOOK_SECONDS,
    LANES_INTERVAL_SECONDS,
    REVIVE_SECONDS,
    STATE_INTERVAL_SECONDS,
    SWEEP_INTERVAL_SECONDS,
)
from aisle.log import LogReader, LogUnavailable, LogWriter, ensure_lane, open_reader
from aisle.log_address import log_address
from aisle.messages import BOOKING, RESERVATION, SHARED_LANE, TICKETING, group, topics_to
from aisle.metrics import Metrics
from aisle.once import forget_old_answers
from aisle.privacy.retain import forget_for_ever
from aisle.relay import Relay
from aisle.reservation.generation import Gate
from aisle.reservation.inventory import Inventory
from aisle.reservation.pools import Pools
from aisle.reservation.sweeper import sweep_for_ever
from aisle.reservation.worker import ReservationWorker
from aisle.store import Store
from aisle.ticketing import store as tickets
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.worker import TicketingWorker
from aisle.worker import Handle, run_worker

Work = Callable[[], Coroutine[None, None, None]]

SERVICES = {"booking": BOOKING, "reservation": RESERVATION, "ticketing": TICKETING}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Parts:
    """What the services work with."""

    config: Config
    database: asyncpg.Pool
    store: Store
    inventory: Inventory
    pools: Pools
    gate: Gate
    writer: LogWriter
    catalogue: Catalogue
    relays: dict[str, Relay]
    clock: Callable[[], datetime]
    metrics: Metrics
    # The readers of this process by consumer group, for those who ask how far behind they are.
    readers: dict[str, LogReader] = field(default_factory=dict)


@asynccontextmanager
async def running_services(
    parts: Parts, roles: Sequence[str], resolver: Resolver | None = None, more: Mapping[str, Work] | None = None
) -> AsyncIterator[None]:
    """Everything the roles do in the background, until the block ends. What is cut off is done again by the next."""
    background = {**_background(parts, roles), **(more or {})}
    if "booking" in roles and resolver is not None:
        background["payments"] = resolver.run
        background["books"] = lambda: watch_books_for_ever(resolver.till)
    tasks = [asyncio.create_task(_kept_up(name, work), name=name) for name, work in background.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _kept_up(name: str, work: Work) -> None:
    """Begin the work anew whenever it dies of something that it did not foresee: a process must not live without it."""
    while True:
        task = asyncio.create_task(work(), name=name)
        try:
            await asyncio.wait({task})
        finally:
            await _stop(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background_work_died", task=name, exc_info=task.exception())
        await asyncio.sleep(REVIVE_SECONDS)


def _background(parts: Parts, roles: Sequence[str]) -> dict[str, Work]:
    work: dict[str, Work] = {}
    services = [role for role in roles if role in SERVICES]
    work["own-state"] = lambda: _show_own_state_for_ever(parts)
    if services:
        work["lanes"] = lambda: _serve_lanes(parts, services)
    if "booking" in roles:
        work["booking-relay"] = parts.relays["booking"].run
        work["expiry"] = lambda: expire_for_ever(
            parts.database, parts.relays["booking"], clock=parts.clock, interval_s=EXPIRE_INTERVAL_SECONDS
        )
        work["ask-again"] = lambda: _ask_again_for_ever(parts)
        work["forget"] = lambda: forget_for_ever(parts.database, days=parts.config.retention_days, clock=parts.clock)
    if "ticketing" in roles:
        work["ticketing-relay"] = parts.relays["ticketing"].run
        work["make-ready"] = lambda: make_ready_for_ever(
            parts.database, parts.store, parts.catalogue, clock=parts.clock
        )
    if "reservation" in roles:
        work["gate"] = lambda: watch_gate_for_ever(parts.database, parts.store, parts.gate)
        report = counted_lapses(report_lapsed(parts.database), parts.metrics.work)
        work["sweeper"] = lambda: sweep_for_ever(parts.store, interval_s=SWEEP_INTERVAL_SECONDS, report=report)
    elif "api" in roles:
        # It takes holds and checks carts out, so it has a gate too. A reservation process is usually first to verify;
        # but a run that only this process has met, after a connection of its own broke, is for it to verify.
        again = GATE_SECOND_LOOK_SECONDS
        work["gate"] = lambda: watch_gate_for_ever(parts.database, parts.store, parts.gate, interval_s=again)
    return work


async def _serve_lanes(parts: Parts, services: Sequence[str]) -> None:
    """A worker for each service on each lane; new lanes are found as events are created."""
    handlers = _handlers(parts)
    async with AsyncExitStack() as stack:
        served: set[str] = set()
        while True:
            for lane in [lane for lane in await _lanes(parts) if lane not in served]:
                try:
                    await ensure_lane(log_address(parts.config), lane)
                except LogUnavailable as error:
                    # The workers of the other lanes go on; this one is tried again.
                    log.warning("lane_waits", lane=lane, reason=error.detail)
                    continue
                for service in services:
                    _start_worker(stack, parts, lane, SERVICES[service], handlers[service])
                served.add(lane)
            await asyncio.sleep(LANES_INTERVAL_SECONDS)


def _handlers(parts: Parts) -> dict[str, Handle]:
    work, seconds = parts.metrics.work, parts.config.payment_seconds
    booking = BookingWorker(parts.database, payment_seconds=seconds, clock=parts.clock)
    reservation = ReservationWorker(parts.store, parts.inventory, parts.pools)
    ticketing = TicketingWorker(parts.database, ended=ended_bookings, paid=paid_bookings)
    return {
        "booking": counted_booking(booking.handle, work),
        "reservation": counted_reservation(reservation.handle, work),
        "ticketing": counted_ticketing(ticketing, work),
    }


def _start_worker(stack: AsyncExitStack, parts: Parts, lane: str, service: str, handle: Handle) -> None:
    name = group(service, lane)

    async def work() -> None:
        # A worker that dies takes its reader along: what it had read and not done comes again to the next.
        async with open_reader(log_address(parts.config), name, topics_to(service, lane)) as reader:
            parts.readers[name] = reader
            try:
                await run_worker(service, lane, reader, parts.writer, handle, buried=_count_buried(parts, lane))
            finally:
                del parts.readers[name]

    stack.push_async_callback(_stop, asyncio.create_task(_kept_up(name, work), name=name))


async def _lanes(parts: Parts) -> list[str]:
    try:
        async with parts.database.acquire() as connection:
            return [SHARED_LANE, *(lane for lane in await tickets.lanes(connection) if lane != SHARED_LANE)]
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        log.warning("lanes_unknown", reason=str(error))
        return []


async def _ask_again_for_ever(parts: Parts) -> None:
    find_sale = sales_from(parts.catalogue)
    while True:
        await asyncio.sleep(ASK_AGAIN_INTERVAL_SECONDS)
        try:
            now = parts.clock()
            window = timedelta(seconds=parts.config.processing_seconds)
            await give_up_unanswered(parts.database, placed_before=now - window, now=now)
            await ask_again(parts.database, parts.writer, find_sale, now=now)
            await forget_old_answers(parts.database, now=parts.clock())
        except (Problem, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("ask_again_waits", reason=str(error))


async def _show_own_state_for_ever(parts: Parts) -> None:
    """What this process knows of itself: how far behind its readers are, what its relays and its pools did."""
    work, state = parts.metrics.work, parts.metrics.state
    published = dict.fromkeys(parts.relays, 0)
    retried = 0
    state.store_blocking_max.set(parts.config.store_pool_size - 1)
    while True:
        for name, reader in list(parts.readers.items()):
            messages, seconds = await reader.lag()
            work.consumer_lag_messages.labels(name).set(messages)
            work.consumer_lag_seconds.labels(name).set(seconds)
        for service, relay in parts.relays.items():
            work.outbox_published_total.labels(service).inc(relay.published - published[service])
            published[service] = relay.published
        work.database_tx_retries_total.inc(db.run_again - retried)
        retried = db.run_again
        state.store_blocking_in_use.set(parts.store.blocking_in_use)
        await asyncio.sleep(STATE_INTERVAL_SECONDS)


def _count_buried(parts: Parts, lane: str) -> Callable[[int], None]:
    return parts.metrics.work.dead_letters_total.labels(lane).inc


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
