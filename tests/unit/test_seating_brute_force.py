"""`choose` against a judge that looks at every placement there is and keeps the one with the smallest rank.

The judge shares no code with the model: it knows no sweep over rows and no formula for people alone, it tries all ways
to put the party on usable seats and compares. Every run judges 147,456 cases exhaustively (all halls of 12 seats in
three shapes, all party sizes) and 100,000 random ones of up to 32 seats (5 seeds x 20,000) with accessible seats and
partial parties. More seeds in SEEDS are more cases.
"""

import random
import re
from collections.abc import Iterator
from itertools import combinations
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisle.reservation.seating import Choice, How, Party, Refusal, choose, strands_single
from aisle.reservation.subsection import SeatState, Subsection

RANDOM_CASES = 20_000
SEEDS = (1, 2, 3, 4, 5)
PLACEMENTS_MAX = 3_000  # of one random case; more only costs time

# A hall is a list of rows: "." free, "a" free and accessible, "X" and "A" the same, taken.
Hall = list[str]
Verdict = tuple[tuple[int, ...], str] | str


@pytest.mark.parametrize(("rows", "width"), [(2, 6), (3, 4), (4, 3)])
def test_every_hall_of_twelve_seats_and_every_party_is_seated_as_the_judge_says(rows: int, width: int) -> None:
    for taken in range(1 << rows * width):
        seats = "".join("X" if taken >> seat & 1 else "." for seat in range(rows * width))
        hall = [seats[row * width : (row + 1) * width] for row in range(rows)]
        for size in range(1, rows * width + 1):
            party = Party(size)
            assert chosen(hall, party) == judged(hall, party), (hall, party)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_halls_and_parties_are_seated_as_the_judge_says(seed: int) -> None:
    seen = set()
    for hall, party in random_cases(random.Random(seed), RANDOM_CASES):
        verdict = judged(hall, party)
        assert chosen(hall, party) == verdict, (hall, party)
        seen.add((party.accessible > 0, verdict if isinstance(verdict, str) else verdict[1]))
    outcomes = {*How, *Refusal}
    assert seen == {(needs, outcome) for needs in (False, True) for outcome in outcomes}, "a rung was never judged"


def random_cases(rng: random.Random, cases: int) -> Iterator[tuple[Hall, Party]]:
    """Mostly halls with many small gaps and parties that nearly fill them, where the lower rungs of the ladder are."""
    while cases:
        rows, width = rng.choice((1, 2, 3, 3, 4, 4)), rng.choice((2, 3, 4, 5, 6, 6, 7, 8))
        fullness, accessible = rng.choice((0.1, 0.3, 0.4, 0.5, 0.7)), rng.choice((0.0, 0.15, 0.4))
        hall = [
            "".join(("aA" if rng.random() < accessible else ".X")[rng.random() < fullness] for _ in range(width))
            for _ in range(rows)
        ]
        free_accessible = sum(row.count("a") for row in hall)
        free = sum(row.count(".") for row in hall) + free_accessible
        size = rng.randint(1, min(10, free + 1))
        needed = rng.choice((0, rng.randint(0, min(size, free_accessible + 1))))
        if comb(free, size) <= PLACEMENTS_MAX:
            yield hall, Party(size, needed, allow_partial=rng.random() < 0.3)
            cases -= 1


def chosen(hall: Hall, party: Party) -> Verdict:
    choice = choose(subsection_of(hall), states_of(hall), party)
    return choice.value if isinstance(choice, Refusal) else (choice.seats, choice.how.value)


def subsection_of(hall: Hall) -> Subsection:
    seats = "".join(hall)
    return Subsection(len(hall), len(hall[0]), frozenset(i for i, seat in enumerate(seats) if seat in "aA"))


def states_of(hall: Hall) -> list[SeatState]:
    return [SeatState.AVAILABLE if seat in ".a" else SeatState.SOLD for seat in "".join(hall)]


def judged(hall: Hall, party: Party) -> Verdict:
    seats = "".join(hall)
    ordinary = [index for index, seat in enumerate(seats) if seat == "."]
    accessible = [index for index, seat in enumerate(seats) if seat == "a"]
    if party.accessible == 0:
        return judged_ordinary(hall, ordinary, party)
    if not ordinary and not accessible:
        return "sold_out"
    if len(accessible) < party.accessible:
        return "no_block"
    width = len(hall[0])
    blocks = []
    for start in range(len(seats) - party.size + 1):
        block = seats[start : start + party.size]
        in_one_row = start // width == (start + party.size - 1) // width
        if in_one_row and set(block) <= {".", "a"} and block.count("a") >= party.accessible:
            blocks.append((block.count("a"), leaves_single(hall[start // width], start % width, party.size), start))
    if blocks:
        _, orphan, start = min(blocks)
        return tuple(range(start, start + party.size)), "adjacent_orphan" if orphan else "adjacent"
    needed, others = accessible[: party.accessible], party.size - party.accessible
    if len(ordinary) < others:
        return (tuple(sorted(needed + ordinary)), "partial") if party.allow_partial else "no_block"
    rest = best_placement(walled(hall), others)[0] if others else ()
    return tuple(sorted([*needed, *rest])), "split"


def judged_ordinary(hall: Hall, ordinary: list[int], party: Party) -> Verdict:
    if not ordinary:
        return "sold_out"
    if len(ordinary) < party.size:
        return (tuple(ordinary), "partial") if party.allow_partial else "no_block"
    return best_placement(walled(hall), party.size)


def walled(hall: Hall) -> Hall:
    return [row.replace("a", "X") for row in hall]


def leaves_single(row: str, start: int, size: int) -> bool:
    """True if sitting there makes a lonely free seat of one that had company."""
    after = row[:start] + "X" * size + row[start + size :]
    return len(singles(after)) > len(singles(row)) - (size == 1 and start in singles(row))


def singles(row: str) -> list[int]:
    return [run.start() for run in re.finditer(r"[.a]+", row) if len(run[0]) == 1]


def best_placement(hall: Hall, size: int) -> tuple[tuple[int, ...], str]:
    """The placement with the smallest rank; the cheap part of the rank first, the rest only among its equals."""
    everyone = [placement for placement in placements(hall, size) if placement[0] == size]
    together = [groups_in(masks, len(hall[0])) for _, _, groups, _, _, masks in everyone if groups == 1]
    if together:
        orphan, row, _, start = min(rank_together(hall, start, size) for [(start, _)] in together)
        first = row * len(hall[0]) + start
        return tuple(range(first, first + size)), "adjacent_orphan" if orphan else "adjacent"
    nearest = min((alone, last - first, first, groups) for _, alone, groups, first, last, _ in everyone)
    equals = [
        masks for _, alone, groups, first, last, masks in everyone if (alone, last - first, first, groups) == nearest
    ]
    best = min((groups_in(masks, len(hall[0])) for masks in equals), key=lambda groups: rank_apart(hall, groups))
    return tuple(start + n for start, share in best for n in range(share)), "split"


def placements(hall: Hall, size: int) -> list[tuple[int, int, int, int, int, tuple[int, ...]]]:
    """Every way to seat up to `size` people: people, alone, groups, first row, last row, a mask of seats per row."""
    found: list[tuple[int, int, int, int, int, tuple[int, ...]]] = [(0, 0, 0, -1, -1, ())]
    for row, seats in enumerate(hall):
        free = sum(1 << seat for seat, state in enumerate(seats) if state == ".")
        ways = [(mask, *COMPANY[mask]) for mask in range(1, 1 << len(seats)) if mask & free == mask]
        more = [
            (people + n, alone + a, groups + g, row if first < 0 else first, row, (*masks, mask))
            for people, alone, groups, first, _, masks in found
            for mask, n, a, g in ways
            if people + n <= size
        ]
        found = [
            (people, alone, groups, first, last, (*masks, 0)) for people, alone, groups, first, last, masks in found
        ]
        found += more
    return found


def company(mask: int) -> tuple[int, int, int]:
    """People, people alone and groups in one row, the people given as bits."""
    groups = re.findall("1+", f"{mask:b}")
    return mask.bit_count(), groups.count("1"), len(groups)


COMPANY = [company(mask) for mask in range(1 << 8)]


def groups_in(masks: tuple[int, ...], width: int) -> list[tuple[int, int]]:
    """(index of the leftmost seat, people) of each group, in index order."""
    found = []
    for row, mask in enumerate(masks):
        people = "".join("1" if mask >> seat & 1 else "0" for seat in range(width))
        found += [(row * width + group.start(), len(group[0])) for group in re.finditer("1+", people)]
    return found


def rank_together(hall: Hall, start: int, size: int) -> tuple[bool, int, bool, int]:
    row, seat = divmod(start, len(hall[0]))
    return leaves_single(hall[row], seat, size), row, room_around(hall, start) != (size, start), seat


def rank_apart(hall: Hall, groups: list[tuple[int, int]]) -> tuple[object, ...]:
    rooms = sorted((-length, first) for length, first in (room_around(hall, start) for start, _ in groups))
    shares = [share for _, share in groups]
    return rooms, sum(share * share for share in shares), [-share for share in shares], groups


def room_around(hall: Hall, seat: int) -> tuple[int, int]:
    """Length and leftmost index of the free run that `seat` is part of."""
    row, place = divmod(seat, len(hall[0]))
    [run] = [run for run in re.finditer(r"\.+", hall[row]) if run.start() <= place < run.end()]
    return len(run[0]), row * len(hall[0]) + run.start()


halls = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.text(".X.Xa", min_size=width, max_size=width), min_size=1, max_size=4)
)


@settings(max_examples=300, deadline=None)
@given(hall=halls, size=st.integers(1, 7))
def test_the_promises_to_a_party_hold_one_by_one(hall: Hall, size: int) -> None:
    """The same halls judged by what the ladder promises, over plain combinations: nothing here ranks anything."""
    width, ordinary = len(hall[0]), [i for i, seat in enumerate("".join(hall)) if seat == "."]
    choice = choose(subsection_of(hall), states_of(hall), Party(size))
    if len(ordinary) < size:
        assert choice is (Refusal.NO_BLOCK if ordinary else Refusal.SOLD_OUT)
        return
    assert isinstance(choice, Choice)
    assert len(set(choice.seats)) == size
    assert set(choice.seats) <= set(ordinary)
    assert list(choice.seats) == sorted(choice.seats)
    ways = [set(way) for way in combinations(ordinary, size)]
    blocks = [way for way in ways if max(way) - min(way) == size - 1 and max(way) // width == min(way) // width]
    if blocks:
        assert set(choice.seats) in blocks
        clean = [way for way in blocks if not stranded(way, ordinary, width)]
        assert (choice.how is How.ADJACENT) == bool(clean)
        assert set(choice.seats) in (clean or blocks)
    else:
        assert choice.how is How.SPLIT
        facts = [(alone(way, width), max(way) // width - min(way) // width, min(way) // width) for way in ways]
        seats = set(choice.seats)
        assert min(facts) == (alone(seats, width), max(seats) // width - min(seats) // width, min(seats) // width)


@settings(max_examples=300, deadline=None)
@given(hall=halls, data=st.data())
def test_a_pick_is_an_orphan_only_if_the_same_party_had_a_place_without_one(hall: Hall, data: st.DataObject) -> None:
    subsection, states, width = subsection_of(hall), states_of(hall), len(hall[0])
    free = [i for i, state in enumerate(states) if state == SeatState.AVAILABLE]
    if not free:
        return
    pick = data.draw(st.sets(st.sampled_from(free), min_size=1, max_size=6))
    needed = len(pick & subsection.accessible)
    usable = [seat for seat in free if needed or seat not in subsection.accessible]
    blocks = [
        set(way)
        for way in combinations(usable, len(pick))
        if way[-1] - way[0] == len(pick) - 1 and way[0] // width == way[-1] // width
    ]
    clean = [way for way in blocks if not stranded(way, usable, width) and len(way & subsection.accessible) == needed]
    assert strands_single(subsection, states, sorted(pick)) == bool(stranded(pick, usable, width) and clean)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_choice_itself_is_never_called_an_orphan(seed: int) -> None:
    """But a partial party that needs accessible seats takes what is left, wherever it is."""
    for hall, party in random_cases(random.Random(seed), RANDOM_CASES // 10):
        choice = choose(subsection_of(hall), states_of(hall), party)
        if isinstance(choice, Choice) and not (choice.how is How.PARTIAL and party.accessible):
            assert not strands_single(subsection_of(hall), states_of(hall), choice.seats), (hall, party)


def stranded(way: set[int], usable: list[int], width: int) -> list[int]:
    """Free seats that had company and have only people of the party, walls or taken seats beside them now."""
    left = set(usable) - way
    return [
        seat
        for seat in left
        if beside(seat, width) & way and not beside(seat, width) & left
    ]  # fmt: skip


def alone(way: set[int], width: int) -> int:
    return sum(not beside(seat, width) & way for seat in way)


def beside(seat: int, width: int) -> set[int]:
    return {other for other in (seat - 1, seat + 1) if other >= 0 and other // width == seat // width}
