"""A request of the rush from the parser to the socket: whole when it begins, answered with one write.

uvicorn's own cycle serves any ASGI application: an event, two messages, each header checked by two regular expressions.
This one knows that its body is here, that its answer is whole, and that the headers are ours. uvicorn's connection goes
on to do everything else: parsing, limits, keep-alive, pipelining, shutdown.
"""

import time
from typing import Any, Protocol

import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from aisle.envelope import SECURITY_HEADERS, RequestTimes, request_id_of
from aisle.hot_route import Answered, HotRoute, HotRoutes, problem_of
from aisle.problems import MEDIA_TYPE

# As long as the Retry-After of a refusal says.
REST_SECONDS = 1.0

_SECURITY = b"".join(b"%s: %s\r\n" % pair for pair in SECURITY_HEADERS.items())
_JSON = b"content-type: application/json\r\n" + _SECURITY
_PROBLEM = b"content-type: %s\r\n" % MEDIA_TYPE.encode() + _SECURITY


class Connection(Protocol):
    """uvicorn's, with what ours adds to it (`http_server.py`)."""

    scope: Any
    cycle: Any
    flow: Any
    transport: Any

    def on_response_complete(self) -> None: ...
    def rest(self, seconds: float) -> None: ...


class _NobodyWaits:
    """uvicorn rings when more of a body has come; a request that begins when it is whole has nobody to wake."""

    def set(self) -> None:
        return


class HotCycle:
    """Has the names that uvicorn's connection looks for in the request it is at."""

    __slots__ = (
        "_previous",
        "_protocol",
        "_route",
        "_routes",
        "_scope",
        "_times",
        "body",
        "disconnected",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
    )

    message_event = _NobodyWaits()

    def __init__(
        self, protocol: "Connection", routes: HotRoutes, route: HotRoute, times: RequestTimes, *, keep_alive: bool
    ) -> None:
        self._protocol = protocol
        self._routes = routes
        self._route = route
        self._scope: Any = protocol.scope
        self._times = times
        self._previous: Any = protocol.cycle
        self.keep_alive = keep_alive
        self.body = b""
        self.more_body = True
        self.disconnected = self.response_started = self.response_complete = False

    def fits(self) -> bool:
        return len(self.body) <= self._route.body_bytes_max

    def may_begin(self) -> bool:
        """Answers leave in the order of their requests."""
        previous, self._previous = self._previous, None
        return previous is None or previous.response_complete

    async def run_asgi(self, _app: Any) -> None:
        """uvicorn's name for "answer this"."""
        started = time.perf_counter()
        request_id = request_id_of(self._scope)
        structlog.contextvars.bind_contextvars(request_id=request_id.decode())
        try:
            answered = await self._routes.answer(self._route, self._scope, self.body)
        except Exception as error:
            # Our mistake: the caller hears of it, and the connection ends.
            self.keep_alive = False
            await self._tell(problem_of(error, self._scope), request_id, started)
            raise
        await self._tell(answered, request_id, started)

    async def _tell(self, answered: Answered, request_id: bytes, started: float) -> None:
        flow = self._protocol.flow
        if flow.write_paused and not self.disconnected:
            await flow.drain()
        self._times.observe(self._scope["method"], self._route.template, answered.status, started)
        if not self._protocol.transport.is_closing():
            self._write(answered, request_id)

    def _write(self, answered: Answered, request_id: bytes) -> None:
        parts = [STATUS_LINE[answered.status], _PROBLEM if answered.problem else _JSON]
        parts += [f"{name}: {value}\r\n".encode() for name, value in answered.headers.items()]
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"content-length: %d\r\nx-request-id: %s\r\n\r\n" % (len(answered.body), request_id))
        parts.append(answered.body)
        self.response_started = self.response_complete = True
        self._protocol.transport.write(b"".join(parts))
        if not self.keep_alive:
            self._protocol.transport.close()
        self._protocol.on_response_complete()
        if answered.overloaded and self.keep_alive:
            self._protocol.rest(REST_SECONDS)
