"""Two simpler ways to choose seats, to measure ours against.

Only the seat-fill benchmark and its tests use them. They take and return what `seating.choose` does, so that the three
can stand in one table; they see accessible seats as walls, as it does, and know no party that needs one.
"""

from collections.abc import Sequence

from aisle.reservation.seating import Choice, How, Party, Refusal
from aisle.reservation.subsection import SeatState, Subsection, gaps_of


def first_fit(subsection: Subsection, states: Sequence[int], party: Party) -> Choice | Refusal:
    """The first seats side by side, else the first seats."""
    usable = usable_seats(subsection, states, party)
    if len(usable) < party.size:
        return too_few(usable, party)
    block = first_block(subsection, usable, party.size)
    return Choice(tuple(block), How.ADJACENT) if block else Choice(tuple(usable[: party.size]), How.SPLIT)


def seed_halving(subsection: Subsection, states: Sequence[int], party: Party) -> Choice | Refusal:
    """The first seats side by side, else each half of the party by the same rule, down to single people."""
    usable = usable_seats(subsection, states, party)
    if len(usable) < party.size:
        return too_few(usable, party)
    seats: list[int] = []
    waiting = [party.size]
    how = How.ADJACENT
    while waiting:
        people = waiting.pop()
        block = first_block(subsection, usable, people)
        if block:
            seats += block
            usable = [seat for seat in usable if seat not in block]
        else:
            # The bigger half is served first; a single person always finds a seat, since there are enough.
            waiting += [people // 2, people - people // 2]
            how = How.SPLIT
    return Choice(tuple(sorted(seats)), how)


def usable_seats(subsection: Subsection, states: Sequence[int], party: Party) -> list[int]:
    assert party.accessible == 0, "these rules know no accessible seats"
    return [
        index
        for index, state in enumerate(states)
        if state == SeatState.AVAILABLE and index not in subsection.accessible
    ]


def too_few(usable: list[int], party: Party) -> Choice | Refusal:
    if not usable:
        return Refusal.SOLD_OUT
    return Choice(tuple(usable), How.PARTIAL) if party.allow_partial else Refusal.NO_BLOCK


def first_block(subsection: Subsection, usable: Sequence[int], size: int) -> range | None:
    for gap in gaps_of(subsection, usable):
        if gap.length >= size:
            return range(gap.start, gap.start + size)
    return None
