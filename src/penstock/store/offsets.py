"""Committed offsets: one hash a group, one field a partition.

    `<topic>:<partition>` -> "<offset> <leader epoch> <commit ms> <topic id> <metadata>"

The topic id tells an offset of this topic from one of an earlier topic of the same name. Writes carry the epoch of the
coordinator's lease; a write that was fenced changed nothing.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import respline
from penstock.store.group_keys import CoordinatorKeys
from penstock.store.scripts import Call, Scripts, Store


class Position(NamedTuple):
    topic: str
    partition: int


class Offset(NamedTuple):
    offset: int
    leader_epoch: int
    commit_ms: int
    topic_id: str
    metadata: str


class OffsetStore:
    def __init__(self, store: Store, scripts: Scripts, keys: CoordinatorKeys) -> None:
        self._store = store
        self._scripts = scripts
        self._keys = keys

    async def commit(self, group: str, offsets: dict[Position, Offset], epoch: int) -> bool:
        """False if another broker coordinates the group now."""
        keys = self._keys.group(group)
        pairs = [text for position, offset in offsets.items() for text in (offset_field(position), offset_text(offset))]
        call = Call("offset_commit", (keys.lease, keys.groups, keys.offsets), (epoch, group, *pairs))
        return bool(await self._scripts.run(call) == 1)

    async def fetch(self, asked: Sequence[tuple[str, Sequence[Position]]]) -> list[list[Offset | None]]:
        """The offsets of some partitions of some groups, in one round trip."""
        wanted = [at for at, (_, positions) in enumerate(asked) if positions]
        commands = [
            ("HMGET", self._keys.group(asked[at][0]).offsets, *map(offset_field, asked[at][1])) for at in wanted
        ]
        found: list[list[Offset | None]] = [[] for _ in asked]
        for at, reply in zip(wanted, await self._store.call_many(commands), strict=True):
            if isinstance(reply, respline.ServerError):
                raise reply
            found[at] = [_offset(value) for value in reply]
        return found

    async def all_of(self, groups: Sequence[str]) -> list[dict[Position, Offset]]:
        replies = await self._store.call_many([("HGETALL", self._keys.group(group).offsets) for group in groups])
        found = []
        for reply in replies:
            if isinstance(reply, respline.ServerError):
                raise reply
            pairs: Iterable[tuple[bytes, bytes]]
            pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
            parsed = ((field, _offset(value)) for field, value in pairs)
            found.append({offset_position(field): offset for field, offset in parsed if offset})
        return found

    async def delete(self, group: str, positions: Iterable[Position], epoch: int) -> bool:
        """False if another broker coordinates the group now."""
        return await self._delete(
            group, [text for position in positions for text in (offset_field(position), "")], epoch
        )

    async def delete_unchanged(self, group: str, seen: dict[Position, Offset], epoch: int) -> bool:
        """Delete those that are still as they were seen; a newer commit stays."""
        return await self._delete(
            group, [text for p, o in seen.items() for text in (offset_field(p), offset_text(o))], epoch
        )

    async def _delete(self, group: str, pairs: Sequence[str], epoch: int) -> bool:
        keys = self._keys.group(group)
        reply = await self._scripts.run(Call("offset_delete", (keys.lease, keys.offsets), (epoch, *pairs)))
        return bool(reply != -1)


def offset_field(position: Position) -> str:
    return f"{position.topic}:{position.partition}"  # a topic's name has no colon


def offset_text(offset: Offset) -> str:
    return f"{offset.offset} {offset.leader_epoch} {offset.commit_ms} {offset.topic_id} {offset.metadata}"


def offset_position(field: bytes) -> Position:
    topic, _, partition = field.decode().rpartition(":")
    return Position(topic, int(partition))


def _offset(value: bytes | None) -> Offset | None:
    """None for what is not there, and for what somebody else wrote there in a form of their own."""
    try:
        offset, leader_epoch, commit_ms, topic_id, metadata = (value or b"").decode().split(" ", 4)
        return Offset(int(offset), int(leader_epoch), int(commit_ms), topic_id, metadata)
    except ValueError:
        return None
