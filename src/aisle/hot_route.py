"""Routes of the rush answer with plain ASGI: the framework routes and documents them, and stays out of the rest.

A route is declared as any other, for its place in the table of routes and in the OpenAPI document, with
`opt=hot(answer)`. `accounts.access` calls `answer` once the request is admitted; the declared function never runs.
What is refused is refused with the exceptions the framework would raise, so both kinds of route answer alike.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from litestar.exceptions import ClientException, ValidationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.types import Receive, Scope, Send

HotAnswer = Callable[[Any, Receive, Send], Awaitable[None]]

Body = TypeVar("Body")

_OPT = "hot_answer"


def hot(answer: HotAnswer) -> dict[str, Any]:
    return {_OPT: answer}


def hot_answer(scope: Scope) -> HotAnswer | None:
    found: HotAnswer | None = scope["route_handler"].opt.get(_OPT)
    return found


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
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
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
