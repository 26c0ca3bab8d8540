"""One person of the demonstration talking HTTP to the product, as any program would: a bearer token, JSON, patience.

The standard library's client in a thread is enough for some hundred people; a crowd for measuring is `bench/load.py`.
"""

import asyncio
import http.client
import json
import secrets
from typing import Any, NamedTuple
from urllib.parse import urlsplit

ANSWER_SECONDS_MAX = 30


class Answer(NamedTuple):
    status: int
    body: Any

    @property
    def code(self) -> str:
        return str(self.body.get("code", "")) if isinstance(self.body, dict) else ""


class Person:
    def __init__(self, address: str, token: str = "") -> None:
        self._address = urlsplit(address)
        self._token = token

    async def get(self, path: str) -> Answer:
        return await asyncio.to_thread(self._ask, "GET", path, None)

    async def post(self, path: str, body: Any) -> Answer:
        return await asyncio.to_thread(self._ask, "POST", path, body)

    async def put(self, path: str, body: Any) -> Answer:
        return await asyncio.to_thread(self._ask, "PUT", path, body)

    async def delete(self, path: str) -> Answer:
        return await asyncio.to_thread(self._ask, "DELETE", path, None)

    def _ask(self, method: str, path: str, body: Any) -> Answer:
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        if body is not None:
            headers |= {"content-type": "application/json", "idempotency-key": secrets.token_hex(12)}
        host, port = self._address.hostname or "", self._address.port
        connection = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS_MAX)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, f"/api/v1{path}", body=payload, headers=headers)
            reply = connection.getresponse()
            text = reply.read()
        finally:
            connection.close()
        return Answer(reply.status, json.loads(text) if text else None)
