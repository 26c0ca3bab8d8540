"""Who was first: the same scans give the same entries, whatever order they are handed in, one by one or together."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aisle.door.scan import Fact, Outcome, Scan, judge, rank_entries

EIGHT = datetime(2027, 12, 31, 20, tzinfo=UTC)


def a_scan(id, seat=0, minute=0, *, offline=True, version=1):
    at = EIGHT + timedelta(minutes=minute)
    return Scan(
        id=id, request_hash=b"", staff=UUID(int=1), gate="north", place=0, seat=seat, code_version=version,
        outcome=Outcome.ACCEPTED, offline=offline, scanned_at=at, received_at=EIGHT + timedelta(hours=2),
    )  # fmt: skip


class Log:
    """The log in memory, with the one rule of the database: a ticket has one first scan."""

    def __init__(self):
        self.scans = {}

    def hand_in(self, batch):
        firsts = [scan for scan in self.scans.values() if scan.outcome is Outcome.ACCEPTED]
        placed, overtaken = rank_entries([scan for scan in batch if scan.id not in self.scans], firsts)
        for scan in overtaken:
            self.scans[scan.id] = msgspec.structs.replace(scan, outcome=Outcome.ALREADY_IN)
        self.scans |= {scan.id: scan for scan in placed}
        firsts = [scan.ticket for scan in self.scans.values() if scan.outcome is Outcome.ACCEPTED]
        assert len(firsts) == len(set(firsts)), "two people were first with one ticket"

    def report(self):
        return sorted((scan.id, scan.outcome, scan.scanned_at) for scan in self.scans.values())


made = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=40).map(
    lambda seen: [a_scan(f"scan-{n:04}", seat, minute) for n, (seat, minute) in enumerate(seen)]
)


@given(made, st.randoms(use_true_random=False), st.integers(1, 10), st.integers(1, 10))
def test_scans_handed_in_in_any_order_and_twice_leave_the_same_log(scans, chance, size, other_size):
    logs = []
    for batch_size in (size, other_size):
        log = Log()
        sent = [*scans, *scans[::3]]
        chance.shuffle(sent)
        for n in range(0, len(sent), batch_size):
            log.hand_in(list({scan.id: scan for scan in sent[n : n + batch_size]}.values()))
        logs.append(log.report())
    assert logs[0] == logs[1]


def test_over_the_network_nobody_is_let_in_twice_however_clocks_differ():
    log = Log()
    log.hand_in([a_scan("first", minute=5, offline=False)])
    log.hand_in([a_scan("slow-clock", minute=1, offline=False)])
    assert [(id, outcome) for id, outcome, _ in log.report()] == [("first", "accepted"), ("slow-clock", "already_in")]


def test_a_code_is_held_against_its_ticket():
    scan = a_scan("one-scan", version=2)
    verdicts = {
        "good": Fact(True, 2, {1: "reissued"}),
        "newer code": Fact(True, 3, {1: "reissued", 2: "reissued"}),
        "refunded": Fact(False, 3, {2: "refunded"}),
        "refunded and sold to somebody else": Fact(True, 3, {2: "refunded"}),
        "no such seat": None,
    }
    assert {why: judge(scan, fact).outcome.value for why, fact in verdicts.items()} == {
        "good": "accepted",
        "newer code": "voided",
        "refunded": "refunded",
        "refunded and sold to somebody else": "refunded",
        "no such seat": "voided",
    }
