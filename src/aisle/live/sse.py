"""The bytes of server-sent events. Pure; an update is encoded once and the same bytes go to every browser.

retry: 3172                     how long a browser waits before it connects again
                                (an empty line ends each)
id: 42731904417                 what it sends back as Last-Event-ID
event: delta
data: {"place":"A-1",...}

: still here                    a comment, which keeps proxies from closing a quiet connection
"""

import random

import msgspec

HEARTBEAT = b": still here\n\n"

_encode = msgspec.json.Encoder().encode


def event(name: str, data: object, id: int | None = None) -> bytes:
    # JSON has no raw line breaks, so one data line always suffices.
    head = f"id: {id}\nevent: {name}\ndata: " if id is not None else f"event: {name}\ndata: "
    return b"%s%s\n\n" % (head.encode(), _encode(data))


def reset(reason: str) -> bytes:
    """What follows is a snapshot that replaces everything: what lies between cannot be told."""
    return event("reset", {"reason": reason})


def retry(low_ms: int, high_ms: int) -> bytes:
    """A different wait for each browser, so that those who lose their connection together do not return together."""
    return b"retry: %d\n\n" % random.randint(low_ms, high_ms)  # noqa: S311 - spreads load, protects nothing
