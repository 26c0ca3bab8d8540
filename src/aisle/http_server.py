"""uvicorn with the limits it leaves to a proxy: how large a request head may be, how slowly it may arrive, and how
long a client may leave its answer unread.

Aisle is meant to stand on the open network on one box, so a client that trickles bytes or sends endless headers must
cost us nothing. Signals belong to the composition root, which announces the drain before the server stops.
"""

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from aisle.config import Config
from aisle.envelope import RequestTimes
from aisle.errors import StartupError
from aisle.hot_http import HotCycle
from aisle.hot_route import HotRoutes
from aisle.limits import HEADER_BYTES_MAX, REQUEST_SECONDS_MAX, SPARE_FILES
from aisle.problems import problem_body

BACKLOG = 4096
CONNECTIONS_MIN = 16
ACCEPTED_PER_TURN = 512

# Under this name an application finds its connection among the extensions of the scope.
CONNECTION = "aisle.connection"

_REFUSALS = {
    400: ("Bad Request", "malformed_request", "the request is not valid HTTP"),
    408: ("Request Timeout", "request_timeout", f"the request did not arrive within {REQUEST_SECONDS_MAX} s"),
    503: ("Service Unavailable", "too_many_connections", "too many clients are connected; try again shortly"),
    431: ("Request Header Fields Too Large", "headers_too_large", f"the request head is over {HEADER_BYTES_MAX} bytes"),
}


class HttpServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """libuv takes one connection per turn of the loop, and in a crowd a turn takes long: who came late would wait a
        minute to be let in while those inside are answered. So we take them beside it, hundreds at a time."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._arriving: set[asyncio.Task[object]] = set()
        self._doors = [listener.dup() for listener in sockets or ()]
        for door in self._doors:
            door.setblocking(False)
            self._loop.add_reader(door.fileno(), self._let_in, door)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for door in self._doors:
            self._loop.remove_reader(door.fileno())
            door.close()
        await super().shutdown(sockets)

    def _let_in(self, door: socket.socket) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                client, _ = door.accept()
            except OSError:  # nobody waits any more, or the one who did has gone
                return
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task: asyncio.Task[object] = self._loop.create_task(
                self._loop.connect_accepted_socket(self._protocol, client)
            )
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    def _protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol


def http_server(app: Any, config: Config, hot: HotRoutes, times: RequestTimes) -> HttpServer:
    return HttpServer(
        uvicorn.Config(
            app,
            http=partial(  # type: ignore[arg-type]
                BoundedHttp,
                stall_s=config.write_stall_seconds,
                connections_max=connections_that_fit(config),
                hot=hot,
                times=times,
            ),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=int(config.drain_seconds),
        )
    )


def connections_that_fit(config: Config) -> int:
    """As many as the setting says, if there are so many files and some to spare."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = files - SPARE_FILES if files != resource.RLIM_INFINITY else config.connections_max
    return max(CONNECTIONS_MIN, min(config.connections_max, room))


def listen(config: Config) -> socket.socket:
    """Take the port before anything else is opened, so that a busy port is reported at once and nothing was touched."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise StartupError(f"cannot listen on {config.host}:{config.port}: {error.strerror or error}") from None
    return listener


class HeadTooLarge(ValueError):
    """Raised inside a parser callback, which is the way to stop the parser."""


class BoundedHttp(HttpToolsProtocol):
    """One connection. A timer runs only while a request has begun and not fully arrived: whole requests cost none."""

    _head_bytes = 0
    _message_open = False
    _head_open = False
    _late: asyncio.TimerHandle | None = None
    _refusal = 400
    _stalled: asyncio.TimerHandle | None = None

    def __init__(
        self, *args: Any, stall_s: float, connections_max: int, hot: HotRoutes, times: RequestTimes, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._stall_s = stall_s
        self._connections_max = connections_max
        self._hot = hot
        self._times = times

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._connections_max:
            self._refuse(503)
            return
        self._late = self.loop.call_later(REQUEST_SECONDS_MAX, self._refuse, 408)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        # Not closed but aborted: closing would wait for the client to read what is in the buffer.
        self._stalled = self.loop.call_later(self._stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_open:
            self._head_bytes += len(data)
            if self._head_bytes > HEADER_BYTES_MAX:
                self._refuse(431)
                return
        if not self._message_open:
            self._stop_timer()
        elif self._late is None:
            self._late = self.loop.call_later(REQUEST_SECONDS_MAX, self._refuse, 408)

    def on_message_begin(self) -> None:
        self._message_open = self._head_open = True
        self._head_bytes = 0
        super().on_message_begin()
        scope: Any = self.scope
        scope["extensions"] = {CONNECTION: self}

    def on_headers_complete(self) -> None:
        self._head_open = False
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEADER_BYTES_MAX:
            self._refusal = 431
            raise HeadTooLarge
        method, (path, _, query) = self.parser.get_method(), self.url.partition(b"?")
        found = self._hot.find(method, path)
        if found is None or self.expect_100_continue or self.parser.should_upgrade():
            super().on_headers_complete()
            return
        route, params = found
        scope: Any = self.scope
        scope.update(
            method=method.decode(),
            path=path.decode(),
            query_string=query,
            path_template=route.template,
            path_params=params,
        )
        keep_alive = self.parser.should_keep_alive() and self.parser.get_http_version() != "1.0"
        self.cycle = HotCycle(self, self._hot, route, self._times, keep_alive=keep_alive)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        cycle: Any = self.cycle
        if not isinstance(cycle, HotCycle):
            super().on_body(body)
        elif cycle.fits():
            cycle.body += body
            if not cycle.fits():
                self._begin(cycle)  # to be told so; the rest of it is read and forgotten

    def on_message_complete(self) -> None:
        self._message_open = False
        cycle: Any = self.cycle
        if not isinstance(cycle, HotCycle):
            super().on_message_complete()
        elif cycle.fits():
            cycle.more_body = False
            self._begin(cycle)

    def _begin(self, cycle: Any) -> None:
        """As uvicorn does when it has a head; a request of the rush begins when it is whole."""
        if cycle.may_begin():
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def rest(self, seconds: float) -> None:
        """Read nothing for a while from a client that was told to come back later: one that does not heed it must not
        take the time of those who are being served."""
        self.flow.pause_reading()
        self.loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def write_chunk(self, data: bytes) -> bool:
        """A piece of an answer that is being sent in pieces, past the application's messages. False: the client does
        not keep up, or has gone."""
        if self.flow.write_paused or self.transport.is_closing():
            return False
        self.transport.write(b"%x\r\n%s\r\n" % (len(data), data))
        return True

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal)

    def _refuse(self, status: int) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        reason, code, detail = _REFUSALS[status]
        body = problem_body(status, code, detail)
        later = "retry-after: 1\r\n" if status == 503 else ""
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(
                f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/problem+json\r\n"
                f"content-length: {len(body)}\r\n{later}connection: close\r\n\r\n".encode()
                + body
            )
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
