"""The rules of groups without a broker: a table, a clock made of an integer, and inboxes instead of sockets."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from kio.schema.errors import ErrorCode

from penstock import group_members, group_rebalance
from penstock.group_members import Claim, Join, Sync
from penstock.group_state import MOVES, NEVER, Group, Joined, Rules, State, Synced, restored
from penstock.group_subscription import subscribed_topics

RULES = Rules(initial_delay_ms=0, session_min_ms=6_000, session_max_ms=1_800_000, size_max=100)
RANGE, STICKY = ("range", b"r"), ("sticky", b"s")
OK = ErrorCode.none


@dataclass
class Table:
    """A group, the time, and who has been told what."""

    group: Group = field(default_factory=lambda: Group("g"))
    rules: Rules = RULES
    now: int = 1_000
    ids: int = 0

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (RANGE,),
        version: int = 3,
        session: int = 10_000,
        rebalance: int = 60_000,
        kind: str = "consumer",
    ) -> list[Joined]:
        self.ids += 1
        asked = Join(
            member_id,
            instance,
            "client",
            "/host",
            session,
            rebalance,
            kind,
            protocols,
            f"{instance or 'm'}-{self.ids}",
            version >= 4,
            version >= 9,
        )
        inbox: list[Joined] = []
        group_members.join(self.group, asked, inbox.append, self.now, self.rules)
        return inbox

    def sync(self, member_id: str, assignments: dict[str, bytes] | None = None, **claim: object) -> list[Synced]:
        generation = claim.get("generation", self.group.generation)
        asked = Sync(Claim(member_id, None, generation), None, None, assignments or {})  # type: ignore[arg-type]
        inbox: list[Synced] = []
        group_members.sync(self.group, asked, inbox.append, self.now, self.rules)
        return inbox

    def heartbeat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        claim = Claim(member_id, instance, self.group.generation if generation is None else generation)
        return group_members.heartbeat(self.group, claim, self.now)

    def store(self, code: ErrorCode = OK) -> None:
        """The store answers the writes that were sent."""
        while self.group.saves:
            self.group.saves.pop(0).done(code, self.now)

    def wait(self, ms: int) -> None:
        """Time passes; alarms ring when the group asked for them and not before."""
        end, rings = self.now + ms, 0
        while self.group.wake <= end:
            rings += 1
            assert rings < 10_000, "an alarm that never stops ringing"
            self.now = max(self.now, self.group.wake)
            group_rebalance.expire(self.group, self.now, self.rules)
        self.now = end

    def settled(self, *members: list[Joined]) -> None:
        """Everybody syncs, the leader first, and the store takes it."""
        ids = [inbox[-1].member_id for inbox in members]
        assert all(inbox[-1].code == OK for inbox in members)
        assert self.group.leader is not None
        self.sync(self.group.leader, {member_id: member_id.encode() for member_id in ids})
        self.store()
        for member_id in ids:
            self.sync(member_id)
        assert self.group.state is State.STABLE


def test_every_move_is_in_the_table_and_dead_is_the_end() -> None:
    assert set(MOVES) == set(State)
    assert MOVES[State.DEAD] == frozenset()
    assert all(State.DEAD not in MOVES[state] for state in (State.PREPARING, State.COMPLETING, State.STABLE))
    group = Group("g")
    with pytest.raises(AssertionError):
        group.move(State.STABLE)


def test_the_first_member_leads_and_hears_of_all_others() -> None:
    table = Table()
    first = table.join()
    [alone] = first
    assert (alone.generation, alone.leader, len(alone.members)) == (1, alone.member_id, 1)
    second = table.join()
    assert second == [], "it waits for the first"
    assert table.heartbeat(alone.member_id) is ErrorCode.rebalance_in_progress
    again = table.join(alone.member_id)
    assert [again[0].generation, second[0].generation] == [2, 2]
    assert {row[0] for row in again[0].members} == {alone.member_id, second[0].member_id}
    assert second[0].members == ()


def test_followers_wait_for_the_leader_and_the_leader_for_the_store() -> None:
    table = Table()
    leader, follower = table.join()[0].member_id, table.join()
    table.join(leader)
    waiting = table.sync(follower[0].member_id)
    own = table.sync(leader, {follower[0].member_id: b"yours", leader: b"mine"})
    assert (waiting, own) == ([], [])
    table.store()
    assert (waiting[0].assignment, own[0].assignment) == (b"yours", b"mine")
    assert table.group.state is State.STABLE


def test_a_store_that_refuses_the_assignments_starts_the_round_again() -> None:
    table = Table()
    leader = table.join()[0].member_id
    waiting = table.sync(leader, {leader: b"work"})
    table.store(ErrorCode.coordinator_not_available)
    assert waiting[0].code is ErrorCode.coordinator_not_available
    assert table.group.state is State.PREPARING
    [again] = table.join(leader)
    assert again.generation == 2


def test_a_write_that_ends_after_the_next_round_began_assigns_nothing() -> None:
    table = Table()
    leader = table.join()[0].member_id
    waiting = table.sync(leader, {leader: b"old"})
    table.join()
    assert waiting[0].code is ErrorCode.rebalance_in_progress
    table.store()
    assert table.group.state is State.PREPARING
    assert table.group.members[leader].assignment == b""


def test_a_new_member_of_version_4_comes_back_with_its_id() -> None:
    table = Table()
    [told] = table.join(version=4)
    assert told.code is ErrorCode.member_id_required
    assert table.group.members == {}
    assert table.join(told.member_id, version=4)[0].generation == 1


def test_an_id_nobody_came_back_for_expires_and_holds_no_round_up() -> None:
    table = Table()
    one = table.join()
    table.settled(one)
    table.join(version=4)
    waiting = table.join(one[0].member_id)
    assert waiting == [], "the round waits for the newcomer"
    table.wait(10_000)
    assert waiting[0].generation == 2
    assert table.group.pending == {}


def test_a_silent_member_is_taken_out_and_the_others_share_its_work() -> None:
    table = Table()
    first, second = table.join(), table.join()
    first = table.join(first[0].member_id)
    table.settled(first, second)
    for _ in range(4):
        table.wait(3_000)
        code = table.heartbeat(first[0].member_id)
    assert code is ErrorCode.rebalance_in_progress
    assert list(table.group.members) == [first[0].member_id]


def test_a_member_that_misses_the_round_is_left_behind() -> None:
    table = Table()
    first, second = table.join(rebalance=60_000), table.join(rebalance=30_000)
    table.settled(table.join(first[0].member_id), second)
    again = table.join(second[0].member_id, protocols=(("range", b"changed"),))
    for _ in range(20):
        table.heartbeat(first[0].member_id)
        table.wait(3_000)
    assert again[0].generation == 3
    assert list(table.group.members) == [second[0].member_id]
    assert again[0].leader == second[0].member_id


def test_a_leader_that_never_syncs_is_taken_out_and_the_followers_go_on() -> None:
    table = Table()
    first, second = table.join(session=1_800_000), table.join(session=1_800_000)
    leader = table.join(first[0].member_id, session=1_800_000)[0].member_id
    waiting = table.sync(second[0].member_id)
    table.wait(60_000)
    assert waiting[0].code is ErrorCode.rebalance_in_progress
    assert leader not in table.group.members


def test_a_member_that_never_asks_for_its_assignment_is_taken_out_of_a_stable_group() -> None:
    table = Table()
    first, second = table.join(session=1_800_000), table.join(session=1_800_000)
    leader = table.join(first[0].member_id, session=1_800_000)[0].member_id
    table.sync(leader, {})
    table.store()
    table.wait(60_000)
    assert list(table.group.members) == [leader]
    assert table.group.state is State.PREPARING
    assert second[0].member_id not in table.group.members


def test_the_first_round_gathers_members_for_a_while() -> None:
    table = Table(rules=Rules(3_000, 6_000, 1_800_000, 100))
    first = table.join(rebalance=7_000)
    table.wait(2_000)
    second = table.join(rebalance=7_000)
    assert (first, second) == ([], [])
    table.wait(1_000)
    assert first == [], "somebody came, so more may come"
    table.wait(3_000)
    assert (first[0].generation, second[0].generation) == (1, 1)


def test_gathering_ends_when_the_rebalance_time_is_used_up() -> None:
    table = Table(rules=Rules(3_000, 6_000, 1_800_000, 100))
    inboxes = []
    for _ in range(7):
        inboxes.append(table.join(rebalance=7_000))
        table.wait(1_000)
    assert {inbox[0].generation for inbox in inboxes} == {1}


def test_the_protocol_with_most_votes_wins_among_those_all_can_speak() -> None:
    table = Table()
    first = table.join(protocols=(RANGE, STICKY))
    assert first[0].protocol == "range"
    table.join(protocols=(STICKY, RANGE))
    third = table.join(protocols=(STICKY, RANGE, ("odd", b"o")))
    table.join(first[0].member_id, protocols=(RANGE, STICKY))
    assert third[0].protocol == "sticky"
    assert table.join(protocols=(("odd", b"o"),))[0].code is ErrorCode.inconsistent_group_protocol
    assert table.join(kind="connect")[0].code is ErrorCode.inconsistent_group_protocol
    assert table.join(protocols=())[0].code is ErrorCode.inconsistent_group_protocol


def test_a_follower_that_asks_again_is_told_the_same_and_a_leader_gets_a_new_round() -> None:
    table = Table()
    first, second = table.join(), table.join()
    table.settled(table.join(first[0].member_id), second)
    assert table.join(second[0].member_id)[0].generation == 2
    assert table.group.state is State.STABLE
    assert table.join(first[0].member_id) == []
    assert table.group.state is State.PREPARING


def test_strangers_and_the_past_are_refused() -> None:
    table = Table()
    one = table.join()
    table.settled(one)
    member = one[0].member_id
    assert table.heartbeat("nobody") is ErrorCode.unknown_member_id
    assert table.heartbeat(member, generation=0) is ErrorCode.illegal_generation
    assert table.sync(member, generation=7)[0].code is ErrorCode.illegal_generation
    assert table.join("nobody")[0].code is ErrorCode.unknown_member_id
    assert table.join(session=5_999)[0].code is ErrorCode.invalid_session_timeout
    assert table.join(session=1_800_001)[0].code is ErrorCode.invalid_session_timeout
    commit = group_members.commit_refusal
    assert commit(table.group, Claim("", None, -1), table.now) is ErrorCode.unknown_member_id
    assert commit(table.group, Claim(member, None, 0), table.now) is ErrorCode.illegal_generation
    assert commit(table.group, Claim(member, None, 1), table.now) is OK
    assert commit(Group("empty"), Claim("", None, -1), table.now) is OK


def test_commits_are_refused_between_two_generations_and_welcome_before() -> None:
    table = Table()
    first = table.join()
    table.settled(first)
    table.join()
    claim = Claim(first[0].member_id, None, 1)
    assert group_members.commit_refusal(table.group, claim, table.now) is OK, "the old owner may still finish"
    table.join(first[0].member_id)
    claim = Claim(first[0].member_id, None, 2)
    assert group_members.commit_refusal(table.group, claim, table.now) is ErrorCode.rebalance_in_progress


def test_a_full_group_takes_nobody_but_lets_its_own_come_back() -> None:
    table = Table(rules=Rules(0, 6_000, 1_800_000, 2))
    first = table.join()
    second = table.join()
    assert table.join()[0].code is ErrorCode.group_max_size_reached
    assert table.join(version=4)[0].code is ErrorCode.group_max_size_reached
    table.settled(table.join(first[0].member_id), second)


def static_pair(version: int = 5) -> tuple[Table, str, str]:
    table = Table()
    first = table.join(instance="a", version=version)
    second = table.join(instance="b", version=version)
    first = table.join(first[0].member_id, instance="a", version=version)
    table.settled(first, second)
    return table, first[0].member_id, second[0].member_id


@pytest.mark.parametrize("version", [5, 9])
def test_a_static_member_that_restarts_keeps_its_work_and_nobody_notices(version: int) -> None:
    table, leader, follower = static_pair(version)
    back = table.join(instance="b", version=version)
    assert back == [], "not before the new id is stored"
    table.store()
    [told] = back
    assert (told.code, told.generation, table.group.state) == (OK, 2, State.STABLE)
    assert told.member_id != follower
    assert table.sync(told.member_id)[0].assignment == follower.encode()
    assert table.heartbeat(leader) is OK
    assert table.heartbeat(follower, instance="b") is ErrorCode.fenced_instance_id
    assert table.join(follower, instance="b")[0].code is ErrorCode.fenced_instance_id


def test_a_static_leader_that_restarts_does_not_assign_what_nobody_asked_for() -> None:
    table, leader, _ = static_pair(5)
    [told] = restarted(table, "a", 5)
    assert (told.leader, told.members) == (leader, ()), "named by the old id, it does not know itself"
    table, _, _ = static_pair(9)
    [told] = restarted(table, "a", 9)
    assert told.leader == told.member_id
    assert told.skip_assignment
    assert len(told.members) == 2


def restarted(table: Table, instance: str, version: int) -> list[Joined]:
    inbox = table.join(instance=instance, version=version)
    table.store()
    return inbox


def test_a_static_member_keeps_its_place_through_a_round_it_misses_until_its_session_ends() -> None:
    table, leader, follower = static_pair()
    again = table.join(leader, instance="a")
    table.wait(9_000)
    assert again == []
    table.wait(1_000)
    assert again[0].generation == 3, "its session ended, and the round did not wait any longer"
    assert follower not in table.group.members


def test_a_fenced_static_member_is_told_while_it_waits_to_join() -> None:
    table = Table()
    first = table.join(instance="a")
    table.settled(first)
    waiting = table.join(instance="b")
    table.join(instance="b")
    assert waiting[0].code is ErrorCode.fenced_instance_id


def test_a_fenced_static_member_is_told_while_it_waits_to_sync() -> None:
    table = Table()
    first = table.join(instance="a")
    table.join(instance="b")
    table.join(first[0].member_id, instance="a")
    waiting = table.sync(table.group.static["b"])
    table.join(instance="b")
    assert waiting[0].code is ErrorCode.fenced_instance_id
    assert table.group.state is State.PREPARING


def test_a_request_sent_again_replaces_the_one_that_waits() -> None:
    table = Table()
    first, second = table.join(), table.join()
    old = table.join(first[0].member_id)
    table.join()
    waiting = table.join(second[0].member_id)
    again = table.join(second[0].member_id)
    assert waiting[0].code is ErrorCode.rebalance_in_progress
    assert again == []
    table.join(old[0].member_id)
    assert again[0].generation == 3
    sync = table.sync(second[0].member_id)
    table.sync(second[0].member_id)
    assert sync[0].code is ErrorCode.rebalance_in_progress


def test_leaving_by_id_by_instance_and_by_mistake() -> None:
    table, leader, follower = static_pair()
    [pending] = table.join(version=4)
    codes = group_members.leave(
        table.group,
        [("", "b"), ("nobody", None), (leader, "b"), ("", "unknown"), (pending.member_id, None)],
        table.now,
        RULES,
    )
    unknown = ErrorCode.unknown_member_id
    assert codes == [OK, unknown, unknown, unknown, OK]
    assert follower not in table.group.members
    assert table.group.pending == {}


def test_the_last_one_to_leave_leaves_an_empty_group_that_is_stored() -> None:
    table = Table()
    one = table.join()
    table.settled(one)
    group_members.leave(table.group, [(one[0].member_id, None)], table.now, RULES)
    assert table.group.state is State.EMPTY
    assert [save.snapshot.members for save in table.group.saves] == [()]
    assert table.group.saves[0].snapshot.generation == 2


def test_a_client_that_goes_away_before_it_learned_its_id_leaves_no_ghost() -> None:
    table = Table()
    one = table.join()
    table.settled(one)
    inbox: list[Joined] = []
    reply = inbox.append
    asked = Join("", None, "c", "/h", 10_000, 60_000, "consumer", (RANGE,), "ghost", False, False)
    group_members.join(table.group, asked, reply, table.now, RULES)
    group_members.join_abandoned(table.group, reply, table.now, RULES)
    assert list(table.group.members) == [one[0].member_id]
    assert inbox == [], "nobody is there to hear it"


def test_what_is_stored_is_what_comes_back() -> None:
    table, leader, follower = static_pair()
    snapshot = table.group.snapshot({leader: b"1", follower: b"2"})
    group = restored("g", snapshot, changed_ms=5, now=50_000)
    assert (group.state, group.generation, group.leader, group.protocol) == (State.STABLE, 2, leader, "range")
    assert group.static == {"a": leader, "b": follower}
    assert group.members[follower].assignment == b"2"
    assert group.wake == 60_000, "one session to show up"
    assert group_members.heartbeat(group, Claim(follower, "b", 2), 59_999) is OK
    assert restored("g", Group("g").snapshot({}), 5, 0).state is State.EMPTY


def test_subscriptions_are_read_and_nonsense_is_not() -> None:
    metadata = b"\0\1" + b"\0\0\0\2" + b"\0\1a" + b"\0\2bc" + b"\xff\xff\xff\xff"
    assert subscribed_topics([metadata]) == {"a", "bc"}
    assert subscribed_topics([]) == set()
    assert subscribed_topics([metadata, b"\0"]) is None
    assert subscribed_topics([b"\0\1\x7f\xff\xff\xff"]) is None


PROTOCOLS = st.sampled_from([(RANGE,), (RANGE, STICKY), (STICKY, RANGE), (STICKY,)])
ANYBODY = st.integers(min_value=0, max_value=11)


class AnythingHappens(RuleBasedStateMachine):
    """Clients, time and the store in any order: nobody is answered twice or forgotten, and the books always agree."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(rules=Rules(1_000, 6_000, 1_800_000, 4))
        self.joins: list[tuple[str | None, list[Joined]]] = []
        self.syncs: list[list[Synced]] = []
        self.generation = 0

    @rule(
        instance=st.sampled_from([None, None, "a", "b"]),
        version=st.sampled_from([0, 4, 5, 9]),
        protocols=PROTOCOLS,
        rebalance=st.sampled_from([0, 5_000, 60_000]),
    )
    def join(
        self, instance: str | None, version: int, protocols: tuple[tuple[str, bytes], ...], rebalance: int
    ) -> None:
        inbox = self.table.join(instance=instance, version=version, protocols=protocols, rebalance=rebalance)
        self.joins.append((instance, inbox))

    @rule(who=ANYBODY, protocols=PROTOCOLS)
    def join_again(self, who: int, protocols: tuple[tuple[str, bytes], ...]) -> None:
        instance, member_id = self.somebody(who)
        self.joins.append((instance, self.table.join(member_id, instance=instance, protocols=protocols)))

    @rule()
    def all_join_again(self) -> None:
        for member in list(self.table.group.members.values()):
            inbox = self.table.join(member.id, instance=member.instance_id, protocols=member.protocols)
            self.joins.append((member.instance_id, inbox))

    @rule(who=ANYBODY)
    def sync(self, who: int) -> None:
        work = dict.fromkeys(self.table.group.members, b"w")
        self.syncs.append(self.table.sync(self.somebody(who)[1], work))

    @rule()
    def leader_syncs(self) -> None:
        if leader := self.table.group.leader:
            self.syncs.append(self.table.sync(leader, dict.fromkeys(self.table.group.members, b"w")))

    @rule(who=ANYBODY)
    def heartbeat(self, who: int) -> None:
        instance, member_id = self.somebody(who)
        self.table.heartbeat(member_id, instance=instance)

    @rule(who=ANYBODY)
    def leave(self, who: int) -> None:
        instance, member_id = self.somebody(who)
        group_members.leave(self.table.group, [(member_id, instance)], self.table.now, self.table.rules)

    @rule(code=st.sampled_from([OK, OK, ErrorCode.coordinator_not_available]))
    def store_answers(self, code: ErrorCode) -> None:
        self.table.store(code)

    @rule(ms=st.sampled_from([1, 500, 4_000, 11_000, 70_000]))
    def time_passes(self, ms: int) -> None:
        self.table.wait(ms)

    def somebody(self, who: int) -> tuple[str | None, str]:
        """One of those who were ever told an id, whether it still counts or not; nobody, if there is none yet."""
        known = [(instance, inbox[0].member_id) for instance, inbox in self.joins if inbox]
        return known[-1 - who % len(known)] if known else (None, "nobody")

    @invariant()
    def the_books_agree(self) -> None:
        group = self.table.group
        assert group.offered == Counter(n for m in group.members.values() for n, _ in m.protocols)
        assert group.static == {m.instance_id: m.id for m in group.members.values() if m.instance_id is not None}
        assert group.joining.keys() <= group.members.keys()
        assert group.syncing.keys() <= group.members.keys()
        assert group.unsynced <= group.members.keys()
        assert (group.leader in group.members) if group.members else group.leader is None
        assert group.members or group.state in (State.EMPTY, State.PREPARING)
        assert not group.joining or group.state is State.PREPARING
        assert not group.syncing or group.state is State.COMPLETING
        assert group.state is not State.EMPTY or not group.members
        assert group.generation >= self.generation
        self.generation = group.generation

    @invariant()
    def nobody_is_answered_twice(self) -> None:
        assert all(len(inbox) <= 1 for inbox in self.inboxes())

    @invariant()
    def the_alarm_is_early_enough(self) -> None:
        group = self.table.group
        waiting = group.joining.keys() | group.syncing.keys()
        dues = [m.deadline for m in group.members.values() if m.id not in waiting]
        assert group.wake <= min([group.deadline, *dues, *group.pending.values()], default=NEVER)

    def inboxes(self) -> list[list[Joined] | list[Synced]]:
        return [*(inbox for _, inbox in self.joins), *self.syncs]

    def teardown(self) -> None:
        for _ in range(50):
            self.table.store()
            self.table.wait(3_700_000)
        assert self.table.group.state is State.EMPTY
        assert all(len(inbox) == 1 for inbox in self.inboxes()), "somebody waits for ever"


TestAnythingHappens = AnythingHappens.TestCase
TestAnythingHappens.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
