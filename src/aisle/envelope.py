"""What every HTTP answer carries, whatever route made it: a request id, the security headers, a measured duration.

Plain ASGI around the whole application, so that errors of the framework itself are covered as well. A route that needs
another content security policy (a page with scripts) sets its own header, and it is kept.
"""

import itertools
import os
import re
import time
from collections.abc import Callable
from typing import Any

import structlog
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from aisle.limits import REQUEST_ID_CHARS_MAX
from aisle.metrics import Metrics

SECURITY_HEADERS = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    b"strict-transport-security": b"max-age=31536000; includeSubDomains",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}

_ALL_SECURITY_HEADERS = list(SECURITY_HEADERS.items())

# Unlike a booking's, a request's id need not be hard to guess, only to occur once.
_PROCESS = os.urandom(8).hex().encode()
_numbers = itertools.count()

_ACCEPTED_ID = re.compile(rb"[A-Za-z0-9_-]{8,%d}" % REQUEST_ID_CHARS_MAX)


class RequestTimes:
    """How long requests took, by method, route and status."""

    def __init__(self, metrics: Metrics) -> None:
        self._seconds = metrics.http_request_seconds
        self._observers: dict[tuple[str, str, int], Callable[[float], None]] = {}

    def observe(self, method: str, template: str, status: int, started: float) -> None:
        labels = (method, template, status)
        observe = self._observers.get(labels)
        if observe is None:
            # Looking a label up costs more than measuring with it, so each is looked up once.
            observe = self._observers[labels] = self._seconds.labels(*labels).observe
        observe(time.perf_counter() - started)


def envelope(app: ASGIApp, times: RequestTimes) -> ASGIApp:
    """Wrap the application. Web sockets and lifespan are switched off in the server, so every scope is HTTP."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        request_id = request_id_of(scope)
        structlog.contextvars.bind_contextvars(request_id=request_id.decode())
        started = time.perf_counter()
        status = 0

        async def send_enveloped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(message, request_id)
            await send(message)

        try:
            await app(scope, receive, send_enveloped)
        finally:
            structlog.contextvars.unbind_contextvars("request_id")
            times.observe(str(scope.get("method")), str(scope.get("path_template", "unmatched")), status, started)

    return answer


def request_id_of(scope: Any) -> bytes:
    # A caller's id is taken over only if it cannot carry anything but an id into our logs.
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ACCEPTED_ID.fullmatch(value):
            return bytes(value)
    return b"%s%016x" % (_PROCESS, next(_numbers))


def _add_headers(message: Any, request_id: bytes) -> None:
    headers = list(message.get("headers", ()))
    present = {name for name, _ in headers}
    if present.isdisjoint(SECURITY_HEADERS):
        headers += _ALL_SECURITY_HEADERS
    else:
        headers += [pair for pair in _ALL_SECURITY_HEADERS if pair[0] not in present]
    headers.append((b"x-request-id", request_id))
    message["headers"] = headers
