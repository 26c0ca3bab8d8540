"""respline: one auto-pipelined asyncio connection to a Redis-protocol store. This is the public door; see README.md.

    store = await respline.open_store("valkey://127.0.0.1:6379/0", name="api")
    seats = await store.call(b"GET", b"seats_bf:{1:A-1}")

It knows nothing of the programs that use it.
"""

from dataclasses import replace
from typing import Unpack

from respline.address import Address, parse_url, tls_context
from respline.command import Argument, Command, Reply
from respline.errors import BadUrl, NotSent, OutcomeUnknown, ResplineError, ServerError
from respline.line import Line
from respline.options import Counters, Options, Settings

__all__ = [
    "Argument",
    "BadUrl",
    "Command",
    "Counters",
    "Line",
    "NotSent",
    "OutcomeUnknown",
    "Reply",
    "ResplineError",
    "ServerError",
    "Settings",
    "open_line",
    "open_store",
]


async def open_line(url: str, **settings: Unpack[Settings]) -> Line:
    """Connects to one server. Raises BadUrl, or NotSent if it cannot be reached or refuses the login."""
    address = parse_url(url)
    line = Line(address, _options(address, settings))
    await line.start()
    return line


async def open_store(url: str, **settings: Unpack[Settings]) -> Line:
    """Opens what the URL names: a line."""
    return await open_line(url, **settings)


def _options(address: Address, settings: Settings) -> Options:
    options = Options(**settings)
    if address.tls and options.ssl_context is None:
        # Once, because reading the trust store takes milliseconds and a reconnect should not fail on a missing file.
        options = replace(options, ssl_context=tls_context(address))
    return options
