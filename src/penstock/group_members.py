"""What a group answers to its members: join, sync, heartbeat, leave, and who may commit. Pure, like `group_rebalance`.

Every refusal is one of Kafka's codes. A member proves itself by its id (and, if it is static, by its instance id
still pointing to that id) and by the generation it believes in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kio.schema.errors import ErrorCode

from penstock.group_rebalance import begin, joined_now, remove, store_assignments, try_complete_join
from penstock.group_state import Group, Joined, Member, Rules, Save, State, Synced


@dataclass(frozen=True, slots=True)
class Join:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    fresh_id: str  # what the member will be called if it has no name yet
    must_know_its_id: bool  # from version 4 on a new member comes back with its id, so that no ghost is left behind
    may_skip_assignment: bool  # from version 9 on


@dataclass(frozen=True, slots=True)
class Claim:
    """Who a request says it is."""

    member_id: str
    instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Sync:
    claim: Claim
    protocol_type: str | None  # None in versions that do not say
    protocol: str | None
    assignments: dict[str, bytes]  # of the leader; empty from others


def join(group: Group, asked: Join, reply: Callable[[Joined], None], now: int, rules: Rules) -> None:
    """Answer now or when the round closes."""
    if code := _join_refusal(group, asked, rules):
        reply(Joined(code, asked.member_id))
    elif asked.member_id in group.members:
        _come_back(group, group.members[asked.member_id], asked, reply, now, rules)
    elif asked.instance_id is not None and asked.instance_id in group.static:
        _restart(group, group.members[group.static[asked.instance_id]], asked, reply, now, rules)
    elif asked.instance_id is None and asked.must_know_its_id and asked.member_id not in group.pending:
        group.pending[asked.fresh_id] = now + asked.session_ms
        group.wake_by(now + asked.session_ms)
        reply(Joined(ErrorCode.member_id_required, asked.fresh_id))
    else:
        _come_in(group, asked, reply, now, rules)
    try_complete_join(group, now)


def join_abandoned(group: Group, reply: Callable[[Joined], None], now: int, rules: Rules) -> None:
    """The client of a waiting join went away. One that never learned its id cannot come back, so it goes at once."""
    member = next((group.members[member_id] for member_id, waiting in group.joining.items() if waiting is reply), None)
    if member is None:
        return
    del group.joining[member.id]
    group.touch(member, now)
    if member.unaware:
        remove(group, member, now, rules, ErrorCode.unknown_member_id)


def sync_abandoned(group: Group, reply: Callable[[Synced], None], now: int) -> None:
    member = next((group.members[member_id] for member_id, waiting in group.syncing.items() if waiting is reply), None)
    if member:
        del group.syncing[member.id]
        group.touch(member, now)


def sync(group: Group, asked: Sync, reply: Callable[[Synced], None], now: int, rules: Rules) -> None:
    """Answer now if the assignment is known, else when the leader's word is stored."""
    member = _proven(group, asked.claim)
    if not isinstance(member, Member):
        reply(Synced(member))
    elif asked.protocol_type not in (None, group.protocol_type) or asked.protocol not in (None, group.protocol):
        reply(Synced(ErrorCode.inconsistent_group_protocol))
    elif group.state is State.PREPARING:
        reply(Synced(ErrorCode.rebalance_in_progress))
    else:
        group.unsynced.discard(member.id)
        group.touch(member, now)
        if group.state is State.STABLE:
            reply(Synced(ErrorCode.none, group.protocol_type, group.protocol, member.assignment))
            return
        group.wait_sync(member, reply)
        if member.id == group.leader:
            store_assignments(group, asked.assignments, rules)


def heartbeat(group: Group, claim: Claim, now: int) -> ErrorCode:
    member = _proven(group, claim)
    if not isinstance(member, Member):
        return member
    group.touch(member, now)
    return ErrorCode.rebalance_in_progress if group.state is State.PREPARING else ErrorCode.none


def leave(group: Group, who: Sequence[tuple[str, str | None]], now: int, rules: Rules) -> list[ErrorCode]:
    """One code for each (member id, instance id). A tool may name a static member by its instance alone."""
    return [_leave_one(group, member_id, instance_id, now, rules) for member_id, instance_id in who]


def commit_refusal(group: Group, claim: Claim, now: int) -> ErrorCode:
    """Whether this claimant may commit offsets; a commit is also a sign of life."""
    if claim.generation < 0 and group.state is State.EMPTY:
        # Somebody who uses the group only as a place for offsets: fine while nobody shares work there.
        return ErrorCode.none
    member = _proven(group, claim)
    if not isinstance(member, Member):
        return member
    if group.state is State.COMPLETING:
        return ErrorCode.rebalance_in_progress
    group.touch(member, now)
    return ErrorCode.none


def _join_refusal(group: Group, asked: Join, rules: Rules) -> ErrorCode:
    if not rules.session_min_ms <= asked.session_ms <= rules.session_max_ms:
        return ErrorCode.invalid_session_timeout
    is_here = asked.member_id in group.members
    if not is_here and asked.member_id not in group.pending and not _replaces(group, asked):
        if asked.member_id:
            return _stranger(group, asked.member_id, asked.instance_id)
        if len(group.members) + len(group.pending) >= rules.size_max:
            return ErrorCode.group_max_size_reached
    if is_here and (code := _identity_refusal(group, asked.member_id, asked.instance_id)):
        return code
    if not group.accepts(asked.protocol_type, asked.protocols):
        return ErrorCode.inconsistent_group_protocol
    return ErrorCode.none


def _replaces(group: Group, asked: Join) -> bool:
    return not asked.member_id and asked.instance_id is not None and asked.instance_id in group.static


def _come_in(group: Group, asked: Join, reply: Callable[[Joined], None], now: int, rules: Rules) -> None:
    group.pending.pop(asked.member_id, None)
    if not group.members:
        group.protocol_type = asked.protocol_type
    member = Member(
        asked.member_id or asked.fresh_id,
        asked.instance_id,
        asked.client_id,
        asked.client_host,
        asked.session_ms,
        asked.rebalance_ms,
        asked.protocols,
        unaware=not asked.member_id and asked.instance_id is None,
    )
    group.add(member)
    group.touch(member, now)
    group.wait_join(member, reply)
    # The first member starts the wait for others; only those who come during it make it longer.
    was_gathering = group.gathering
    begin(group, now, rules)
    group.newcomers = group.newcomers or was_gathering


def _come_back(
    group: Group, member: Member, asked: Join, reply: Callable[[Joined], None], now: int, rules: Rules
) -> None:
    same = member.protocols == asked.protocols
    # A leader that joins a stable group saw something change, such as new partitions: it wants a new round.
    settled = group.state is State.COMPLETING or (group.state is State.STABLE and member.id != group.leader)
    group.touch(member, now)
    if same and settled:
        reply(joined_now(group, member.id))
        return
    _update(group, member, asked)
    group.wait_join(member, reply)
    begin(group, now, rules)


def _restart(
    group: Group, member: Member, asked: Join, reply: Callable[[Joined], None], now: int, rules: Rules
) -> None:
    """A static member came back without its id: it gets a new one and keeps its place; the old id is fenced."""
    old_id, old_leader = member.id, group.leader
    if waiting_join := group.joining.pop(old_id, None):
        waiting_join(Joined(ErrorCode.fenced_instance_id, old_id))
    if waiting_sync := group.syncing.pop(old_id, None):
        waiting_sync(Synced(ErrorCode.fenced_instance_id))
    group.replace_static(member, asked.fresh_id)
    _update(group, member, asked)
    group.touch(member, now)
    if group.state is not State.STABLE or group.elected_protocol() != group.protocol:
        group.wait_join(member, reply)
        begin(group, now, rules)
        return
    answer = joined_now(group, member.id)
    if asked.may_skip_assignment:
        answer = replace(answer, skip_assignment=group.leader == member.id)
    else:
        # Named by its old id the leader does not know itself, and so does not assign work nobody asked for.
        answer = replace(answer, leader=old_leader or "", members=())
    assignments = {m.id: m.assignment for m in group.members.values()}
    group.saves.append(Save(group.snapshot(assignments), partial(_restarted, reply, answer)))


def _restarted(reply: Callable[[Joined], None], answer: Joined, code: ErrorCode, now: int) -> None:
    # If the store did not take it, the member asks again without an id and replaces itself.
    reply(Joined(code, "") if code else answer)


def _update(group: Group, member: Member, asked: Join) -> None:
    group.set_protocols(member, asked.protocols)
    member.session_ms, member.rebalance_ms = asked.session_ms, asked.rebalance_ms
    member.client_id, member.client_host = asked.client_id, asked.client_host


def _leave_one(group: Group, member_id: str, instance_id: str | None, now: int, rules: Rules) -> ErrorCode:
    if instance_id is not None and not member_id:
        member_id = group.static.get(instance_id, "")
    if member_id in group.pending and instance_id is None:
        del group.pending[member_id]
        try_complete_join(group, now)
        return ErrorCode.none
    if code := _identity_refusal(group, member_id, instance_id):
        return code
    remove(group, group.members[member_id], now, rules, ErrorCode.unknown_member_id)
    return ErrorCode.none


def _proven(group: Group, claim: Claim) -> Member | ErrorCode:
    if code := _identity_refusal(group, claim.member_id, claim.instance_id):
        return code
    if claim.generation != group.generation:
        return ErrorCode.illegal_generation
    return group.members[claim.member_id]


def _identity_refusal(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    if member_id not in group.members or (instance_id is not None and group.static.get(instance_id) != member_id):
        return _stranger(group, member_id, instance_id)
    return ErrorCode.none


def _stranger(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """A static member whose place was taken by a newer process must stop for good; anybody else may start anew."""
    if instance_id is not None and group.static.get(instance_id, member_id) != member_id:
        return ErrorCode.fenced_instance_id
    return ErrorCode.unknown_member_id
