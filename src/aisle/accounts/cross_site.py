"""Did another site make the browser send this? Asked of every request that may change something.

Authorization header   no browser adds it by itself: nothing to ask
POST, PUT, PATCH       only as JSON, which no form of another site can send
Sec-Fetch-Site         same-origin or none (typed by the user); a browser sets it, a page cannot
Origin                 otherwise its host must be ours
neither of the two     refused if a session came along; a program without one may go on
"""

from collections.abc import Mapping
from typing import NamedTuple

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
COOKIE = b"__Host-aisle"

# Of a header that comes twice the last counts, for every question alike: what is checked is also what is used.
Headers = Mapping[bytes, bytes]


class Credentials(NamedTuple):
    """What a request brings along. `authorization` wins: with one, the cookie is not looked at."""

    authorization: bytes | None
    cookie: bytes | None


def read_credentials(headers: Headers) -> Credentials:
    cookie = headers.get(b"cookie")
    return Credentials(headers.get(b"authorization"), _session_cookie(cookie) if cookie is not None else None)


def is_cross_site(headers: Headers, credentials: Credentials) -> bool:
    """True if this unsafe request was, or may have been, made by a page of another site."""
    if credentials.authorization is not None:
        return False
    fetch_site = headers.get(b"sec-fetch-site")
    if fetch_site is not None:
        return fetch_site not in (b"same-origin", b"none")
    origin = headers.get(b"origin")
    if origin is not None:
        _, _, host = origin.partition(b"://")
        return not host or host.lower() != headers.get(b"host", b"").lower()
    return credentials.cookie is not None


def is_json(headers: Headers) -> bool:
    kind = headers.get(b"content-type", b"")
    return kind == b"application/json" or kind.partition(b";")[0].strip().lower() == b"application/json"


def _session_cookie(header: bytes) -> bytes | None:
    for part in header.split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == COOKIE:
            return value
    return None
