"""Sharing a party out among gaps when no gap holds all of it.

Pure; called by `seating` alone, which has made sure that no gap holds the party and that all gaps together do.
A person is alone if nobody of the party sits beside them: a gap that gives exactly one seat.

How many must sit alone depends on three sums over the gaps in question:
    paired    seats in gaps of 2 or more      singles   gaps of 1      wide   gaps of 3 or more
Arrays and integers only, because the store's script repeats these loops in Lua.
"""

from collections.abc import Sequence

from aisle.reservation.subsection import Gap


def split(gaps: Sequence[Gap], size: int, rows: int) -> tuple[int, ...]:
    """The seats of the party, in index order.

    Fewest people alone, then the fewest rows from the first to the last row used, then the best first row. Inside those
    rows: the fewest gaps, so the largest ones (equal ones in index order), shares as even as the lengths allow, bigger
    shares to the gaps that come first in index order, everybody from the left end of the gap. Singles left beside a
    share are not counted: a party that must part is not parted further for the sake of a seat.
    """
    first, last = nearest_rows(gaps, size, rows)
    used = fewest_gaps([gap for gap in gaps if first <= gap.row <= last], size)
    shares = even_shares([gap.length for gap in used], size)
    return tuple(seat for gap, share in zip(used, shares, strict=True) for seat in range(gap.start, gap.start + share))


def nearest_rows(gaps: Sequence[Gap], size: int, rows: int) -> tuple[int, int]:
    """The first and the last of the rows that seat the party with as few people alone as the whole subsection could.

    Rows that are added to a window never make more people sit alone, so two pointers find the shortest window: `last`
    moves on, and `first` follows as long as the rows behind it are not needed. No narrower window does, therefore every
    such seating inside the answer uses both its first and its last row.
    """
    paired, singles, wide = [0] * (rows + 1), [0] * (rows + 1), [0] * (rows + 1)
    for gap in gaps:
        if gap.length == 1:
            singles[gap.row] += 1
        else:
            paired[gap.row] += gap.length
        if gap.length >= 3:
            wide[gap.row] += 1
    fewest = people_alone(size, sum(paired), sum(singles), sum(wide))
    assert fewest <= size, "the gaps do not hold the party"

    best_first, best_last = 1, rows
    first, p, s, w = 1, 0, 0, 0
    for last in range(1, rows + 1):
        p, s, w = p + paired[last], s + singles[last], w + wide[last]
        # An empty window seats nobody, so `first` stops at `last` at the latest.
        while people_alone(size, p - paired[first], s - singles[first], w - wide[first]) == fewest:
            p, s, w = p - paired[first], s - singles[first], w - wide[first]
            first += 1
        if people_alone(size, p, s, w) == fewest and last - first < best_last - best_first:
            best_first, best_last = first, last
    return best_first, best_last


def people_alone(size: int, paired: int, singles: int, wide: int) -> int:
    """How many of a party of 2 or more must sit alone in these gaps, or size + 1 if the gaps do not hold the party.

    With paired >= size: shares of 2 make every even size, and with a share of 3 from a wide gap every odd one. With
    gaps of 2 only, an odd size leaves one person over; `paired` is then even, so another gap of 2 has a seat for them.
    With paired < size: the gaps of 2 or more hold at most `paired` people, and everybody else is in a gap of 1.
    """
    if paired >= size:
        return 1 if size % 2 == 1 and wide == 0 else 0
    if paired + singles >= size:
        return size - paired
    return size + 1


def fewest_gaps(gaps: Sequence[Gap], size: int) -> list[Gap]:
    """As few gaps as hold the party: the largest, equal ones in index order. Returned in index order.

    This never costs company. If gaps of 2 or more hold the party, the m largest are needed and m - 1 of them are too
    few: 2(m - 1) < size. So each of the m can have 2 people, or size is 2m - 1 and all gaps are 2s, where one person is
    left over anyway. If they do not hold it, all of them are filled, and as few gaps of 1 as possible.
    """
    used: list[Gap] = []
    held = 0
    for gap in sorted(gaps, key=lambda gap: (-gap.length, gap.start)):
        if held >= size:
            break
        used.append(gap)
        held += gap.length
    return sorted(used, key=lambda gap: gap.start)


def even_shares(lengths: Sequence[int], size: int) -> list[int]:
    """Deal the seats like cards: one to each gap that has room, from the first gap on, round after round."""
    shares = [0] * len(lengths)
    dealt = 0
    while dealt < size:
        for place, length in enumerate(lengths):
            if dealt < size and shares[place] < length:
                shares[place] += 1
                dealt += 1
    return shares
