"""Opens a connection and introduces itself: log in, choose protocol and database, give a name, learn who answers.

`Line` and `Listener` call `dial` for the first connection and for every later one, so a reconnected line is in the
state of a fresh one. Whatever goes wrong is NotSent, since no command of a caller has left yet.
"""

import asyncio
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from respline.address import Address
from respline.command import Command, Reply, pack
from respline.connection import Connection
from respline.errors import NotSent, ServerError
from respline.options import Counters, Options

_BACKOFF_FIRST = 0.05
_BACKOFF_MAX = 2.0
# A peer that vanished without a word is noticed after about half a minute, even on a line without time-out.
_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))


@dataclass(frozen=True, slots=True)
class Dialled:
    connection: Connection
    server_info: dict[str, str]


async def dial(address: Address, options: Options, counters: Counters) -> Dialled:
    """A connection that is logged in and ready. Raises NotSent."""
    connection = Connection(str(address), options, counters)
    try:
        async with asyncio.timeout(options.connect_timeout):
            await _connect(address, options, connection)
            server_info = await _greet(address, options, connection)
    except TimeoutError:
        connection.drop("connect time-out")
        raise NotSent(f"{address}: no connection within {options.connect_timeout} s") from None
    except (OSError, ValueError) as error:
        connection.drop("not connected")
        raise NotSent(f"cannot connect to {address}: {error}") from error
    except (NotSent, asyncio.CancelledError):
        connection.drop("greeting failed")
        raise
    return Dialled(connection, server_info)


def backoff() -> Iterator[float]:
    """Seconds to wait before each attempt to reconnect: doubling up to a bound, spread so that clients do not march."""
    delay = _BACKOFF_FIRST
    while True:
        yield delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
        delay = min(delay * 2, _BACKOFF_MAX)


async def _connect(address: Address, options: Options, connection: Connection) -> None:
    loop = asyncio.get_running_loop()
    if address.path:
        await loop.create_unix_connection(lambda: connection, address.path)
        return
    context = options.ssl_context if address.tls else None
    transport, _ = await loop.create_connection(lambda: connection, address.host, address.port, ssl=context)
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not options.keepalive:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def _greet(address: Address, options: Options, connection: Connection) -> dict[str, str]:
    """All in one write. A server that does not know HELLO or CLIENT SETNAME stays on RESP2, or does not know our name.

    AUTH goes alone instead of inside HELLO: a server that does not know HELLO quotes its arguments in the refusal.
    """
    greeting: list[Command] = []
    if address.password is not None:
        greeting.append(
            ("AUTH", address.username, address.password) if address.username else ("AUTH", address.password)
        )
    if options.protocol == 3:
        greeting.append(("HELLO", 3))
    if address.db:
        greeting.append(("SELECT", address.db))
    if options.name:
        greeting.append(("CLIENT", "SETNAME", options.name))
    greeting.append(("INFO",))
    loop = asyncio.get_running_loop()
    answers = [loop.create_future() for _ in greeting]
    for answer, command in zip(answers, greeting, strict=True):
        connection.submit(answer, pack(command))
    replies = await asyncio.gather(*answers, return_exceptions=True)
    if connection.lost.done():
        # A server that is full says so in its first reply and hangs up.
        said = next((f" after saying: {reply}" for reply in replies if isinstance(reply, ServerError)), "")
        raise NotSent(_without_password(f"{address}: {connection.lost.result()}{said}", address))
    for command, reply in zip(greeting, replies, strict=True):
        if isinstance(reply, BaseException) and not _tolerable(command, reply):
            raise NotSent(_without_password(f"{address} refused {command[0]!s}: {reply}", address))
    return _parse_info(replies[-1])


def _tolerable(command: Command, reply: BaseException) -> bool:
    """INFO may be forbidden to this user, HELLO and CLIENT SETNAME unknown: the line works all the same.

    A server that is full or protected answers whatever came first with its refusal, and that must not pass for one.
    """
    return (
        isinstance(reply, ServerError)
        and command[0] in ("HELLO", "CLIENT", "INFO")
        and reply.code in ("ERR", "NOPERM", "NOPROTO")
        and "max number of clients" not in reply.message
    )


def _without_password(text: str, address: Address) -> str:
    """Some servers quote in an error what they were sent."""
    return text.replace(address.password, "***") if address.password else text


def _parse_info(reply: Reply) -> dict[str, str]:
    if not isinstance(reply, bytes):
        return {}
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
