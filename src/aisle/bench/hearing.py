"""What viewers have heard, judged: does every message lead on from the one before, and how old was it on arrival?

Pure. A subsection's messages say from which version to which they lead, so a message that is missing shows.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

import msgspec

from aisle.bench.viewers import Heard

MESSAGE = re.compile(rb"id: \d+\nevent: (snapshot|delta)\ndata: (.*)\n\n")


class Report(NamedTuple):
    gaps: int
    behind: int
    staleness_ms: list[float]


class Delta(msgspec.Struct, rename={"since": "from"}):
    place: str
    since: int
    version: int
    changes: list[tuple[int, int]]


class Snapshot(msgspec.Struct):
    # section, subsection, version, ...
    places: list[tuple[str, int, int, int, int, int, int]]


def hear(heard: Heard, taken: Mapping[tuple[str, int], int]) -> Report:
    """`taken`: when each seat was taken, in ms, by subsection and index."""
    whole, followers, gaps = len(heard.stream), 0, 0
    for n, positions in enumerate(heard.positions):
        at = positions[-1] if positions else 0
        if n in heard.own:
            gaps += gaps_in(heard.snapshot + heard.stream[:at] + heard.own[n])
        else:
            followers += at == whole
    gaps += gaps_in(heard.snapshot + heard.stream) * followers
    behind = len(heard.positions) - len(heard.own) - followers
    return Report(gaps, behind, list(_staleness(heard, taken)))


def gaps_in(stream: bytes) -> int:
    """Messages that begin at another version than the one before ended at; a snapshot begins anew."""
    known: dict[str, int] = {}
    gaps = 0
    for kind, data in MESSAGE.findall(stream):
        if kind == b"snapshot":
            shown = msgspec.json.decode(data, type=Snapshot)
            known = {f"{section}-{number}": version for section, number, version, *_ in shown.places}
            continue
        delta = msgspec.json.decode(data, type=Delta)
        gaps += known.get(delta.place) != delta.since
        known[delta.place] = delta.version
    return gaps


def _staleness(heard: Heard, taken: Mapping[tuple[str, int], int]) -> Iterator[float]:
    ends, changed = [], []
    for found in MESSAGE.finditer(heard.stream):
        if found[1] == b"delta":
            delta = msgspec.json.decode(found[2], type=Delta)
            moments = [taken[delta.place, seat] for seat, _ in delta.changes if (delta.place, seat) in taken]
            if moments:
                ends.append(found.end())
                changed.append(min(moments))

    @cache  # nearly all viewers hear the same pieces
    def oldest(after: int, until: int) -> int | None:
        return min(changed[bisect_right(ends, after) : bisect_right(ends, until)], default=None)

    for positions, times in zip(heard.positions, heard.times, strict=True):
        before = 0
        for at, second in zip(positions, times, strict=True):
            change = oldest(before, at)
            if change is not None:
                yield second * 1000 - change
            before = at
