"""The keys of coordinators and groups. A coordinator slot's keys share a hash tag, so that every write of a group can
compare the slot's epoch in the same script, on a cluster too.

    P:{c<slot>}:lease        hash    node, run (random word of that process), epoch, expires (ms, store's clock)
    P:{c<slot>}:groups       set     names of the groups of this slot that have state or offsets
    P:{c<slot>}:group:<name> hash    generation, protocol_type, protocol, leader, changed_ms, members (JSON list)
    P:{c<slot>}:off:<name>   hash    `<topic>:<partition>` -> offset and what belongs to it, see `store/offsets`

The epoch moves whenever another process takes the slot; a write that carries an older one is refused.
"""

from typing import NamedTuple
from zlib import crc32

SLOTS = 32


def slot_of(name: str) -> int:
    """The coordinator slot of a group or a transactional id. Part of the stored layout: never change it."""
    return crc32(name.encode()) % SLOTS


class GroupKeys(NamedTuple):
    lease: str
    groups: str
    group: str
    offsets: str
    pending: str  # offsets of open transactions; see `txn_keys`


class CoordinatorKeys:
    def __init__(self, keyspace: str) -> None:
        self._keyspace = keyspace

    def lease(self, slot: int) -> str:
        return f"{self._stem(slot)}lease"

    def groups(self, slot: int) -> str:
        return f"{self._stem(slot)}groups"

    def group(self, name: str) -> GroupKeys:
        stem = self._stem(slot_of(name))
        own = (f"{stem}{part}:{name}" for part in ("group", "off", "pend"))
        return GroupKeys(stem + "lease", stem + "groups", *own)

    def _stem(self, slot: int) -> str:
        return f"{self._keyspace}:{{c{slot}}}:"
