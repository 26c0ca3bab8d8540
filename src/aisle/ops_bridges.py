"""What the operator's report is given to look at: the hot store with its holds, and the dead letters of the log."""

import re
import zlib
from functools import partial

from litestar import Router

from aisle.accounts.access import Access
from aisle.accounts.desk import Desk
from aisle.bridges import everything_counted
from aisle.dead_letters import count_dead_letters
from aisle.errors import Problem
from aisle.limits import DEAD_LETTERS_SHOWN_SECONDS, SEATS_SHOWN_EVENTS_MAX
from aisle.log_address import log_address
from aisle.ops.api import ops_routes
from aisle.ops.desk import DEAD_LETTERS_FRESH_SECONDS, OpsDesk
from aisle.ops.notes import read_notes
from aisle.ops.report import StoreView
from aisle.ops.watch import Watch
from aisle.reconcile import reconcile_for_ever
from aisle.reservation.generation import Gate
from aisle.reservation.inspect_api import inspect_routes
from aisle.reservation.keyspace import NAMES
from aisle.reservation.sweeper import count_overdue
from aisle.services import Parts, Work
from aisle.store import Store
from aisle.ticketing import store as tickets
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.event import EventState
from aisle.ui.ops import ops_pages


def ops_desk(parts: Parts, *, dead_letters_fresh_s: float = DEAD_LETTERS_FRESH_SECONDS) -> OpsDesk:
    return OpsDesk(
        parts.database,
        partial(look_at_store, parts.store, parts.gate),
        lambda: parts.store.breaker.state.value,
        partial(count_dead_letters, log_address(parts.config)),
        parts.clock,
        dead_letters_fresh_s=dead_letters_fresh_s,
    )


def ops_routers(parts: Parts, accounts: Desk) -> list[Router]:
    desk = ops_desk(parts)
    routes = inspect_routes(parts.store, partial(_pools_of, parts.catalogue))
    return [ops_routes(desk), routes, ops_pages(Access(accounts).recognise, list(NAMES))]


def watching_for(parts: Parts) -> dict[str, Work]:
    """What a process with the role `booking` watches: the shared state, and now and then store against tickets."""
    desk = ops_desk(parts, dead_letters_fresh_s=DEAD_LETTERS_SHOWN_SECONDS)
    watch = Watch(desk, partial(read_notes, parts.store), partial(_seats_on_sale, parts), parts.metrics)
    work: dict[str, Work] = {"state": watch.run}
    if parts.config.reconcile_seconds:
        work["reconcile"] = partial(reconcile_for_ever, parts.config.reconcile_seconds)
    return work


async def _seats_on_sale(parts: Parts) -> dict[str, int]:
    async with parts.database.acquire() as connection:
        events = await tickets.events_in(connection, EventState.ON_SALE, SEATS_SHOWN_EVENTS_MAX)
    total = dict.fromkeys(("available", "held", "sold", "blocked"), 0)
    for event in events:
        for counts in await everything_counted(parts.store, parts.pools, parts.catalogue, event.id):
            total["available"] += counts.available
            total["held"] += counts.reserved
            total["sold"] += counts.sold
            total["blocked"] += counts.unavailable
    return total


async def _pools_of(catalogue: Catalogue, event_id: int) -> list[str]:
    try:
        return [pool.pool for pool in (await catalogue.find(event_id)).pools]
    except Problem as problem:
        if problem.status != 404:
            raise
        return []


async def look_at_store(store: Store, gate: Gate) -> StoreView:
    used = limit = 0
    fault = ""
    for node in store.nodes:
        info = (await store.call_on(node, "INFO", "memory")).decode(errors="replace")
        used += _number(info, "used_memory")
        limit += _number(info, "maxmemory")
        info = (await store.call_on(node, "INFO", "persistence")).decode(errors="replace")
        fault = fault or _append_fault(info)
    visited = await count_overdue(store)
    return StoreView(
        server=f"{store.server.flavour} {store.server.version}",
        memory_bytes=used,
        memory_bytes_max=limit,
        standing=(await gate.check()).value,
        places_with_holds=visited.places,
        overdue_holds=visited.overdue,
        holds=visited.entries,
        overdue_oldest_s=visited.overdue_oldest_s,
        generation=zlib.crc32(repr([run for run, _ in gate.connected()]).encode()),
        append_fault=fault,
    )


def _append_fault(info: str) -> str:
    """Redis and Valkey tell how the last writes of their file went; Kvrocks, which writes through, has none."""
    if not re.search(r"^aof_enabled:", info, re.MULTILINE):
        return ""
    if not _number(info, "aof_enabled"):
        return "the store appends to no file: what it was told is gone when it ends"
    for field in ("aof_last_write_status", "aof_last_bgrewrite_status"):
        found = re.search(rf"^{field}:(\w+)", info, re.MULTILINE)
        if found and found[1] != "ok":
            return f"{field} is {found[1]}: the file of the store cannot be written"
    return ""


def _number(info: str, field: str) -> int:
    found = re.search(rf"^{field}:(\d+)", info, re.MULTILINE)
    return int(found[1]) if found else 0
