"""A visitor with a browser's manners: sends Origin and JSON, keeps the session cookie, shows what it was given.

httpx's own cookie jar keeps `Secure` cookies away from http://, which a browser allows on 127.0.0.1; so the cookie is
handled here, in the open.
"""

import base64
import hashlib
import itertools
import os
from types import TracebackType
from typing import Any, Self

import httpx
import redis

from aisle.config import Config
from tests.conftest import Servers

GOOD_PASSWORD = "correct horse battery"
COOKIE = "__Host-aisle"

# Everybody in these tests has the same network address.
ADDRESS_LIMITS_OFF = {
    "logins_per_address": 1_000_000,
    "registrations_per_address": 1_000_000,
    "logins_per_email": 1_000_000,
}

_numbers = itertools.count()


def visiting_settings(servers: Servers, database_url: str, prefix: str) -> Config:
    """For an Aisle that a whole module of tests visits."""
    return Config(
        database_url=database_url,
        store_url=servers.store_url,
        kafka=servers.kafka,
        store_prefix=prefix,
        **ADDRESS_LIMITS_OFF,
    )


def new_email() -> str:
    return f"someone{next(_numbers)}.{os.urandom(4).hex()}@example.com"


class Visitor:
    def __init__(self, address: str) -> None:
        self.cookie = ""
        self._client = httpx.Client(base_url=f"{address}/api/v1", timeout=60)
        self._origin = address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def register(self, email: str, *, role: str = "buyer", password: str = GOOD_PASSWORD) -> httpx.Response:
        return self.post("/users", {"email": email, "password": password, "role": role})

    def log_in(self, email: str, *, password: str = GOOD_PASSWORD, cookie: str = "") -> httpx.Response:
        answer = self.post("/sessions", {"email": email, "password": password}, cookie=cookie)
        for header in answer.headers.get_list("set-cookie"):
            self.cookie = header.partition(";")[0].partition("=")[2].strip('"')
        return answer

    def post(self, path: str, body: Any, *, cookie: str = "") -> httpx.Response:
        return self.send("POST", path, json=body, cookie=cookie)

    def get(self, path: str, *, cookie: str = "") -> httpx.Response:
        return self.send("GET", path, cookie=cookie)

    def delete(self, path: str, *, cookie: str = "") -> httpx.Response:
        return self.send("DELETE", path, cookie=cookie)

    def send(self, method: str, path: str, *, cookie: str = "", headers: Any = None, **more: Any) -> httpx.Response:
        cookie = cookie or self.cookie
        own = {"origin": self._origin, **({"cookie": f"{COOKIE}={cookie}"} if cookie else {})}
        return self._client.request(method, path, headers={**own, **(headers or {})}, **more)

    def session_digest(self, cookie: str = "") -> str:
        reference = base64.urlsafe_b64decode((cookie or self.cookie).split(".")[2])[:16]
        return hashlib.sha256(reference).hexdigest()


def keys_in_store(config: Config, pattern: str) -> list[tuple[bytes, int]]:
    """Keys of this installation that match, with their time to live in ms."""
    with redis.Redis.from_url(config.store_url) as store:
        names = sorted(store.scan_iter(match=f"{config.store_prefix}{pattern}", count=10_000))
        return [(name, store.pttl(name)) for name in names]
