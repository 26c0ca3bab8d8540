"""What viewers heard is judged by reading it: a missing message is a gap, a late viewer is behind."""

import msgspec

from aisle.bench.hearing import gaps_in, hear
from aisle.bench.viewers import Audience, Heard, Viewer
from aisle.live import sse


def snapshot(version: int) -> bytes:
    return sse.event("snapshot", {"places": [["A", 1, version, 0, 0, 0, 0]]}, version * 10**9)


def delta(since: int, version: int, *seats: int) -> bytes:
    data = {"place": "A-1", "from": since, "version": version, "changes": [[seat, 1] for seat in seats]}
    return sse.event("delta", data, version * 10**9)


def test_a_message_that_is_missing_is_a_gap_and_a_fresh_start_is_none():
    assert gaps_in(snapshot(1) + delta(1, 2) + delta(2, 4)) == 0
    assert gaps_in(snapshot(1) + delta(1, 2) + delta(3, 4)) == 1
    assert gaps_in(snapshot(1) + delta(1, 2) + sse.reset("slow") + snapshot(7) + delta(7, 8)) == 0


def test_viewers_who_hear_the_same_share_it_and_one_who_differs_keeps_its_own():
    audience = Audience()
    steady, slow, robbed = (Viewer(audience, b"") for _ in range(3))
    for viewer in (steady, slow, robbed):
        viewer.on_body(sse.retry(1, 2))
        viewer.on_body(snapshot(1))
    first, second, third = delta(1, 2, 5), delta(2, 3, 6), delta(3, 4, 7)
    steady.on_body(first + second)
    steady.on_body(sse.HEARTBEAT)
    steady.on_body(third)
    slow.on_body(first[:10])
    slow.on_body(first[10:])
    slow.on_body(sse.reset("slow") + snapshot(4))
    robbed.on_body(first)
    robbed.on_body(third)
    assert audience.stream == first + second + third
    assert (steady.own, slow.own, robbed.own) == (None, sse.reset("slow") + snapshot(4), third)
    assert audience.all_have(4)

    report = hear(heard_by(audience), {})
    assert (report.gaps, report.behind) == (1, 0), "the one who was robbed of a message, and nobody else"


def test_who_has_not_heard_the_last_message_is_behind():
    audience = Audience()
    viewers = [Viewer(audience, b"") for _ in range(2)]
    for viewer in viewers:
        viewer.on_body(snapshot(1))
        viewer.on_body(delta(1, 2, 5))
    viewers[0].on_body(delta(2, 3, 6))
    assert not audience.all_have(3)
    assert hear(heard_by(audience), {}).behind == 1


def test_a_message_is_as_old_as_the_oldest_change_in_it():
    stream = delta(1, 2, 5, 6) + delta(2, 3, 7)
    heard = Heard(snapshot(1), stream, [[len(stream)]], [[10.0]], {}, 0)
    assert hear(heard, {("A-1", 5): 9_900, ("A-1", 6): 9_800, ("A-1", 7): 9_950}).staleness_ms == [200.0]


def heard_by(audience: Audience) -> Heard:
    viewers = audience.viewers
    own = {n: bytes(viewer.own) for n, viewer in enumerate(viewers) if viewer.own is not None}
    positions, times = [v.positions.tolist() for v in viewers], [v.times.tolist() for v in viewers]
    heard = Heard(audience.snapshot, bytes(audience.stream), positions, times, own, 0)
    return msgspec.msgpack.decode(msgspec.msgpack.encode(heard), type=Heard)
