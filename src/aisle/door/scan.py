"""A scan at the door and what comes of it. Pure: the same scans and tickets give the same outcomes in any order.

First in time wins. A scan made over the network is decided when it arrives. Scans that a device made without one arrive
later with the device's time; if one of them turns out to be the earliest, it becomes the first entry and the one that
was first before is shown as the second. What happened at the door is not undone; the log names both.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import msgspec


class Outcome(StrEnum):
    ACCEPTED = "accepted"
    ALREADY_IN = "already_in"  # somebody entered with this ticket before
    TAMPERED = "tampered"  # no code of ours, or changed after it was signed
    UNKNOWN_KEY = "unknown_key"  # signed with a key that we do not have, or have revoked
    OTHER_EVENT = "other_event"
    VOIDED = "voided"  # a newer code was issued for this ticket
    REFUNDED = "refunded"


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    request_hash: bytes
    staff: UUID
    gate: str
    place: int | None = None
    seat: int | None = None
    code_version: int | None = None
    outcome: Outcome
    offline: bool
    scanned_at: datetime
    received_at: datetime

    @property
    def ticket(self) -> tuple[int, int]:
        assert self.place is not None
        assert self.seat is not None
        return self.place, self.seat

    @property
    def rank(self) -> tuple[datetime, str]:
        return self.scanned_at, self.id


class Fact(msgspec.Struct, frozen=True):
    """A ticket row under lock: whether it is sold, which code is good, and why older ones are not."""

    sold: bool
    version: int
    voided: Mapping[int, str]


def judge(scan: Scan, fact: Fact | None) -> Scan:
    """A scan whose code was signed by us, held against its ticket; ACCEPTED still has to be the first."""
    if scan.outcome is not Outcome.ACCEPTED:
        return scan
    if fact is None:
        return msgspec.structs.replace(scan, outcome=Outcome.VOIDED)
    assert scan.code_version is not None
    if fact.sold and scan.code_version == fact.version:
        return scan
    refunded = fact.voided.get(scan.code_version) != "reissued"
    return msgspec.structs.replace(scan, outcome=Outcome.REFUNDED if refunded else Outcome.VOIDED)


def rank_entries(scans: Sequence[Scan], firsts: Iterable[Scan]) -> tuple[list[Scan], list[Scan]]:
    """The new scans with their places among those that entered, and earlier firsts that are not first any more."""
    standing = {(first.ticket, first.code_version): first for first in firsts}
    best: dict[tuple[tuple[int, int], int | None], Scan] = dict(standing)
    arrived = [_not_before(scan, standing) for scan in scans]
    for scan in arrived:
        if scan.outcome is Outcome.ACCEPTED:
            key = (scan.ticket, scan.code_version)
            best[key] = min(best.get(key, scan), scan, key=lambda s: s.rank)
    placed = [
        msgspec.structs.replace(scan, outcome=Outcome.ALREADY_IN)
        if scan.outcome is Outcome.ACCEPTED and best[scan.ticket, scan.code_version] is not scan
        else scan
        for scan in arrived
    ]
    return placed, [first for key, first in standing.items() if best[key] is not first]


def _not_before(scan: Scan, standing: Mapping[tuple[tuple[int, int], int | None], Scan]) -> Scan:
    """A scan over the network comes after what is known, whatever two hosts' clocks say about it."""
    if scan.offline or scan.outcome is not Outcome.ACCEPTED:
        return scan
    first = standing.get((scan.ticket, scan.code_version))
    if first is None or scan.scanned_at > first.scanned_at:
        return scan
    return msgspec.structs.replace(scan, scanned_at=first.scanned_at + timedelta(microseconds=1))
