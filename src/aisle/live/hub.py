"""Everything live in one process: one reader of seats, one listener for bookings, and the browsers they serve.

Opened by the composition root for the roles that serve browsers, closed after the last request has ended.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from aisle.live.bookings import Bookings, BookingWatch
from aisle.live.connections import Connections, Limits, StillValid
from aisle.live.sales import ReadSales, SalesWatch
from aisle.live.seats import SeatWatch, Upstream
from aisle.metrics import Metrics

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Hub:
    seats: SeatWatch
    bookings: BookingWatch
    sales: SalesWatch
    connections: Connections
    metrics: Metrics
    clock: Callable[[], float]


@asynccontextmanager
async def open_hub(
    upstream: Upstream,
    bookings: Bookings,
    read_sales: ReadSales,
    still_valid: StillValid,
    limits: Limits,
    metrics: Metrics,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Hub]:
    hub = Hub(
        SeatWatch(upstream, metrics, clock=clock),
        BookingWatch(bookings, metrics, clock=clock),
        SalesWatch(read_sales, metrics, clock=clock),
        Connections(limits, metrics, still_valid, clock=clock),
        metrics,
        clock,
    )
    tasks = [_start(name, work) for name, work in _work_of(hub).items()]
    try:
        yield hub
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _work_of(hub: Hub) -> dict[str, Coroutine[None, None, None]]:
    return {
        "live-seats": hub.seats.poll_for_ever(),
        "live-listener": hub.bookings.listen_for_ever(),
        "live-bookings": hub.bookings.read_for_ever(),
        "live-sales": hub.sales.poll_for_ever(),
        "live-heartbeat": hub.connections.beat_for_ever(),
        "live-recheck": hub.connections.recheck_for_ever(),
    }


def _start(name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_say_why)
    return task


def _say_why(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("background_work_died", task=task.get_name(), exc_info=task.exception())
