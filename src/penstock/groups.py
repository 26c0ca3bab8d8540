"""The groups this broker coordinates: gives the rules of `group_members` a clock, the store and waiting requests.

Called by `api/groups`, `api/offsets` and the background beat. State lives in memory while we hold the group's
coordinator slot and is stored when a rebalance has ended, so that a restart or another broker goes on where we were.
Heartbeats cost no round trip. Nothing is decided across an await: a rule runs whole, then its writes are sent.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import structlog
from kio.schema.errors import ErrorCode

import respline
from penstock import group_members, group_rebalance
from penstock.coordination import Coordination
from penstock.group_alarms import Alarms
from penstock.group_members import Claim, Join, Sync
from penstock.group_state import NEVER, Group, Joined, Rules, Save, State, Synced
from penstock.limits import GROUPS_PER_SLOT_MAX
from penstock.store.group_keys import SLOTS, slot_of
from penstock.store.groups import GroupStore, Written

log = structlog.get_logger("penstock.groups")
RETRY_MS = 200
Reply = TypeVar("Reply")


@dataclass(slots=True, eq=False)
class Held:
    """A coordinator slot whose groups we have in memory."""

    slot: int
    epoch: int
    groups: dict[str, Group]


class Groups:
    def __init__(
        self,
        coordination: Coordination,
        store: GroupStore,
        rules: Rules,
        clock_ms: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self.rules = rules
        self._coordination = coordination
        self._store = store
        self.clock_ms = clock_ms  # monotonic: for deadlines
        self._now_ms = now_ms  # wall clock: for what is stored
        self._held: dict[int, Held] = {}
        self._opening = [asyncio.Lock() for _ in range(SLOTS)]
        self._refused: dict[int, tuple[int, ErrorCode]] = {}  # slot -> (when to try again, what to say until then)
        self._alarms = Alarms(clock_ms, self._ring)
        self._writers: dict[Group, asyncio.Task[None]] = {}
        self._closed = False

    async def join(self, name: str, asked: Join) -> Joined:
        held = await self.coordinated(name) if name else ErrorCode.invalid_group_id
        if isinstance(held, ErrorCode):
            return Joined(held, asked.member_id)
        group = held.groups.get(name)
        if group is None:
            if asked.member_id:
                return Joined(ErrorCode.unknown_member_id, asked.member_id)
            if len(held.groups) >= GROUPS_PER_SLOT_MAX:
                return Joined(ErrorCode.policy_violation, "")
            group = Group(name, changed_ms=self._now_ms())
        answer, reply = _waiting(Joined)
        group_members.join(group, asked, reply, self.clock_ms(), self.rules)
        if group.members or group.pending:
            held.groups[name] = group
        self._follow_up(held, group)
        try:
            return await answer
        except asyncio.CancelledError:
            group_members.join_abandoned(group, reply, self.clock_ms(), self.rules)
            self._follow_up(held, group)
            raise

    async def sync(self, name: str, asked: Sync) -> Synced:
        found = await self._existing(name)
        if isinstance(found, ErrorCode):
            return Synced(found)
        held, group = found
        answer, reply = _waiting(Synced)
        group_members.sync(group, asked, reply, self.clock_ms(), self.rules)
        self._follow_up(held, group)
        try:
            return await answer
        except asyncio.CancelledError:
            group_members.sync_abandoned(group, reply, self.clock_ms())
            self._follow_up(held, group)
            raise

    async def heartbeat(self, name: str, claim: Claim) -> ErrorCode:
        found = await self._existing(name)
        return found if isinstance(found, ErrorCode) else group_members.heartbeat(found[1], claim, self.clock_ms())

    async def leave(self, name: str, who: Sequence[tuple[str, str | None]]) -> ErrorCode | list[ErrorCode]:
        """One code for the whole request, or one for each of them."""
        found = await self._existing(name)
        if found is ErrorCode.unknown_member_id:
            return [ErrorCode.unknown_member_id] * len(who)
        if isinstance(found, ErrorCode):
            return found
        held, group = found
        codes = group_members.leave(group, who, self.clock_ms(), self.rules)
        self._follow_up(held, group)
        return codes

    async def delete(self, name: str) -> ErrorCode:
        """Forget an empty group and its offsets."""
        held = await self.coordinated(name)
        if isinstance(held, ErrorCode):
            return held
        group = held.groups.get(name)
        if group is None:
            return ErrorCode.group_id_not_found
        if group.state is not State.EMPTY or group.pending:
            return ErrorCode.non_empty_group
        return await self.remove(held, group)

    async def remove(self, held: Held, group: Group, *, only_without_offsets: bool = False) -> ErrorCode:
        try:
            written = await self._store.delete(group, held.epoch, only_without_offsets=only_without_offsets)
        except respline.ResplineError as error:
            log.warning("a group was not deleted", group=group.name, error=str(error))
            return ErrorCode.coordinator_not_available
        if written is Written.FENCED:
            self.lost(held)
            return ErrorCode.not_coordinator
        if written is Written.RACED:
            return ErrorCode.non_empty_group
        if group.state is State.EMPTY and not group.pending:  # else somebody joined it in the meantime
            group.move(State.DEAD)
            self._drop(held, group)
        return ErrorCode.none

    def committed(self, held: Held, name: str) -> None:
        """Offsets were stored for this group, so there is one, if only as a place for them."""
        if self._held.get(held.slot) is held and name not in held.groups:
            held.groups[name] = Group(name, changed_ms=self._now_ms(), stored=True)

    def in_memory(self) -> list[Held]:
        """What we coordinate now, for lists and sweeps."""
        return [held for held in self._held.values() if self._coordination.epoch(held.slot) == held.epoch]

    async def coordinated(self, name: str) -> Held | ErrorCode:
        """The slot of this group, or why we cannot speak for it."""
        slot = slot_of(name)
        held = self._held.get(slot)
        if held and self._coordination.epoch(slot) == held.epoch and not self._closed:
            return held
        if self._closed:
            return ErrorCode.coordinator_not_available
        retry_at, code = self._refused.get(slot, (0, ErrorCode.none))
        if self.clock_ms() < retry_at:
            return code
        try:
            opened, code = await self._open(slot), ErrorCode.not_coordinator
        except respline.ResplineError as error:
            log.warning("a coordinator slot cannot be taken", slot=slot, error=str(error))
            opened, code = None, ErrorCode.coordinator_not_available
        if opened is None:  # the store is not asked again for every request that comes to the wrong place
            self._refused[slot] = (self.clock_ms() + RETRY_MS, code)
        return opened or code

    async def beat(self) -> None:
        """Renew the slots that are ours, load those that are new, forget those that are gone."""
        lapsed = [held for slot, held in self._held.items() if self._coordination.epoch(slot) is None]
        await self._coordination.beat()
        for held in lapsed:
            if self._coordination.epoch(held.slot) == held.epoch:
                self._grant_a_session(held)
        for slot in range(SLOTS):
            held_now = self._held.get(slot)
            if held_now is None or self._coordination.epoch(slot) != held_now.epoch:
                await self._open(slot)

    def lost(self, held: Held) -> None:
        """Somebody else coordinates this slot: what we remember is worth nothing."""
        self._coordination.lost(held.slot)
        self._forget(held.slot)

    async def close(self) -> None:
        """Answer whoever waits, let the writes end, give the slots up."""
        self._closed = True
        for slot in list(self._held):
            for group in self._held[slot].groups.values():
                group_rebalance.abandon(group, ErrorCode.coordinator_not_available)
        if self._writers:
            await asyncio.wait(list(self._writers.values()))
        self._alarms.close()
        try:
            await self._coordination.leave()
        except respline.ResplineError as error:
            log.warning("the coordinator slots run out by themselves, the store is away", error=str(error))

    async def _existing(self, name: str) -> tuple[Held, Group] | ErrorCode:
        if not name:
            return ErrorCode.invalid_group_id
        held = await self.coordinated(name)
        if isinstance(held, ErrorCode):
            return held
        group = held.groups.get(name)
        return (held, group) if group else ErrorCode.unknown_member_id

    async def _open(self, slot: int) -> Held | None:
        """Take the slot if it is ours to take, and load it. One at a time for each slot."""
        async with self._opening[slot]:
            held = self._held.get(slot)
            if not self._coordination.is_ours(slot):
                self._forget(slot)
                return None
            if self._coordination.epoch(slot) is None:
                await self._coordination.claim([slot])
                if held and self._coordination.epoch(slot) == held.epoch:
                    self._grant_a_session(held)
            epoch = self._coordination.epoch(slot)
            if held and held.epoch == epoch:
                return held
            self._forget(slot)
            if epoch is None:
                return None
            opened = Held(slot, epoch, await self._store.load(slot, self.clock_ms()))
            if self._coordination.epoch(slot) != epoch:
                return None
            self._held[slot] = opened
            for group in opened.groups.values():
                self._follow_up(opened, group)
            return opened

    def _grant_a_session(self, held: Held) -> None:
        """We could not hear the members for a while, which is not their fault."""
        now = self.clock_ms()
        for group in held.groups.values():
            for member in group.members.values():
                group.touch(member, now)

    def _forget(self, slot: int) -> None:
        held = self._held.pop(slot, None)
        if held:
            for group in held.groups.values():
                self._alarms.forget(group.name)
                group_rebalance.abandon(group, ErrorCode.not_coordinator)

    def _drop(self, held: Held, group: Group) -> None:
        self._alarms.forget(group.name)
        held.groups.pop(group.name, None)

    def _follow_up(self, held: Held, group: Group) -> None:
        """After a rule has run: send its writes, and set the alarm."""
        if group.saves and group not in self._writers:
            self._writers[group] = asyncio.create_task(self._write_all(held, group))
        if group.wake < NEVER and self._held.get(held.slot) is held:
            self._alarms.set(group.name, group.wake)

    async def _write_all(self, held: Held, group: Group) -> None:
        """The writes of one group, one after the other."""
        while group.saves:
            save = group.saves.pop(0)
            code = await self._write(held, group, save)
            save.done(code, self.clock_ms())
        del self._writers[group]
        self._follow_up(held, group)

    async def _write(self, held: Held, group: Group, save: Save) -> ErrorCode:
        changed_ms = self._now_ms()
        try:
            written = await self._store.write(group.name, save.snapshot, held.epoch, changed_ms)
        except respline.ResplineError as error:
            log.warning("a group was not stored", group=group.name, error=str(error))
            return ErrorCode.coordinator_not_available
        if written is not Written.DONE:
            self.lost(held)
            return ErrorCode.not_coordinator
        group.stored, group.changed_ms = True, changed_ms
        return ErrorCode.none

    def _ring(self, name: str) -> None:
        held = self._held.get(slot_of(name))
        group = held.groups.get(name) if held else None
        if held is None or group is None:
            return
        if self._coordination.epoch(held.slot) != held.epoch:
            # Members cannot reach us while the lease is in doubt, so nobody's silence counts.
            self._alarms.set(name, self.clock_ms() + 1_000)
            return
        group_rebalance.expire(group, self.clock_ms(), self.rules)
        if group.state is State.EMPTY and not group.pending and not group.stored:
            self._drop(held, group)  # somebody asked for an id and never came back
            return
        self._follow_up(held, group)


def _waiting(kind: type[Reply]) -> tuple["asyncio.Future[Reply]", Callable[[Reply], None]]:
    """A future, and the callable that settles it unless its client has gone."""
    answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def settle(reply: Reply) -> None:
        if not answer.done():
            answer.set_result(reply)

    return answer, settle
