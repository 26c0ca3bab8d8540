"""Composition root: opens what a process needs, binds it together, serves until told to stop.

The only file that knows every room. Nothing here decides anything about seats or money.
"""

import asyncio
import signal
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import asyncpg
import structlog
from litestar import Litestar, Router
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from aisle import __version__
from aisle.accounts.access import Access, actor_of
from aisle.accounts.api import account_routes
from aisle.accounts.desk import Desk, open_desk
from aisle.booking.api import booking_routes
from aisle.booking.backlog import Backlog
from aisle.booking.desk import BookingDesk
from aisle.booking.holds_api import hold_routes
from aisle.booking.payment_api import money_routes
from aisle.booking.place import Placer
from aisle.booking.review_api import review_routes
from aisle.bridges import counts_of, everything_counted, open_gate, pool_counts_of, sales_from, switch_sale
from aisle.browsing import Browsing, open_browsing
from aisle.cart_bridges import holder_and_checkout
from aisle.config import Config
from aisle.db import check_database, open_database
from aisle.door_bridges import door_routers
from aisle.envelope import RequestTimes, envelope
from aisle.errors import StartupError
from aisle.health import Check, NotReady, Readiness, health_routes
from aisle.hot_route import HotRoutes
from aisle.http_server import HttpServer, http_server, listen
from aisle.json_request import JsonRequest
from aisle.limits import READY_CHECK_SECONDS_MAX
from aisle.live.api import live_routes
from aisle.live.hub import Hub
from aisle.live_bridges import open_live
from aisle.log import LogWriter, open_writer, require_log
from aisle.log_address import log_address
from aisle.metrics import Metrics, watch_event_loop
from aisle.migrate import pending_migrations
from aisle.money_bridges import money_desk, open_counter, review_desk
from aisle.ops_bridges import ops_routers, watching_for
from aisle.page_bridges import pages_from, seller_pages_from
from aisle.privacy.api import PrivacyDesk, privacy_routes
from aisle.problems import exception_answers
from aisle.relay import Relay
from aisle.reservation.inventory import Inventory
from aisle.reservation.pools import Pools
from aisle.sales.api import sales_routes
from aisle.sales_bridges import sales_desk
from aisle.seats_left import SeatsLeft
from aisle.services import Parts, running_services
from aisle.store import Store, open_store
from aisle.ticketing.api import EventDesk, event_routes
from aisle.ticketing.catalogue import Catalogue
from aisle.ticketing.hall_api import hall_routes
from aisle.ui.api_page import api_page, openapi_json
from aisle.ui.buyer import buyer_pages
from aisle.ui.frame import page_errors
from aisle.ui.seller import seller_pages
from aisle.ui.static_files import static_file

ROLES = ("api", "booking", "reservation", "ticketing", "live")

log = structlog.get_logger()


async def serve(config: Config, roles: Sequence[str]) -> None:
    """Run the roles in this process until SIGTERM or SIGINT, then drain."""
    listener = listen(config)
    try:
        async with AsyncExitStack() as stack:
            await _serve_on(listener, config, roles, stack)
    finally:
        listener.close()


async def _serve_on(listener: socket.socket, config: Config, roles: Sequence[str], stack: AsyncExitStack) -> None:
    metrics = Metrics()
    database = await stack.enter_async_context(open_database(config))
    store = await stack.enter_async_context(open_store(config, metrics))
    await _require_schema(database)
    await require_log(log_address(config), config.store_connect_timeout)
    writer = await stack.enter_async_context(open_writer(log_address(config)))
    parts = await _parts(config, database, store, writer, metrics)
    desk = await stack.enter_async_context(open_desk(config, database, store))
    sales = sales_desk(parts)
    serves_browsers = not {"api", "live"}.isdisjoint(roles)
    live = await stack.enter_async_context(open_live(parts, desk, sales, metrics)) if serves_browsers else None
    routers = [live_routes(live)] if live is not None else []
    counter = await open_counter(parts, metrics, stack) if not {"api", "booking"}.isdisjoint(roles) else None
    if "api" in roles:
        assert counter is not None
        browsing = await stack.enter_async_context(open_browsing(config, database))
        routers += [*_api_routers(parts, desk, browsing, stack), *door_routers(parts, desk), sales_routes(sales)]
        routers += [money_routes(money_desk(parts, counter)), review_routes(review_desk(parts, counter))]
        routers += ops_routers(parts, desk)
    _show_pool(database, config, metrics)
    readiness = Readiness({"database": _database_check(database), "store": store.ping})
    app = build_app(config, readiness, metrics, desk, routers)
    times = RequestTimes(metrics)
    server = http_server(envelope(app, times), config, HotRoutes(app, Access(desk).admit), times)
    watching = watching_for(parts) if "booking" in roles else {}
    resolver = counter.resolver if counter else None
    await stack.enter_async_context(running_services(parts, roles, resolver, watching))
    stop_when_told(server, readiness, live)
    loop_watch = asyncio.create_task(watch_event_loop(metrics))
    log.info("serving", roles=list(roles), store=store.server.flavour, store_version=store.server.version)
    try:
        await server.serve(sockets=[listener])
    finally:
        loop_watch.cancel()
        with suppress(asyncio.CancelledError):
            await loop_watch


def build_app(
    config: Config, readiness: Readiness, metrics: Metrics, desk: Desk, routers: Sequence[Router] = ()
) -> Litestar:
    access = Access(desk)
    pages: list[Any] = [health_routes(readiness, metrics), api_page, openapi_json, static_file]
    return Litestar(
        [*pages, account_routes(desk, access), *routers],
        middleware=[access.around],
        dependencies={"actor": Provide(actor_of, sync_to_thread=False)},
        exception_handlers=page_errors(exception_answers()),
        request_class=JsonRequest,
        request_max_body_size=config.body_bytes_max,
        logging_config=None,
        openapi_config=OpenAPIConfig(
            title="Aisle",
            version=__version__,
            path="/docs/litestar",  # its own pages, and its own 404 in HTML, stay out of the way of ours
            render_plugins=[JsonRenderPlugin(path="/openapi.json")],
            use_handler_docstrings=True,
        ),
    )


async def _parts(config: Config, database: asyncpg.Pool, store: Store, writer: LogWriter, metrics: Metrics) -> Parts:
    relays = {service: Relay(service, database, writer) for service in ("booking", "ticketing")}
    gate = await open_gate(database, store)
    inventory, pools = Inventory(store, gate), Pools(store, gate)
    catalogue = Catalogue(database, store)
    return Parts(config, database, store, inventory, pools, gate, writer, catalogue, relays, _now, metrics)


def _api_routers(parts: Parts, desk: Desk, browsing: Browsing, stack: AsyncExitStack) -> list[Router]:
    find_sale = sales_from(parts.catalogue)
    left = SeatsLeft(partial(everything_counted, parts.store, parts.pools, parts.catalogue))
    work = parts.metrics.work
    placer = Placer(
        parts.database,
        parts.writer,
        left.nothing_for,
        clock=parts.clock,
        replayed=work.idempotency_replays_total.inc,
        key_reused=work.idempotency_conflicts_total.inc,
        wait_s_max=parts.config.accept_wait_seconds,
        backlog=Backlog(parts.database),
    )
    stack.push_async_callback(placer.aclose)
    events = EventDesk(
        parts.database,
        parts.catalogue,
        parts.relays["ticketing"],
        parts.clock,
        parts.config.own_lane_from_seats,
        counts=partial(counts_of, parts.store),
        pool_counts=partial(pool_counts_of, parts.pools),
        switch=partial(switch_sale, parts.inventory, parts.pools),
        browsing=browsing,
    )
    holder, checkout = holder_and_checkout(parts, find_sale, stack)
    bookings = BookingDesk(
        parts.database,
        placer,
        holder,
        checkout,
        parts.relays["booking"],
        find_sale,
        parts.clock,
        allow_hold=desk.limiter.per_minute("hold_buyer", parts.config.holds_per_buyer),
    )
    routes = [event_routes(events), hall_routes(events), booking_routes(bookings), hold_routes(bookings)]
    routes.append(privacy_routes(PrivacyDesk(parts.database, desk, holder.release_all)))
    return [*routes, buyer_pages(pages_from(desk, events)), seller_pages(seller_pages_from(desk, events))]


def _now() -> datetime:
    return datetime.now(UTC)


def stop_when_told(server: HttpServer, readiness: Readiness, live: Hub | None) -> None:
    def drain() -> None:
        readiness.drain()
        if live is not None:
            live.connections.drain()
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, drain)


def _show_pool(database: asyncpg.Pool, config: Config, metrics: Metrics) -> None:
    metrics.database_pool_in_use.set_function(lambda: database.get_size() - database.get_idle_size())
    metrics.database_pool_max.set(config.database_pool_size)


def _database_check(database: asyncpg.Pool) -> Check:
    async def check() -> None:
        try:
            await check_database(database, READY_CHECK_SECONDS_MAX)
        except asyncpg.PostgresError as error:
            raise NotReady(str(error)) from None

    return check


async def _require_schema(database: asyncpg.Pool) -> None:
    async with database.acquire() as connection:
        pending = await pending_migrations(connection)
    if pending:
        raise StartupError(f"the database lacks {len(pending)} migrations ({pending[0]} ...): run `aisle migrate`")
