"""Routes of the rush answer without the framework: it documents them, and is not on their way.

A route is declared as any other, for its place in the table of routes and in the OpenAPI document, with
`opt=hot(answer)`, where `answer` takes the scope and the body and gives a status and JSON. The connection
(`hot_http.py`) finds it by its path, admits the request by the same table as everything else and calls it. A path that
is not known to the letter, parameters aside, goes the framework's way and ends at the same `answer`.
What is refused is refused as the framework would.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from litestar import Litestar
from litestar.exceptions import ClientException, HTTPException, ValidationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.types import ASGIApp, Receive, Scope, Send

from aisle.db import is_away
from aisle.errors import Overloaded, Problem
from aisle.problems import answer_of

HotAnswer = Callable[[Any, bytes], Awaitable[tuple[int, bytes]]]

Body = TypeVar("Body")

_OPT, _FULL = "hot_answer", "hot_is_full"

# What a path may hold, how it is written, and what makes it of its letters.
_PARAMETERS: Mapping[Any, tuple[bytes, Callable[[bytes], Any]]] = {
    int: (rb"[1-9][0-9]{0,17}", int),
    UUID: (rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", lambda text: UUID(text.decode())),
}


class HotRoute(NamedTuple):
    template: str  # the path as the table of access names it
    answer: HotAnswer
    body_bytes_max: int
    is_full: Callable[[], bool] | None = None


class Answered(NamedTuple):
    status: int
    body: bytes
    problem: bool = False
    headers: Mapping[str, str] = {}
    overloaded: bool = False


def hot(answer: HotAnswer, is_full: Callable[[], bool] | None = None) -> dict[str, Any]:
    """While `is_full`, everybody is refused before it is even looked up who they are."""
    return {_OPT: answer, _FULL: is_full}


def hot_answer(scope: Scope) -> ASGIApp | None:
    """For a request that came through the framework all the same: in other letters, or with an `Expect`."""
    answer: HotAnswer | None = scope["route_handler"].opt.get(_OPT)
    if answer is None:
        return None

    async def through_framework(scope: Any, receive: Receive, send: Send) -> None:
        body = await _read(receive, scope["route_handler"].resolve_request_max_body_size())
        status, data = await answer(scope, body)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data, "more_body": False})

    return through_framework


class HotRoutes:
    """Finds a route by its path: without parameters that is a look into a table."""

    def __init__(self, app: Litestar, admit: Callable[[Scope], Awaitable[None]]) -> None:
        self._admit = admit
        self._plain: dict[tuple[bytes, bytes], HotRoute] = {}
        self._patterns: dict[bytes, list[tuple[re.Pattern[bytes], dict[str, Callable[[bytes], Any]], HotRoute]]] = {}
        for route in app.routes:
            for handler in getattr(route, "route_handlers", ()):
                if _OPT in handler.opt:
                    self._add(route, handler)

    def find(self, method: bytes, path: bytes) -> tuple[HotRoute, dict[str, Any]] | None:
        known = self._plain.get((method, path))
        if known is not None:
            return known, {}
        for pattern, makers, route in self._patterns.get(method, ()):
            if match := pattern.fullmatch(path):
                return route, {name: make(match[name]) for name, make in makers.items()}
        return None

    async def answer(self, route: HotRoute, scope: Any, body: bytes) -> Answered:
        """A refusal is an answer; what is raised is our mistake."""
        if route.is_full is not None and route.is_full():
            return problem_of(Overloaded(), scope)
        try:
            await self._admit(scope)
            _check_size(body, route.body_bytes_max)
            return Answered(*await route.answer(scope, body))
        except Exception as error:
            if not isinstance(error, (Problem, HTTPException)) and not is_away(error):
                raise
            return problem_of(error, scope)

    def _add(self, route: Any, handler: Any) -> None:
        limit = handler.resolve_request_max_body_size()
        hot_route = HotRoute(route.path_format, handler.opt[_OPT], limit, handler.opt[_FULL])
        parameters = {name: _PARAMETERS[one.type] for name, one in route.path_parameters.items()}
        for method in handler.http_methods:
            if not parameters:
                self._plain[method.encode(), route.path_format.encode()] = hot_route
                continue
            pattern = re.sub(
                rb"{(\w+)}",
                lambda found: b"(?P<%s>%s)" % (found[1], parameters[found[1].decode()][0]),
                route.path_format.encode(),
            )
            makers = {name: make for name, (_, make) in parameters.items()}
            self._patterns.setdefault(method.encode(), []).append((re.compile(pattern), makers, hot_route))


def problem_of(error: Exception, scope: Any) -> Answered:
    status, headers, body = answer_of(error, scope["path"])
    return Answered(status, body, problem=True, headers=headers, overloaded=isinstance(error, Overloaded))


def parse_json(body: bytes, decoder: msgspec.json.Decoder[Body]) -> Body:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _unfit(str(error), "data", "body") from None
    except UnicodeDecodeError:
        raise ClientException("the body is not valid UTF-8") from None
    except RecursionError:
        raise ClientException("the body is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ClientException(f"the body is not JSON: {error}") from None


def read_header(scope: Any, name: bytes, fits: Callable[[str], object], wanted: str) -> str:
    for key, value in scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            if fits(text):
                return text
    raise _unfit(wanted, name.decode(), "header")


async def _read(receive: Receive, limit: int) -> bytes:
    body: bytes = b""
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise ClientException("the client went away")
        body += message["body"]
        _check_size(body, limit)
        if not message["more_body"]:
            return body


def _check_size(body: bytes, limit: int) -> None:
    if len(body) > limit:
        raise RequestEntityTooLarge


def _unfit(message: str, key: str, source: str) -> ValidationException:
    return ValidationException(extra=[{"message": message, "key": key, "source": source}])
