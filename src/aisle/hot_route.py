"""Routes of the rush answer with plain ASGI: the framework documents them, and is not on their way.

A route is declared as any other, for its place in the table of routes and in the OpenAPI document, with
`opt=hot(answer)`. `hot_front` stands before the framework, admits the request by the same table as everything else
and calls `answer`; a path it does not know to the letter, numbers aside, goes the framework's way and ends at the same
`answer`.
What is refused is refused as the framework would.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
from litestar import Litestar
from litestar.exceptions import ClientException, HTTPException, ValidationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.types import ASGIApp, Receive, Scope, Send

from aisle.errors import Problem
from aisle.problems import MEDIA_TYPE, answer_of

HotAnswer = Callable[[Any, Receive, Send], Awaitable[None]]

# The path as the table of access names it, the numbers in it, the route.
Found = tuple[str, dict[str, int], Any]

Body = TypeVar("Body")

_OPT = "hot_answer"


def hot(answer: HotAnswer) -> dict[str, Any]:
    return {_OPT: answer}


def hot_answer(scope: Scope) -> HotAnswer | None:
    found: HotAnswer | None = scope["route_handler"].opt.get(_OPT)
    return found


def hot_front(app: Litestar, admit: Callable[[Scope], Awaitable[None]]) -> ASGIApp:
    find = _finder(app)

    async def front(scope: Any, receive: Receive, send: Send) -> None:
        found = find(scope["method"], scope["path"])
        if found is None:
            return await app(scope, receive, send)
        scope["path_template"], scope["path_params"], handler = found
        scope["route_handler"] = handler
        try:
            await admit(scope)
            await handler.opt[_OPT](scope, receive, send)
        except (Problem, HTTPException) as error:
            await _refuse(send, error, scope["path"])
        except Exception as error:
            # Our mistake: the caller hears of it, and the server closes the connection.
            await _refuse(send, error, scope["path"])
            raise

    return front


def _finder(app: Litestar) -> Callable[[str, str], Found | None]:
    """Finding a path without parameters is a look into a table; whole numbers are the only parameters found here."""
    plain: dict[tuple[str, str], Found] = {}
    numbered: dict[str, list[tuple[re.Pattern[str], str, Any]]] = {}
    for route in app.routes:
        hot_ones = [handler for handler in getattr(route, "route_handlers", ()) if _OPT in handler.opt]
        for method, handler in [(method, one) for one in hot_ones for method in one.http_methods]:
            if not route.path_parameters:
                plain[method, route.path_format] = (route.path_format, {}, handler)
            elif all(parameter.type is int for parameter in route.path_parameters.values()):
                pattern = re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[1-9][0-9]{0,17})", route.path_format))
                numbered.setdefault(method, []).append((pattern, route.path_format, handler))

    def find(method: str, path: str) -> Found | None:
        known = plain.get((method, path))
        if known is not None:
            return known
        for pattern, template, handler in numbered.get(method, ()):
            if match := pattern.fullmatch(path):
                return template, {name: int(number) for name, number in match.groupdict().items()}, handler
        return None

    return find


async def _refuse(send: Send, error: Exception, path: str) -> None:
    status, headers, body = answer_of(error, path)
    more = [(name.encode(), value.encode()) for name, value in headers.items()]
    await _send(send, status, MEDIA_TYPE.encode(), body, more)


async def read_json(scope: Any, receive: Receive, decoder: msgspec.json.Decoder[Body]) -> Body:
    body = await _read(scope, receive)
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


async def send_json(send: Send, status: int, body: bytes) -> None:
    await _send(send, status, b"application/json", body)


async def _send(send: Send, status: int, media_type: bytes, body: bytes, more: Sequence[Any] = ()) -> None:
    headers = [(b"content-type", media_type), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _read(scope: Any, receive: Receive) -> bytes:
    limit = scope["route_handler"].resolve_request_max_body_size()
    body: bytes = b""
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise ClientException("the client went away")
        body += message["body"]
        if limit is not None and len(body) > limit:
            raise RequestEntityTooLarge
        if not message["more_body"]:
            return body


def _unfit(message: str, key: str, source: str) -> ValidationException:
    return ValidationException(extra=[{"message": message, "key": key, "source": source}])
