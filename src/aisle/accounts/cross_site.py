"""Did another site make the browser send this? Asked of every request that may change something.

Authorization header   no browser adds it by itself: nothing to ask
POST, PUT, PATCH       only as JSON, which no form of another site can send
Sec-Fetch-Site         same-origin or none (typed by the user); a browser sets it, a page cannot
Origin                 otherwise its host must be ours
neither of the two     refused if a session came along; a program without one may go on
"""

from collections.abc import Iterable
from typing import NamedTuple

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
COOKIE = b"__Host-aisle"

Headers = Iterable[tuple[bytes, bytes]]


class Credentials(NamedTuple):
    """What a request brings along. `authorization` wins: with one, the cookie is not looked at."""

    authorization: bytes | None
    cookie: bytes | None


def read_credentials(headers: Headers) -> Credentials:
    authorization = cookie = None
    for name, value in headers:
        if name == b"cookie" and COOKIE in value:
            cookie = cookie or _session_cookie(value)
        elif name == b"authorization":
            authorization = value
    return Credentials(authorization, cookie)


def is_cross_site(headers: Headers, credentials: Credentials) -> bool:
    """True if this unsafe request was, or may have been, made by a page of another site."""
    if credentials.authorization is not None:
        return False
    found = dict(headers)
    fetch_site = found.get(b"sec-fetch-site")
    if fetch_site is not None:
        return fetch_site not in (b"same-origin", b"none")
    origin = found.get(b"origin")
    if origin is not None:
        return origin.partition(b"://")[2].lower() != found.get(b"host", b"").lower() or b"://" not in origin
    return credentials.cookie is not None


def is_json(headers: Headers) -> bool:
    kind = dict(headers).get(b"content-type", b"").partition(b";")[0].strip().lower()
    return kind == b"application/json"


def _session_cookie(header: bytes) -> bytes | None:
    for part in header.split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == COOKIE:
            return value
    return None
