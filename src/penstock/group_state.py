"""A consumer group and its members as data: states, legal moves, votes. Pure: no I/O, no clock, no tasks.

    Empty ──join──> PreparingRebalance ──all joined──> CompletingRebalance ──leader synced, stored──> Stable
      ^                 │         ^                            │                                        │
      └──nobody came────┘         └──────── a member joins, changes, leaves, is silent for too long ────┘
    Empty ──deleted or expired──> Dead

Waiting JoinGroup and SyncGroup requests are callables in `joining` and `syncing`: answering one is calling it.
`group_members` and `group_rebalance` hold the rules; `groups` gives them time, ids and the store.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec
from kio.schema.errors import ErrorCode

NEVER = 2**63


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MOVES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING}),
    State.STABLE: frozenset({State.PREPARING}),
    State.DEAD: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """What an operator may choose about groups. Times in ms."""

    initial_delay_ms: int
    session_min_ms: int
    session_max_ms: int
    size_max: int


@dataclass(frozen=True, slots=True)
class Joined:
    """What a JoinGroup is told."""

    code: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # id, instance id, metadata: for the leader only
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    """What a SyncGroup is told."""

    code: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, eq=False)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # name, metadata; the one the member likes best first
    assignment: bytes = b""
    unaware: bool = False  # has not been told its id yet
    deadline: int = NEVER  # when its silence is too long, on the monotonic clock

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


class MemberSnapshot(msgspec.Struct, frozen=True):
    """A member as the store keeps it."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class Snapshot(msgspec.Struct, frozen=True):
    """A group as the store keeps it: between two rebalances."""

    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[MemberSnapshot, ...]


@dataclass(slots=True, eq=False)
class Save:
    """A state to be written to the store, and what happens once its fate is known: done(code, now)."""

    snapshot: Snapshot
    done: Callable[[ErrorCode, int], None]


@dataclass(slots=True, eq=False)
class Group:
    name: str
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)  # in the order they came
    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    pending: dict[str, int] = field(default_factory=dict)  # id given out, its owner not yet back -> deadline
    joining: dict[str, Callable[[Joined], None]] = field(default_factory=dict)
    syncing: dict[str, Callable[[Synced], None]] = field(default_factory=dict)
    unsynced: set[str] = field(default_factory=set)  # told of this generation, not yet asked for their assignment
    offered: Counter[str] = field(default_factory=Counter)  # protocol -> members that can speak it
    deadline: int = NEVER  # of the join round in PreparingRebalance, else of the syncs
    gathering: bool = False  # the first round of a group waits a while for more members
    newcomers: bool = False  # somebody came while gathering
    gather_left_ms: int = 0
    storing: int = -1  # the generation whose assignments are on their way to the store
    saves: list[Save] = field(default_factory=list)
    wake: int = NEVER  # nothing needs a look before this time
    changed_ms: int = 0  # wall clock of the last change of state; offsets of an empty group age from here
    stored: bool = False  # whether the store knows this group

    def move(self, target: State) -> None:
        assert target in MOVES[self.state], f"{self.name}: {self.state} -> {target}"
        self.state = target

    def add(self, member: Member) -> None:
        self.members[member.id] = member
        self.offered.update(name for name, _ in member.protocols)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id

    def drop(self, member: Member) -> None:
        del self.members[member.id]
        self.offered.subtract(name for name, _ in member.protocols)
        if member.instance_id is not None:
            del self.static[member.instance_id]
        self.unsynced.discard(member.id)
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    def set_protocols(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self.offered.subtract(name for name, _ in member.protocols)
        self.offered.update(name for name, _ in protocols)
        member.protocols = protocols

    def replace_static(self, member: Member, new_id: str) -> None:
        """Give a restarted static member its place, its assignment and, if it led, the lead."""
        was_leader = self.leader == member.id
        self.drop(member)
        member.id = new_id
        self.add(member)
        if was_leader:
            self.leader = new_id

    def wait_join(self, member: Member, reply: Callable[[Joined], None]) -> None:
        if earlier := self.joining.pop(member.id, None):  # of a connection that broke, or of a confused client
            earlier(Joined(ErrorCode.rebalance_in_progress, member.id))
        self.joining[member.id] = reply

    def wait_sync(self, member: Member, reply: Callable[[Synced], None]) -> None:
        if earlier := self.syncing.pop(member.id, None):
            earlier(Synced(ErrorCode.rebalance_in_progress))
        self.syncing[member.id] = reply

    def touch(self, member: Member, now: int) -> None:
        """The member gave a sign of life."""
        member.deadline = now + member.session_ms
        self.wake_by(member.deadline)

    def wake_by(self, when: int) -> None:
        self.wake = min(self.wake, when)

    def accepts(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether a member with these protocols can work with those who are here."""
        if not self.members:
            return bool(protocol_type and protocols)
        if protocol_type != self.protocol_type:
            return False
        return any(self.offered[name] == len(self.members) for name, _ in protocols)

    def elected_protocol(self) -> str:
        """Everybody votes for the first protocol on their list that all can speak; most votes win."""
        size = len(self.members)
        votes = Counter(
            next(name for name, _ in member.protocols if self.offered[name] == size) for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def longest_rebalance_ms(self) -> int:
        return max((member.rebalance_ms for member in self.members.values()), default=0)

    def roster(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """What the leader needs to assign the work."""
        return tuple((m.id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values())

    def snapshot(self, assignments: dict[str, bytes]) -> Snapshot:
        members = tuple(
            MemberSnapshot(
                m.id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.session_ms,
                m.rebalance_ms,
                m.protocols,
                assignments.get(m.id, b""),
            )
            for m in self.members.values()
        )
        return Snapshot(self.generation, self.protocol_type, self.protocol, self.leader, members)


def restored(name: str, snapshot: Snapshot, changed_ms: int, now: int) -> Group:
    """The group as it was stored. Its members get one session time-out to show that they are still there."""
    group = Group(
        name,
        State.STABLE if snapshot.members else State.EMPTY,
        snapshot.generation,
        snapshot.protocol_type,
        snapshot.protocol,
        changed_ms=changed_ms,
        stored=True,
    )
    for kept in snapshot.members:
        member = Member(**{name: getattr(kept, name) for name in kept.__struct_fields__})
        group.add(member)
        group.touch(member, now)
    group.leader = snapshot.leader if snapshot.leader in group.members else group.leader
    return group
