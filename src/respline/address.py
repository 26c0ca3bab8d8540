"""Where a store lives and how to log in, read from a URL.

    redis://[[user]:password@]host[:port][/db]            also valkey://
    rediss://...?ssl_ca_certs=&ssl_certfile=&ssl_keyfile=  TLS; also valkeys://
    unix://[[user]:password@]/path/to.sock[?db=0]
    redis+cluster://[[user]:password@]host:port,host:port  also rediss+, valkey+, valkeys+; database 0 only

User and password are percent-decoded. The password is in no repr and in no error.
"""

import re
import ssl
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from respline.errors import BadUrl

DEFAULT_PORT = 6379
PLAIN_SCHEMES = ("redis", "valkey")
TLS_SCHEMES = ("rediss", "valkeys")
CLUSTER_SUFFIX = "+cluster"
WHOLE = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z+]*)://(?P<hosts>[^/?#]*)(?P<path>.*)", re.DOTALL)
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


@dataclass(frozen=True, slots=True)
class Address:
    host: str = ""
    port: int = 0
    path: str = ""  # of a unix socket; host and port are then empty
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_files: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.path or (f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}")


def is_cluster(url: str) -> bool:
    return url.partition("://")[0].endswith(CLUSTER_SUFFIX)


def parse_url(url: str) -> Address:
    """One address; a URL that names several hosts is refused."""
    addresses = parse_urls(url)
    if len(addresses) != 1:
        raise BadUrl("this URL names several hosts: use a +cluster scheme with open_store or open_cluster")
    return addresses[0]


def parse_urls(url: str) -> list[Address]:
    """All addresses of a URL: the hosts of a cluster, else one."""
    found = WHOLE.fullmatch(url)
    if found is None:
        raise BadUrl("the URL cannot be parsed")
    # The standard library's idea of hosts has room for one of them, and for brackets only where it begins.
    parts = urlsplit("//" + found["path"])
    scheme = found["scheme"].lower().removesuffix(CLUSTER_SUFFIX)
    options = _options(parts)
    username, password, hosts = _login(found["hosts"])
    if scheme == "unix":
        if hosts or not parts.path.strip("/"):
            raise BadUrl("a unix URL looks like unix:///path/to.sock?db=0")
        db = _db(options.pop("db", "0"))
        _refuse_leftovers(options)
        return [Address(path=unquote(parts.path), db=db, username=username, password=password)]
    if scheme not in PLAIN_SCHEMES + TLS_SCHEMES:
        raise BadUrl(
            f"unknown scheme {scheme!r}: use redis, rediss, valkey, valkeys, unix or one of them with +cluster"
        )
    tls = scheme in TLS_SCHEMES
    tls_files = tuple((name, options.pop(name)) for name in TLS_FILES if tls and name in options)
    db = _db(options.pop("db", "") or parts.path.strip("/") or "0")
    _refuse_leftovers(options)
    if db and is_cluster(url):
        raise BadUrl("a cluster has database 0 only")
    return [
        Address(host, port, "", db, username, password, tls, tls_files)
        for host, port in (host_and_port(part) for part in hosts.split(","))
    ]


def _options(parts: SplitResult) -> dict[str, str]:
    if parts.fragment:
        raise BadUrl("a '#' in the URL must be written %23")
    return dict(parse_qsl(parts.query, keep_blank_values=True))


def _login(netloc: str) -> tuple[str | None, str | None, str]:
    login, at, hosts = netloc.rpartition("@")
    if not at:
        return None, None, hosts
    username, colon, password = login.partition(":")
    if not colon:
        raise BadUrl("a login in the URL looks like user:password@ or :password@")
    return unquote(username) or None, unquote(password) or None, hosts


def _db(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise BadUrl("the database must be a number")
    return int(text)


def _refuse_leftovers(options: dict[str, str]) -> None:
    if options:
        raise BadUrl(f"unknown option in the URL: {', '.join(sorted(options))}")


def host_and_port(text: str) -> tuple[str, int]:
    """Reads `host`, `host:port`, `[v6]:port` and `v6:port`, as redirections write it; an empty host stays empty."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadUrl("the port must be a number from 1 to 65535")
    bare = host.removeprefix("[").removesuffix("]")
    if host not in (bare, f"[{bare}]") or not set("[]").isdisjoint(bare):
        raise BadUrl("a host in brackets looks like [::1]")
    return bare, int(port)


def tls_context(address: Address) -> ssl.SSLContext:
    """The system's trust store, or the files named in the URL. Certificates and host names are always checked."""
    files = dict(address.tls_files)
    try:
        context = ssl.create_default_context(cafile=files.get("ssl_ca_certs"))
        if "ssl_certfile" in files:
            context.load_cert_chain(files["ssl_certfile"], files.get("ssl_keyfile"))
    except (OSError, ssl.SSLError) as error:
        raise BadUrl(f"the TLS files named in the URL cannot be used: {error}") from error
    return context
