"""Groups in the store: loaded when a coordinator slot is taken, written when a rebalance has ended.

Every write carries the epoch of the slot's lease; FENCED means that another broker coordinates the group now, and
that nothing was written.
"""

from enum import Enum

import msgspec
import structlog

import respline
from penstock.group_state import Group, MemberSnapshot, Snapshot, restored
from penstock.store.group_keys import CoordinatorKeys
from penstock.store.scripts import Argument, Call, Scripts, Store

log = structlog.get_logger("penstock.groups")
CHUNK = 500
MEMBERS = msgspec.json.Decoder(tuple[MemberSnapshot, ...])
FIELDS = ("generation", "protocol_type", "protocol", "leader", "changed_ms", "members")


class Written(Enum):
    DONE = 1
    FENCED = 0
    RACED = -1  # the store has something newer than the caller saw


class GroupStore:
    def __init__(self, store: Store, scripts: Scripts, keys: CoordinatorKeys) -> None:
        self._store = store
        self._scripts = scripts
        self._keys = keys

    async def load(self, slot: int, now: int) -> dict[str, Group]:
        """Every group of a slot. `now` is the monotonic time from which members have one session to show up."""
        names = sorted(name.decode() for name in await self._store.call("SMEMBERS", self._keys.groups(slot)))
        found: dict[str, Group] = {}
        for at in range(0, len(names), CHUNK):
            chunk = names[at : at + CHUNK]
            replies = await self._store.call_many([("HMGET", self._keys.group(name).group, *FIELDS) for name in chunk])
            for name, reply in zip(chunk, replies, strict=True):
                if isinstance(reply, respline.ServerError):
                    raise reply
                found[name] = _group(name, reply, now)
        return found

    async def write(self, name: str, snapshot: Snapshot, epoch: int, changed_ms: int) -> Written:
        keys = self._keys.group(name)
        fields: dict[str, Argument] = {
            "protocol_type": snapshot.protocol_type or "",
            "protocol": snapshot.protocol or "",
            "leader": snapshot.leader or "",
            "changed_ms": changed_ms,
            "members": msgspec.json.encode(snapshot.members),
        }
        pairs = [part for pair in fields.items() for part in pair]
        call = Call("group_write", keys[:3], (epoch, name, snapshot.generation, *pairs))
        return Written(await self._scripts.run(call))

    async def delete(self, group: Group, epoch: int, *, only_without_offsets: bool = False) -> Written:
        args = (epoch, group.name, group.generation, 0 if only_without_offsets else -1)
        return Written(await self._scripts.run(Call("group_delete", self._keys.group(group.name), args)))


def _group(name: str, fields: list[bytes | None], now: int) -> Group:
    if fields[0] is None:  # known by its offsets alone
        return Group(name, stored=True)
    generation, protocol_type, protocol, leader, changed_ms, members = (field or b"" for field in fields)
    try:
        snapshot = Snapshot(
            int(generation),
            protocol_type.decode() or None,
            protocol.decode() or None,
            leader.decode() or None,
            MEMBERS.decode(members),
        )
        return restored(name, snapshot, int(changed_ms), now)
    except ValueError as error:  # one damaged record must not keep the broker from its other groups
        log.error("a stored group cannot be read, its members have to join again", group=name, error=str(error))
        return Group(name, generation=int(generation) if generation.isdigit() else 0, stored=True)
