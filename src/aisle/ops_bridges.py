"""What the operator's report is given to look at: the hot store with its holds, and the dead letters of the log."""

import re
from functools import partial

from litestar import Router

from aisle.accounts.access import Access
from aisle.accounts.desk import Desk
from aisle.dead_letters import count_dead_letters
from aisle.errors import Problem
from aisle.ops.api import ops_routes
from aisle.ops.desk import OpsDesk
from aisle.ops.report import StoreView
from aisle.reservation.generation import Gate
from aisle.reservation.inspect_api import inspect_routes
from aisle.reservation.keyspace import NAMES
from aisle.reservation.sweeper import count_overdue
from aisle.services import Parts
from aisle.store import Store
from aisle.ticketing.catalogue import Catalogue
from aisle.ui.ops import ops_pages


def ops_routers(parts: Parts, accounts: Desk) -> list[Router]:
    desk = OpsDesk(
        parts.database,
        partial(_look_at_store, parts.store, parts.gate),
        lambda: parts.store.breaker.state.value,
        partial(count_dead_letters, parts.config.kafka),
        parts.clock,
    )
    routes = inspect_routes(parts.store, partial(_pools_of, parts.catalogue))
    return [ops_routes(desk), routes, ops_pages(Access(accounts).recognise, list(NAMES))]


async def _pools_of(catalogue: Catalogue, event_id: int) -> list[str]:
    try:
        return [pool.pool for pool in (await catalogue.find(event_id)).pools]
    except Problem as problem:
        if problem.status != 404:
            raise
        return []


async def _look_at_store(store: Store, gate: Gate) -> StoreView:
    used = limit = 0
    for node in store.nodes:
        info = (await store.call_on(node, "INFO", "memory")).decode(errors="replace")
        used += _number(info, "used_memory")
        limit += _number(info, "maxmemory")
    places, overdue = await count_overdue(store)
    return StoreView(
        server=f"{store.server.flavour} {store.server.version}",
        memory_bytes=used,
        memory_bytes_max=limit,
        standing=(await gate.check()).value,
        places_with_holds=places,
        overdue_holds=overdue,
    )


def _number(info: str, field: str) -> int:
    found = re.search(rf"^{field}:(\d+)", info, re.MULTILINE)
    return int(found[1]) if found else 0
