"""The settings that every door of respline takes, with their defaults, and the counters of a line."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

_GREETING_MAX = 5


class Settings(TypedDict, total=False):
    """The keyword form of Options, for type checkers."""

    name: str
    connect_timeout: float
    timeout: float | None
    in_flight_max: int
    health_check_interval: float | None
    protocol: int
    keepalive: bool
    outgoing_max_bytes: int
    reply_max_bytes: int
    ssl_context: ssl.SSLContext | None
    on_push: Callable[[list[Any]], None] | None


@dataclass(frozen=True, slots=True)
class Options:
    name: str = ""  # shown by CLIENT LIST
    connect_timeout: float = 5.0  # for name look-up, TCP, TLS and greeting together
    timeout: float | None = (
        5.0  # age of the oldest unanswered command at which the connection is given up; None: wait for ever
    )
    in_flight_max: int = 10_000  # commands accepted and not yet answered
    health_check_interval: float | None = 30.0  # silence after which a PING is sent
    protocol: int = 2  # RESP version; 3 falls back to 2 where the server does not know HELLO
    keepalive: bool = True  # TCP keep-alive probes, so that a peer that vanished is noticed
    outgoing_max_bytes: int = 64 * 1024 * 1024  # waiting to be written while the server does not read
    reply_max_bytes: int = 512 * 1024 * 1024  # of one unfinished reply
    ssl_context: ssl.SSLContext | None = None  # instead of the one made from the URL, for TLS addresses
    on_push: Callable[[list[Any]], None] | None = None  # RESP3 pushes; without it they are dropped and counted

    def __post_init__(self) -> None:
        if self.protocol not in (2, 3):
            raise ValueError(f"protocol must be 2 or 3, not {self.protocol!r}")
        if self.in_flight_max < _GREETING_MAX:
            raise ValueError(f"in_flight_max must be at least {_GREETING_MAX}, the length of a greeting")
        for field in ("connect_timeout", "outgoing_max_bytes", "reply_max_bytes"):
            if getattr(self, field) <= 0:
                raise ValueError(f"{field} must be positive")
        for field in ("timeout", "health_check_interval"):
            if getattr(self, field) is not None and getattr(self, field) <= 0:
                raise ValueError(f"{field} must be positive, or None for never")


@dataclass(slots=True)
class Counters:
    """Totals since the line was opened, over all its connections."""

    commands: int = 0
    writes: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    reconnects: int = 0
    unknown: int = 0
    not_sent: int = 0
    pushes_dropped: int = 0
