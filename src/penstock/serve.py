"""Composition: the store, the broker and its background tasks, started in order and stopped in reverse.

`cli` runs it until a signal; tests may run it inside their own loop.
"""

import asyncio
import base64
import gc
import signal
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import structlog

import respline
from penstock import retention
from penstock.api import authenticate, fetch
from penstock.broker import Broker
from penstock.config import Address, BadConfig, Config
from penstock.coordination import Coordination
from penstock.dispatch import APIS, answer, belong_together
from penstock.group_state import Rules
from penstock.groups import Groups
from penstock.metrics import Metrics
from penstock.metrics_page import serving_metrics
from penstock.nodes import BEAT_S, Nodes
from penstock.offsets import Offsets
from penstock.peers import Peers
from penstock.sasl import Users
from penstock.server import Server
from penstock.store.durability import Durability
from penstock.store.group_keys import CoordinatorKeys
from penstock.store.groups import GroupStore
from penstock.store.keys import Keys
from penstock.store.log import Log
from penstock.store.offsets import OffsetStore
from penstock.store.probe import check_settings, scripts_need_transactions
from penstock.store.producer_ids import ProducerIds
from penstock.store.scripts import Scripts, Store
from penstock.store.topics import Topics
from penstock.store.transactions import TransactionStore
from penstock.store.txn_keys import TxnKeys
from penstock.transaction_coordinator import TransactionCoordinator
from penstock.waiters import Waiters

log = structlog.get_logger("penstock")
STORE_CALLS_MAX = 100_000
CATALOGUE_CHECK_S = 1.0
OPEN_LOGS_CHECK_S = 0.05
TRANSACTIONS_CHECK_S = 0.5


async def serve_until_signal(config: Config, announce: Callable[[Address], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running_broker(config) as broker:
        _collect_seldom()
        announce(broker.advertised)
        await stop.wait()


def _collect_seldom() -> None:
    """What is loaded stays, and a request leaves no cycles: looking for some was a quarter of the cost of idling."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@asynccontextmanager
async def running_broker(config: Config) -> AsyncIterator[Broker]:
    """A broker that answers on its port until the block ends."""
    async with AsyncExitStack() as stack:
        store = await respline.open_store(
            config.store_url, name="penstock", timeout=config.store_timeout_s, in_flight_max=STORE_CALLS_MAX
        )
        stack.push_async_callback(store.aclose)
        await check_settings(store, config.acks_fsync)
        durability = await _durability(config, stack)
        server = Server(
            config,
            Metrics(),
            lambda session, frames: answer(broker, session, frames),
            belong_together,
            lambda session, frame, done: fetch.park(broker, session, frame, done),
            lambda session: fetch.release(broker, session),
        )
        broker = await _built(config, store, server.metrics, durability)
        port = await server.start(_tls(config))
        broker.advertised = _advertised(config, port)
        broker.nodes.move_to(broker.advertised)
        peers = Peers(store, broker.keys, broker.nodes, broker.topics, broker.log, broker.waiters)
        listener = await peers.listen(config.store_url)
        stack.push_async_callback(listener.aclose)
        await peers.beat()
        stack.push_async_callback(_leave, broker.nodes)
        await broker.groups.beat()
        stack.push_async_callback(server.stop)
        stack.callback(broker.waiters.release_all)
        stack.push_async_callback(broker.groups.close)
        if config.metrics_listen:
            await stack.enter_async_context(serving_metrics(broker, config.metrics_listen))
        for name, interval, work in _background(broker, peers):
            task = asyncio.create_task(_repeat(name, interval, work))
            stack.push_async_callback(_cancel, task)
        yield broker


async def _built(config: Config, store: Store, metrics: Metrics, durability: Durability | None) -> Broker:
    keys = Keys(config.keyspace)
    scripts = await _scripts(store)
    fresh = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    await store.call("SET", keys.cluster_id, fresh, "NX")
    cluster_id = (await store.call("GET", keys.cluster_id)).decode()
    advertised = _advertised(config, config.listen.port)
    topics = Topics(store, scripts, keys)
    await topics.refresh()
    await topics.finish_deletions()
    waiters = Waiters()
    nodes = Nodes(scripts, keys, config.node_id, advertised)
    coordination, groups, offsets = _groups(config, store, scripts, nodes)
    logs = Log(store, scripts, keys, waiters, metrics, config.node_id, durability)
    producer_ids = ProducerIds(store, keys)
    txn_store = TransactionStore(store, scripts, keys, TxnKeys(config.keyspace), durability)
    return Broker(
        config=config,
        advertised=advertised,
        cluster_id=cluster_id,
        now_ms=_now_ms,
        store=store,
        scripts=scripts,
        keys=keys,
        nodes=nodes,
        topics=topics,
        log=logs,
        waiters=waiters,
        producer_ids=producer_ids,
        coordination=coordination,
        groups=groups,
        offsets=offsets,
        transactions=TransactionCoordinator(groups, txn_store, producer_ids, topics, logs, config.node_id, _now_ms),
        metrics=metrics,
        users=Users.read(config.sasl_users) if config.sasl_users else None,
        api_ranges=[
            (api.key, api.low, api.high)
            for api in APIS.values()
            if config.sasl_users or api.key not in (authenticate.HANDSHAKE, authenticate.AUTHENTICATE)
        ],
    )


def _groups(config: Config, store: Store, scripts: Scripts, nodes: Nodes) -> tuple[Coordination, Groups, Offsets]:
    keys = CoordinatorKeys(config.keyspace)
    rules = Rules(
        config.group_initial_delay_ms, config.group_session_min_ms, config.group_session_max_ms, config.group_size_max
    )
    coordination = Coordination(scripts, keys, nodes, _clock_ms)
    groups = Groups(coordination, GroupStore(store, scripts, keys), rules, _clock_ms, _now_ms)
    return coordination, groups, Offsets(groups, OffsetStore(store, scripts, keys))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000


async def _scripts(store: Store) -> Scripts:
    return Scripts(store, in_transactions=await scripts_need_transactions(store))


async def _durability(config: Config, stack: AsyncExitStack) -> Durability | None:
    if not config.acks_replicas and not config.acks_fsync:
        return None
    line = await respline.open_line(config.store_url, name="penstock-durable", timeout=config.store_timeout_s)
    stack.push_async_callback(line.aclose)
    # The store gives up before our own time-out does, so a shortfall is an answer and not an unknown outcome.
    timeout_ms = int(config.store_timeout_s * 1000 / 2)
    return Durability(line, await _scripts(line), config.acks_replicas, config.acks_fsync, timeout_ms)


def _tls(config: Config) -> ssl.SSLContext | None:
    if config.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.tls_certificate, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise BadConfig(f"cannot use {config.tls_certificate} and {config.tls_key} for TLS: {error}") from error
    return context


def _advertised(config: Config, port: int) -> Address:
    if config.advertise:
        return config.advertise
    host = config.listen.host
    # "All interfaces" is an address to listen on, not one to connect to.
    return replace(config.listen, host="127.0.0.1" if host in ("", "0.0.0.0", "::") else host, port=port)  # noqa: S104


def _background(broker: Broker, peers: Peers) -> list[tuple[str, float, Callable[[], Awaitable[None]]]]:
    """(name, seconds between two runs, what) of everything that lives as long as the broker."""
    return [
        ("lease", BEAT_S, peers.beat),
        ("coordinator", BEAT_S, broker.groups.beat),
        ("offsets", broker.config.offsets_sweep_s, lambda: _sweep_offsets(broker)),
        ("transactions", TRANSACTIONS_CHECK_S, broker.transactions.sweep),
        ("catalogue", CATALOGUE_CHECK_S, peers.refresh_catalogue),
        ("open logs", OPEN_LOGS_CHECK_S, peers.look_at_open_logs),
        ("retention", broker.config.retention_interval_s, lambda: retention.sweep(broker)),
    ]


async def _sweep_offsets(broker: Broker) -> None:
    oldest_ms = broker.now_ms() - broker.config.offsets_retention_ms
    await broker.offsets.sweep(oldest_ms, [topic.id_text for topic in broker.topics.by_name.values()])


async def _repeat(name: str, interval: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(interval)
        try:
            await work()
        except respline.ResplineError as error:
            log.warning("the store failed", task=name, error=str(error))
        except BadConfig as error:
            log.warning("misconfigured", task=name, error=str(error))


async def _leave(nodes: Nodes) -> None:
    try:
        await nodes.leave()
    except respline.ResplineError as error:
        log.warning("the lease runs out by itself, the store is away", error=str(error))


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()):
        log.error("a background task died", exc_info=error)
