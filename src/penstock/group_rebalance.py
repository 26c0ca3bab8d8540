"""How a group gets from one generation to the next. Pure: time is passed in, answers are callables, writes are `saves`.

A round: `begin` opens it, every member sends JoinGroup, `try_complete_join` (or the deadline) closes it and tells the
leader who is there; the leader's SyncGroup brings the assignments, they are stored, and all waiting SyncGroups get
theirs. Called by `group_members` and, when time passes, by `groups` through `expire`.
"""

from functools import partial

from kio.schema.errors import ErrorCode

from penstock.group_state import NEVER, Group, Joined, Member, Rules, Save, State, Synced

ABSENT_MS = 1_000


def begin(group: Group, now: int, rules: Rules) -> None:
    """Open a round, unless one is open."""
    if group.state is State.PREPARING:
        return
    if group.state is State.COMPLETING:
        _answer_syncs(group, ErrorCode.rebalance_in_progress, now)
        for member in group.members.values():
            member.assignment = b""
    longest = group.longest_rebalance_ms()
    delay = min(rules.initial_delay_ms, longest)
    group.gathering = group.state is State.EMPTY and delay > 0
    group.gather_left_ms = longest - delay
    group.newcomers = False
    group.unsynced.clear()
    group.move(State.PREPARING)
    _set_deadline(group, now + (delay if group.gathering else longest))


def try_complete_join(group: Group, now: int) -> None:
    """Close the round if nobody is missing."""
    everybody = len(group.joining) == len(group.members) and not group.pending
    if group.state is State.PREPARING and not group.gathering and everybody:
        _complete_join(group, now)


def remove(group: Group, member: Member, now: int, rules: Rules, code: ErrorCode) -> None:
    """Take a member out, tell its waiting requests why, and let the others share its work."""
    group.drop(member)
    if reply := group.joining.pop(member.id, None):
        reply(Joined(code, member.id))
    if waiting := group.syncing.pop(member.id, None):
        waiting(Synced(code))
    if group.state in (State.STABLE, State.COMPLETING):
        begin(group, now, rules)
    try_complete_join(group, now)


def store_assignments(group: Group, assignments: dict[str, bytes], rules: Rules) -> None:
    """The leader has spoken: its word counts once it is stored."""
    if group.storing == group.generation:  # the leader asked again while the first write is on its way
        return
    group.storing = group.generation
    done = partial(_assigned, group, rules, group.generation, assignments)
    group.saves.append(Save(group.snapshot(assignments), done))


def expire(group: Group, now: int, rules: Rules) -> None:
    """Let everything happen that is due, and set `wake` to when the group needs the next look."""
    for member_id in [member_id for member_id, deadline in group.pending.items() if deadline <= now]:
        del group.pending[member_id]
    for member in [m for m in group.members.values() if _silent(group, m) and m.deadline <= now]:
        if member.id in group.members:
            remove(group, member, now, rules, ErrorCode.unknown_member_id)
    if group.deadline <= now:
        _round_is_over(group, now, rules)
    try_complete_join(group, now)
    silences = (m.deadline for m in group.members.values() if _silent(group, m))
    group.wake = min(group.deadline, min(silences, default=NEVER), min(group.pending.values(), default=NEVER))


def abandon(group: Group, code: ErrorCode) -> None:
    """Answer whoever waits: this broker is not the group's coordinator any more, or stops."""
    for member_id, reply in group.joining.items():
        reply(Joined(code, member_id))
    for waiting in group.syncing.values():
        waiting(Synced(code))
    group.joining.clear()
    group.syncing.clear()


def _complete_join(group: Group, now: int) -> None:
    # A static member that did not come back keeps its place until its session ends; a dynamic one is gone.
    for member in [m for m in group.members.values() if m.id not in group.joining and m.instance_id is None]:
        group.drop(member)
    if group.members and not group.joining:  # all are static and absent: look again later, never in a hurry
        _set_deadline(group, now + max(group.longest_rebalance_ms(), ABSENT_MS))
        return
    group.generation += 1
    group.gathering = False
    _set_deadline(group, NEVER)
    if not group.members:
        group.protocol = group.leader = None
        group.move(State.EMPTY)
        group.saves.append(Save(group.snapshot({}), lambda code, now: None))
        return
    if group.leader not in group.joining:
        group.leader = next(iter(group.joining))
    group.protocol = group.elected_protocol()
    group.move(State.COMPLETING)
    _set_deadline(group, now + group.longest_rebalance_ms())
    joining, group.joining = group.joining, {}
    group.unsynced = set(joining)
    for member_id, reply in joining.items():
        group.members[member_id].unaware = False
        group.touch(group.members[member_id], now)
        reply(joined_now(group, member_id))


def joined_now(group: Group, member_id: str) -> Joined:
    """What a member of the current generation is told when it joins."""
    leader = group.leader or ""
    return Joined(
        ErrorCode.none,
        member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        leader,
        group.roster() if leader == member_id else (),
    )


def _assigned(
    group: Group, rules: Rules, generation: int, assignments: dict[str, bytes], code: ErrorCode, now: int
) -> None:
    group.storing = -1
    if group.state is not State.COMPLETING or group.generation != generation:
        return  # the next round has begun, and it has answered those who waited
    if code:
        _answer_syncs(group, code, now)
        begin(group, now, rules)
        return
    for member in group.members.values():
        member.assignment = assignments.get(member.id, b"")
    group.move(State.STABLE)
    syncing, group.syncing = group.syncing, {}
    for member_id, reply in syncing.items():
        member = group.members[member_id]
        group.touch(member, now)
        reply(Synced(ErrorCode.none, group.protocol_type, group.protocol, member.assignment))
    if not group.unsynced:
        _set_deadline(group, NEVER)


def _round_is_over(group: Group, now: int, rules: Rules) -> None:
    if group.state is State.PREPARING:
        if group.gathering and group.newcomers and group.gather_left_ms > 0:
            delay = min(rules.initial_delay_ms, group.gather_left_ms)
            group.gather_left_ms -= delay
            group.newcomers = False
            _set_deadline(group, now + delay)
            return
        _complete_join(group, now)
        return
    # Whoever was told of this generation and never asked for its assignment holds work that nobody does.
    _set_deadline(group, NEVER)
    for member in [group.members[member_id] for member_id in group.unsynced]:
        remove(group, member, now, rules, ErrorCode.unknown_member_id)


def _answer_syncs(group: Group, code: ErrorCode, now: int) -> None:
    syncing, group.syncing = group.syncing, {}
    for member_id, reply in syncing.items():
        group.touch(group.members[member_id], now)
        reply(Synced(code))


def _silent(group: Group, member: Member) -> bool:
    """Whether the member's session counts: while its request waits with us, we are the slow ones."""
    return member.id not in group.joining and member.id not in group.syncing


def _set_deadline(group: Group, when: int) -> None:
    group.deadline = when
    group.wake_by(when)
