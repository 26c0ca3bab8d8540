"""All keys there are under our prefix, found with SCAN and told apart by name. Reads only.

For operators' tools, which may take their time: verification looks here for orphans, inspection counts and weighs. Keys
that are not named as ours (Penstock's, a neighbour's) are nobody's business here; they are counted as `other`.
"""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from aisle.errors import StoreScriptFailed
from aisle.reservation.keys import BadName, Place
from aisle.store import Command, Store
from respline import ServerError

SCAN_COUNT = 1000
COMMANDS_PER_ROUND_TRIP = 500

#   name                type      what stands behind the name
NAMES = {
    "seats_bf":        ("string", "place"),
    "section_config":  ("hash",   "place"),
    "section_stats":   ("hash",   "place"),
    "row_avail":       ("hash",   "place"),
    "seat_meta":       ("hash",   "place"),
    "holds":           ("hash",   "place"),
    "locks:exp":       ("zset",   "place or pool"),
    "lapsed":          ("zset",   "place or pool"),
    "pool":            ("hash",   "pool"),
    "pool_holds":      ("hash",   "pool"),
    "event_sections":  ("zset",   "event"),
    "hall_plan":       ("string", "claim"),
    "cart":            ("string", "buyer"),
    "holding":         ("zset",   ""),
    "generation":      ("hash",   ""),
    "operation":       ("hash",   ""),
}  # fmt: skip

OURS = re.compile(rf"({'|'.join(map(re.escape, NAMES))})(?::(.*))?", re.DOTALL)
POOL = re.compile(r"\{(\d{1,18}):([A-Za-z0-9_]{1,32})\}")


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A key named as one of ours. `event` and `place` are None where the name holds none, `fault` says what is odd."""

    raw: bytes
    name: str
    event: int | None = None
    place: Place | None = None
    pool: str = ""
    fault: str = ""

    def __str__(self) -> str:
        return self.raw.decode(errors="backslashreplace")


async def scan(store: Store) -> AsyncIterator[list[bytes]]:
    """Every key under the prefix, in portions, node by node. A key may come twice, as SCAN says."""
    for node in store.nodes:
        cursor: bytes | int = 0
        while True:
            cursor, keys = await store.call_on(node, "SCAN", cursor, "MATCH", store.prefix + "*", "COUNT", SCAN_COUNT)
            yield keys
            if int(cursor) == 0:
                break


def classify(raw: bytes, prefix: str) -> FoundKey | None:
    """Which of our keys this is; None if its name is not ours."""
    match = OURS.fullmatch(raw.decode(errors="backslashreplace").removeprefix(prefix))
    if match is None:
        return None
    name, rest = match[1], match[2]
    meant = NAMES[name][1]
    if meant in ("", "claim", "buyer"):
        return FoundKey(raw, name, fault="" if (rest is not None) == bool(meant) else "not a name of ours")
    if meant == "event":
        is_event = bool(re.fullmatch(r"[1-9]\d{0,17}", rest or ""))
        return FoundKey(raw, name, event=int(rest), fault="") if is_event else _odd(raw, name)
    pool = POOL.fullmatch(rest or "")
    if pool and "pool" in meant:
        return FoundKey(raw, name, event=int(pool[1]), pool=f"{pool[1]}:{pool[2]}")
    try:
        place = Place.parse(rest[1:-1]) if rest and rest[0] + rest[-1] == "{}" and "place" in meant else None
    except BadName:
        place = None
    return FoundKey(raw, name, place.event, place) if place else _odd(raw, name)


async def in_round_trips(store: Store, commands: Sequence[Command]) -> list[Any]:
    """Any number of commands, a bounded number a round trip; a refused one leaves its ServerError in the list."""
    replies: list[Any] = []
    for start in range(0, len(commands), COMMANDS_PER_ROUND_TRIP):
        replies += await store.call_many(commands[start : start + COMMANDS_PER_ROUND_TRIP])
    return replies


async def types_of(store: Store, keys: Sequence[bytes]) -> list[str]:
    """`none` for a key that has gone meanwhile."""
    replies = await in_round_trips(store, [("TYPE", key) for key in keys])
    for reply in replies:
        if isinstance(reply, ServerError):
            raise StoreScriptFailed("type", reply.code, str(reply))
    return [reply.decode() if isinstance(reply, bytes) else str(reply) for reply in replies]


def _odd(raw: bytes, name: str) -> FoundKey:
    return FoundKey(raw, name, fault="the rest of its name cannot be read")
