"""Committed offsets of the groups we coordinate: commit, read, delete, and forget those of groups long empty.

Called by `api/offsets` and the background sweep. A commit is checked against the group's members in memory and fenced
by the coordinator's epoch in the store, so neither a member of an old generation nor an old coordinator can move one.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from kio.schema.errors import ErrorCode

from penstock.group_members import Claim, commit_refusal
from penstock.group_state import Group, State
from penstock.group_subscription import subscribed_topics
from penstock.groups import Groups, Held
from penstock.store.offsets import Offset, OffsetStore, Position

CHUNK = 100


class Offsets:
    def __init__(self, groups: Groups, store: OffsetStore) -> None:
        self._groups = groups
        self._store = store

    async def commit(self, name: str, claim: Claim, offsets: dict[Position, Offset]) -> ErrorCode:
        held = await self._groups.coordinated(name)
        if isinstance(held, ErrorCode):
            return held
        group = held.groups.get(name)
        if group:
            if code := commit_refusal(group, claim, self._groups.clock_ms()):
                return code
        elif claim.generation >= 0:
            return ErrorCode.illegal_generation
        if not offsets:
            return ErrorCode.none
        if not await self._store.commit(name, offsets, held.epoch):
            self._groups.lost(held)
            return ErrorCode.not_coordinator
        self._groups.committed(held, name)
        return ErrorCode.none

    async def fetch(
        self, asked: Sequence[tuple[str, Sequence[Position] | None]]
    ) -> list[ErrorCode | dict[Position, Offset]]:
        """What each group has committed for these partitions, or for all (None); one round trip for each kind."""
        found: list[ErrorCode | dict[Position, Offset]] = []
        for name, _ in asked:
            held = await self._groups.coordinated(name)
            found.append(held if isinstance(held, ErrorCode) else {})
        named = [(at, name, wanted) for at, (name, wanted) in enumerate(asked) if found[at] == {} and wanted]
        for (at, _, wanted), row in zip(
            named, await self._store.fetch([(name, wanted) for _, name, wanted in named]), strict=True
        ):
            found[at] = {position: offset for position, offset in zip(wanted, row, strict=True) if offset}
        whole = [(at, name) for at, (name, wanted) in enumerate(asked) if found[at] == {} and wanted is None]
        for (at, _), everything in zip(whole, await self._store.all_of([name for _, name in whole]), strict=True):
            found[at] = everything
        return found

    async def delete(self, name: str, positions: Sequence[Position]) -> ErrorCode | list[ErrorCode]:
        """One code for the whole request, or one for each partition."""
        held = await self._groups.coordinated(name)
        if isinstance(held, ErrorCode):
            return held
        group = held.groups.get(name)
        if group is None:
            return ErrorCode.group_id_not_found
        if group.members and group.protocol_type != "consumer":
            return ErrorCode.non_empty_group
        in_use = subscribed_topics(m.metadata(group.protocol) for m in group.members.values())
        if in_use is None:  # a subscription we cannot read may name any topic
            return ErrorCode.non_empty_group
        free = [position for position in positions if position.topic not in in_use]
        if free and not await self._store.delete(name, free, held.epoch):
            self._groups.lost(held)
            return ErrorCode.not_coordinator
        return [ErrorCode.group_subscribed_to_topic if p.topic in in_use else ErrorCode.none for p in positions]

    async def sweep(self, oldest_ms: int, topic_ids: Iterable[str]) -> None:
        """Forget offsets of deleted topics, those of empty groups older than `oldest_ms`, and groups left with none."""
        known = set(topic_ids)
        for held in self._groups.in_memory():
            empty = iter([group for group in held.groups.values() if group.state is State.EMPTY])
            while chunk := list(islice(empty, CHUNK)):
                rows = await self._store.all_of([group.name for group in chunk])
                for group, offsets in zip(chunk, rows, strict=True):
                    await self._sweep_one(held, group, offsets, oldest_ms, known)

    async def _sweep_one(
        self, held: Held, group: Group, offsets: dict[Position, Offset], oldest_ms: int, known: set[str]
    ) -> None:
        idle = group.state is State.EMPTY and not group.pending
        over = {
            position: offset
            for position, offset in offsets.items()
            if offset.topic_id not in known or (idle and max(offset.commit_ms, group.changed_ms) < oldest_ms)
        }
        if over and not await self._store.delete_unchanged(group.name, over, held.epoch):
            self._groups.lost(held)
            return
        if idle and len(over) == len(offsets) and group.changed_ms < oldest_ms:
            await self._groups.remove(held, group, only_without_offsets=True)
