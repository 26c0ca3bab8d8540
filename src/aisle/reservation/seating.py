"""Which seats a party gets: the specification of seat choice.

Pure and deterministic: the same subsection, states and party give the same seats for ever. The script that takes seats
inside the store must equal `choose` seat for seat, so the rules are plain loops over integers. Nothing here takes a
seat, and nothing here knows a buyer's purchase limit: who calls has checked it.

The ladder, for a party of n, over the gaps (unbroken runs of usable seats in a row):
    adjacent          n seats side by side that strand nobody's single seat; row 1 first
    adjacent_orphan   n seats side by side, one seat beside them is left single because no better block exists
    split             no gap holds n: fewest people alone, then the fewest rows apart, then the best row
    partial           fewer than n seats are left and the party said that fewer will do
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from aisle.reservation.splitting import split
from aisle.reservation.subsection import SEATS_MAX, BadSeat, Gap, SeatState, Subsection, gaps_of


class How(StrEnum):
    ADJACENT = "adjacent"
    ADJACENT_ORPHAN = "adjacent_orphan"
    SPLIT = "split"
    PARTIAL = "partial"


class Refusal(StrEnum):
    SOLD_OUT = "sold_out"  # not one seat that this party may use
    NO_BLOCK = "no_block"  # some seats, but too few, or too few accessible ones


class BadParty(ValueError):
    """A party that no subsection could seat, however empty."""


@dataclass(frozen=True, slots=True)
class Party:
    """`accessible` is how many of the `size` people need an accessible seat."""

    size: int
    accessible: int = 0
    allow_partial: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.size <= SEATS_MAX:
            raise BadParty(f"a party is 1 to {SEATS_MAX} people, not {self.size}")
        if not 0 <= self.accessible <= self.size:
            raise BadParty(f"a party of {self.size} cannot need {self.accessible} accessible seats")


@dataclass(frozen=True, slots=True)
class Choice:
    """Seat indexes in ascending order, and the rung of the ladder that gave them."""

    seats: tuple[int, ...]
    how: How


@dataclass(frozen=True, slots=True)
class Block:
    """Seats side by side inside one gap. It strands if exactly one seat of the gap is left on either side."""

    start: int
    accessible: int
    strands: bool


def choose(subsection: Subsection, states: Sequence[int], party: Party) -> Choice | Refusal:
    subsection.check_states(states)
    free = [index for index, state in enumerate(states) if state == SeatState.AVAILABLE]
    ordinary = [seat for seat in free if seat not in subsection.accessible]
    if party.accessible == 0:
        return choose_ordinary(subsection, ordinary, party.size, party.allow_partial)
    return choose_accessible(subsection, free, ordinary, party)


def choose_ordinary(
    subsection: Subsection, ordinary: Sequence[int], size: int, allow_partial: bool
) -> Choice | Refusal:
    """Seat people who need no accessible seat. Accessible seats are walls to them, even when all else is gone."""
    if not ordinary:
        return Refusal.SOLD_OUT
    if len(ordinary) < size:
        return Choice(tuple(ordinary), How.PARTIAL) if allow_partial else Refusal.NO_BLOCK
    gaps = gaps_of(subsection, ordinary)
    return seat_side_by_side(gaps, size) or Choice(split(gaps, size, subsection.rows), How.SPLIT)


def choose_accessible(
    subsection: Subsection, free: Sequence[int], ordinary: Sequence[int], party: Party
) -> Choice | Refusal:
    """Seat a party that needs accessible seats; both kinds of free seat are usable to it.

    A block with as few spare accessible seats as possible comes first, then one that strands no single, then the best
    row, then the leftmost. Without a block exactly the accessible seats it needs are taken, the first in index order,
    and the others go by the ordinary ladder on ordinary seats: scattered people never use up a spare accessible seat.
    """
    accessible = [seat for seat in free if seat in subsection.accessible]
    if not free:
        return Refusal.SOLD_OUT
    if len(accessible) < party.accessible:
        return Refusal.NO_BLOCK
    blocks = [
        block
        for block in blocks_of(subsection, gaps_of(subsection, free), party.size)
        if block.accessible >= party.accessible
    ]
    if blocks:
        best = min(blocks, key=lambda block: (block.accessible, block.strands, block.start))
        return side_by_side(best.start, party.size, best.strands)
    needed = accessible[: party.accessible]
    others = party.size - party.accessible
    if others == 0:
        return Choice(tuple(needed), How.SPLIT)
    if len(ordinary) < others:
        return Choice(tuple(sorted([*needed, *ordinary])), How.PARTIAL) if party.allow_partial else Refusal.NO_BLOCK
    gaps = gaps_of(subsection, ordinary)
    together = seat_side_by_side(gaps, others)
    seated = together.seats if together else split(gaps, others, subsection.rows)
    return Choice(tuple(sorted([*needed, *seated])), How.SPLIT)


def strands_single(subsection: Subsection, states: Sequence[int], seats: Sequence[int]) -> bool:
    """True if a buyer's own pick of free seats leaves an orphan: a single seat that need not have been left.

    A usable seat is stranded if a picked seat is beside it and no usable one is. That counts only if the same party (as
    many seats, as many accessible ones) could sit side by side somewhere in the subsection without stranding a seat; a
    party without such a place may sit as it likes. So `choose` leaves no orphan, unless a partial party that needs
    accessible seats takes all ordinary ones left. A pick without accessible seats sees those as walls, like `choose`.
    """
    subsection.check_states(states)
    check_pick(subsection, states, seats)
    picked = set(seats)
    needs_accessible = sum(seat in subsection.accessible for seat in picked)
    usable = [
        index
        for index, state in enumerate(states)
        if state == SeatState.AVAILABLE and (needs_accessible or index not in subsection.accessible)
    ]
    gaps = gaps_of(subsection, usable)
    left = gaps_of(subsection, [seat for seat in usable if seat not in picked])
    before = {gap.start for gap in gaps if gap.length == 1}
    if all(gap.length > 1 or gap.start in before for gap in left):
        return False
    blocks = blocks_of(subsection, gaps, len(picked))
    return any(not block.strands and block.accessible == needs_accessible for block in blocks)


def check_pick(subsection: Subsection, states: Sequence[int], seats: Sequence[int]) -> None:
    if not seats:
        raise BadSeat("no seat was picked")
    if len(set(seats)) != len(seats):
        raise BadSeat("a seat was picked twice")
    for seat in seats:
        subsection.check_index(seat)
        if states[seat] != SeatState.AVAILABLE:
            raise BadSeat(f"seat {subsection.name(seat)} is not available")


def blocks_of(subsection: Subsection, gaps: Sequence[Gap], size: int) -> Iterator[Block]:
    for gap in gaps:
        for on_the_left in range(gap.length - size + 1):
            start = gap.start + on_the_left
            on_the_right = gap.length - size - on_the_left
            accessible = sum(seat in subsection.accessible for seat in range(start, start + size))
            yield Block(start, accessible, on_the_left == 1 or on_the_right == 1)


def side_by_side(start: int, size: int, strands: bool) -> Choice:
    return Choice(tuple(range(start, start + size)), How.ADJACENT_ORPHAN if strands else How.ADJACENT)


def seat_side_by_side(gaps: Sequence[Gap], size: int) -> Choice | None:
    """The left end of the best gap that holds the party, or None.

    A gap of size + 1 strands a single wherever the party sits in it. At the left end of any other gap that is long
    enough, 0 or at least 2 seats remain. So a single is stranded only if every block of the subsection strands one.
    """
    fitting = [gap for gap in gaps if gap.length >= size]
    if not fitting:
        return None
    best = min(fitting, key=lambda gap: (gap.length == size + 1, gap.row, gap.length != size, gap.start))
    return side_by_side(best.start, size, strands=best.length == size + 1)
