"""/metrics for Prometheus, /livez and /readyz, on a port of their own.

Text is made by prometheus-client from the plain counters of `metrics`; HTTP is the few lines that three fixed pages
need. Nothing of a request but its first line is looked at, and a slow or large one is dropped.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import respline
from penstock.broker import Broker
from penstock.config import Address
from penstock.group_metrics import AllGroups, group_families, group_figures

HEAD_BYTES_MAX = 8192
PATIENCE_S = 5.0
COUNTERS = {
    "produced_records": "Records appended.",
    "produced_bytes": "Bytes of record batches appended.",
    "fetched_bytes": "Bytes of record batches given to consumers.",
    "duplicate_batches": "Batches of idempotent producers that were here already.",
    "connections_total": "Connections accepted.",
    "connections_refused": "Connections closed for being too many.",
    "malformed_requests": "Requests that closed their connection.",
    "failed_logins": "Wrong names or passwords.",
    "tail_reads": "Partition reads served from memory.",
    "store_reads": "Partition reads served from the store.",
    "store_failures": "Calls to the store that failed.",
    "trims": "Times a log's beginning was moved.",
}


@asynccontextmanager
async def serving_metrics(broker: Broker, address: Address) -> AsyncIterator[None]:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, body = await _page(broker, head.split(b" ", 2)[1:2])
                writer.write(_response(status, body))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked is gone, slow or not speaking HTTP
        finally:
            writer.close()

    server = await asyncio.start_server(respond, address.host or None, address.port, limit=HEAD_BYTES_MAX)
    try:
        yield
    finally:
        server.close()


class BrokerCollector(Collector):
    """One scrape. What has to be asked of the store was asked before."""

    def __init__(self, broker: Broker, groups: AllGroups | None) -> None:
        self._broker = broker
        self._groups = groups

    def collect(self) -> Iterator[Metric]:
        broker, metrics = self._broker, self._broker.metrics
        for name, meaning in COUNTERS.items():
            stem = f"penstock_{name.removesuffix('_total')}"
            yield CounterMetricFamily(stem, meaning, value=getattr(metrics, name))
        requests = CounterMetricFamily("penstock_requests", "Requests by API.", labels=["api"])
        for api, count in metrics.requests.items():
            requests.add_metric([api], count)
        yield requests
        refused = CounterMetricFamily("penstock_refused_batches", "Batches refused, by error.", labels=["error"])
        for error, count in metrics.refused_batches.items():
            refused.add_metric([error], count)
        yield refused
        topics = broker.topics.by_name.values()
        for name, meaning, value in (
            ("connections", "Open client connections.", metrics.connections),
            ("in_flight_bytes", "Bytes of requests not answered yet.", metrics.in_flight_bytes),
            ("topics", "Topics of the cluster.", len(topics)),
            ("partitions", "Partitions of the cluster.", sum(topic.partitions for topic in topics)),
            ("brokers", "Brokers that hold a lease.", len(broker.nodes.live)),
            ("store_reconnects", "Times the line to the store was opened again.", broker.store.counters.reconnects),
        ):
            yield GaugeMetricFamily(f"penstock_{name}", meaning, value=value)
        if self._groups:
            yield from group_families(self._groups)


async def _page(broker: Broker, path: list[bytes]) -> tuple[str, bytes]:
    match path:
        case [b"/metrics"]:
            return "200 OK", await _metrics(broker)
        case [b"/livez"]:
            return "200 OK", b"alive\n"
        case [b"/readyz"]:
            try:
                await broker.store.call("PING")
            except respline.ResplineError as error:
                return "503 Service Unavailable", f"the store does not answer: {error}\n".encode()
            return "200 OK", b"ready\n"
    return "404 Not Found", b"/metrics, /livez or /readyz\n"


async def _metrics(broker: Broker) -> bytes:
    try:
        groups = await group_figures(broker)
    except respline.ResplineError:
        groups = None  # the counters are worth most while the store is away
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(broker, groups))
    return generate_latest(registry)


def _response(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
