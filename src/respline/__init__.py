"""respline: one auto-pipelined asyncio connection to a Redis-protocol store. This is the public door; see README.md.

    store = await respline.open_store("valkey://127.0.0.1:6379/0", name="api")
    seats = await store.call(b"GET", b"seats_bf:{1:A-1}")

It knows nothing of the programs that use it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from respline.address import Address, is_cluster, parse_url, parse_urls, tls_context
from respline.cluster import Cluster
from respline.command import Argument, Command, Reply
from respline.errors import BadUrl, NotSent, OutcomeUnknown, ResplineError, ServerError
from respline.line import Line
from respline.listener import Listener, OnGap, OnMessage
from respline.options import Counters, Options, Settings
from respline.routing import key_slot

__all__ = [
    "Argument",
    "BadUrl",
    "Cluster",
    "Command",
    "Counters",
    "Line",
    "Listener",
    "NotSent",
    "OutcomeUnknown",
    "Reply",
    "ResplineError",
    "ServerError",
    "Settings",
    "Store",
    "key_slot",
    "open_cluster",
    "open_line",
    "open_listener",
    "open_store",
]

Store = Line | Cluster


async def open_store(url: str, **settings: Unpack[Settings]) -> Store:
    """Opens what the URL names: a cluster for a +cluster scheme, else a line."""
    if is_cluster(url):
        return await open_cluster([url], **settings)
    return await open_line(url, **settings)


async def open_line(url: str, **settings: Unpack[Settings]) -> Line:
    """Connects to one server. Raises BadUrl, or NotSent if it cannot be reached or refuses the login."""
    address = parse_url(url)
    line = Line(address, _options(address, settings))
    await line.start()
    return line


async def open_cluster(urls: Sequence[str], **settings: Unpack[Settings]) -> Cluster:
    """Connects to a cluster of which some nodes are named. Raises BadUrl, or NotSent if none of them knows the map."""
    seeds = [address for url in urls for address in parse_urls(url)]
    if not seeds or any(seed.path for seed in seeds):
        raise BadUrl("a cluster needs the host and port of at least one node")
    cluster = Cluster(seeds, _options(seeds[0], settings))
    await cluster.start()
    return cluster


async def open_listener(url: str, on_message: OnMessage, on_gap: OnGap, **settings: Unpack[Settings]) -> Listener:
    """Opens a connection for pub/sub. `on_gap` is called after every reconnect: messages may have been missed."""
    addresses = parse_urls(url)
    listener = Listener(addresses, _options(addresses[0], settings), on_message, on_gap)
    await listener.start()
    return listener


def _options(address: Address, settings: Settings) -> Options:
    options = Options(**settings)
    if address.tls and options.ssl_context is None:
        # Once, because reading the trust store takes milliseconds and a reconnect must not fail on a missing file.
        options = replace(options, ssl_context=tls_context(address))
    return options
