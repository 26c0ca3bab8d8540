"""Which topics a consumer subscribed to, read from the metadata it joined with.

    int16 version, array of topic names (int32 count, each int16 size and bytes), then things we do not need

The bytes come from the client and are otherwise passed on unread.
"""

import struct
from collections.abc import Iterable

TOPICS_MAX = 100_000


def subscribed_topics(metadata: Iterable[bytes]) -> set[str] | None:
    """The topics of all these members together, or None if one of them is not a consumer's subscription."""
    topics: set[str] = set()
    for one in metadata:
        try:
            topics.update(_topics(one))
        except (struct.error, UnicodeDecodeError, ValueError):
            return None
    return topics


def _topics(metadata: bytes) -> list[str]:
    _, count = struct.unpack_from(">hi", metadata)
    if not 0 <= count <= TOPICS_MAX:
        raise ValueError(f"{count} topics")
    at, names = 6, []
    for _ in range(count):
        [size] = struct.unpack_from(">h", metadata, at)
        names.append(metadata[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return names
