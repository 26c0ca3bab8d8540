"""What operators' commands leave behind for whoever looks later: the last comparison and the last backup.

Kept in the store, not in the database: a store that lost its notes is one that has to be compared again anyway.
"""

from datetime import datetime
from typing import TypeVar

import msgspec

from aisle.reservation.keys import operation
from aisle.store import Store

FINDINGS_KEPT = 20


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """`drift` counts the findings that stayed, by kind; `findings` are the first of them."""

    at: datetime
    seconds: float
    seats: int
    drift: dict[str, int] = {}
    findings: tuple[str, ...] = ()
    paid_without_ticket: int = 0


class BackedUp(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    where: str
    bytes: int


class Notes(msgspec.Struct, frozen=True):
    reconcile: Reconciled | None = None
    backup: BackedUp | None = None


Note = TypeVar("Note", Reconciled, BackedUp)


async def note(store: Store, name: str, what: Reconciled | BackedUp) -> None:
    await store.call("HSET", operation(store.prefix), name, msgspec.json.encode(what))


async def read_notes(store: Store) -> Notes:
    """What cannot be read counts as not there: somebody else's version wrote it."""
    flat = await store.call("HGETALL", operation(store.prefix))
    found = {name.decode(errors="replace"): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
    return Notes(_decoded(found.get("reconcile"), Reconciled), _decoded(found.get("backup"), BackedUp))


def _decoded(value: bytes | None, kind: type[Note]) -> Note | None:
    try:
        return msgspec.json.decode(value, type=kind) if value is not None else None
    except msgspec.MsgspecError:
        return None
