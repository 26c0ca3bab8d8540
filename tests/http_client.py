"""A lean HTTP client for crowds: keep-alive connections on asyncio streams, one request at a time on each.

httpx costs 2 ms a request, which a race of thousands would measure instead of the server. A connection that breaks
before an answer came raises ConnectionError: the outcome is unknown; the caller repeats under the same key, or looks.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httptools

ANSWER_SECONDS_MAX = 60.0


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    # What the parser calls.
    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader, self._writer, self._host = reader, writer, host

    async def request(self, method: str, path: str, body: Any = None, *, token: str = "", key: str = "") -> Answer:
        payload = b"" if body is None else json.dumps(body).encode()
        head = [f"{method} /api/v1{path} HTTP/1.1", f"host: {self._host}", f"content-length: {len(payload)}"]
        head += [f"authorization: Bearer {token}"] if token else []
        head += [f"idempotency-key: {key}"] if key else []
        head += ["content-type: application/json"] if payload else []
        self._writer.write("\r\n".join([*head, "", ""]).encode() + payload)
        answer = Answer()
        parser = httptools.HttpResponseParser(answer)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            while not answer.complete:
                data = await self._reader.read(65_536)
                if not data:
                    raise ConnectionResetError("the server went away before it had answered")
                parser.feed_data(data)
        answer.status = parser.get_status_code()
        return answer

    async def aclose(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return


@asynccontextmanager
async def connections(address: str, count: int) -> AsyncIterator[Sequence[Connection]]:
    """`count` open connections to the server at `address`."""
    url = urlsplit(address)
    opened: list[Connection] = []
    try:
        for _ in range(count):
            opened.append(Connection(*await asyncio.open_connection(url.hostname, url.port), url.netloc))
        yield opened
    finally:
        await asyncio.gather(*(connection.aclose() for connection in opened))
