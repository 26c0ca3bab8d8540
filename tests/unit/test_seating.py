"""Seat choice on drawn halls: one row per "/", before and after.

"." free   "a" free and accessible   "X" sold   "A" sold and accessible   "R" reserved   "#" not for sale
"o" and "O" are the seats the party got.
"""

import runpy
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisle.bench.seat_fill_rules import first_fit, seed_halving
from aisle.reservation.seating import BadParty, Choice, How, Party, Refusal, choose, strands_single
from aisle.reservation.subsection import BadSeat, BadStates, BadSubsection, SeatState, Subsection, pack, unpack

STATES = {
    ".": SeatState.AVAILABLE,
    "a": SeatState.AVAILABLE,
    "X": SeatState.SOLD,
    "A": SeatState.SOLD,
    "R": SeatState.RESERVED,
    "#": SeatState.UNAVAILABLE,
}
Rule = Callable[[Subsection, Sequence[int], Party], Choice | Refusal]
DOCS = Path(__file__).parents[2] / "docs"


def hall(drawing: str) -> tuple[Subsection, list[SeatState]]:
    rows = drawing.split("/")
    seats = "".join(rows)
    accessible = frozenset(index for index, seat in enumerate(seats) if seat in "aA")
    return Subsection(len(rows), len(rows[0]), accessible), [STATES[seat] for seat in seats]


def seated(drawing: str, party: Party, rule: Rule = choose) -> tuple[str, str]:
    """How the party was seated, and the hall afterwards."""
    subsection, states = hall(drawing)
    choice = rule(subsection, states, party)
    if isinstance(choice, Refusal):
        return choice.value, drawing
    seats = list(drawing.replace("/", ""))
    for seat in choice.seats:
        assert states[seat] == SeatState.AVAILABLE
        seats[seat] = {".": "o", "a": "O"}[seats[seat]]
    width = subsection.seats_per_row
    return choice.how.value, "/".join("".join(seats[row : row + width]) for row in range(0, len(seats), width))


@pytest.mark.parametrize(
    ("before", "size", "after"),
    [
        pytest.param("....../......", 2, "oo..../......", id="the best row first, from its left end"),
        pytest.param("X.XX../......", 3, "X.XX../ooo...", id="the first row that has room"),
        pytest.param("....X..", 2, "....Xoo", id="a gap of exactly the party before a longer one"),
        pytest.param("..X..X....", 2, "ooX..X....", id="the leftmost of two gaps that fit exactly"),
        pytest.param("X....X.....", 2, "Xoo..X.....", id="the leftmost of two longer gaps"),
        pytest.param("....../..XXXX", 2, "oo..../..XXXX", id="a better row before a better fit"),
        pytest.param("...XXX/......", 2, "...XXX/oo....", id="past a gap that would strand a single"),
        pytest.param("...X....", 2, "...Xoo..", id="past such a gap in the same row too"),
        pytest.param("..X...", 1, "..Xo..", id="one person does not break a pair"),
        pytest.param("..X.", 1, "..Xo", id="one person takes the single seat"),
        pytest.param("R#X..R", 2, "R#XooR", id="only an available seat is usable"),
        pytest.param("...XX/XX..X", 2, "...XX/XXooX", id="an exact gap in a later row before an orphan"),
        pytest.param("XX../..XX", 2, "XXoo/..XX", id="a gap ends with its row"),
    ],
)
def test_adjacent_without_an_orphan(before: str, size: int, after: str) -> None:
    assert seated(before, Party(size)) == ("adjacent", after)


@pytest.mark.parametrize(
    ("before", "size", "after"),
    [
        pytest.param("X...X/XXXXX", 2, "Xoo.X/XXXXX", id="the left end, the single on the right"),
        pytest.param("XXXXX/X...X/...XX", 2, "XXXXX/Xoo.X/...XX", id="the best row with such a gap"),
        pytest.param("..X..", 1, "o.X..", id="one person must break a pair when only pairs are left"),
    ],
)
def test_adjacent_with_an_orphan_only_when_nothing_else_is_left(before: str, size: int, after: str) -> None:
    assert seated(before, Party(size)) == ("adjacent_orphan", after)


@pytest.mark.parametrize(
    ("before", "size", "after"),
    [
        pytest.param("..X..X.", 4, "ooXooX.", id="4 = 2 + 2"),
        pytest.param("...X...", 5, "oooXoo.", id="5 = 3 + 2, the bigger share first"),
        pytest.param("...X...", 4, "oo.Xoo.", id="4 = 2 + 2 although 3 + 1 would fit"),
        pytest.param("...X...", 6, "oooXooo", id="6 = 3 + 3"),
        pytest.param("..X..X..", 6, "ooXooXoo", id="6 = 2 + 2 + 2"),
        pytest.param("..X..X...X...", 6, "..X..XoooXooo", id="the fewest gaps, so the largest"),
        pytest.param("..X...", 5, "ooXooo", id="a short gap is filled, the rest goes to the longer one"),
        pytest.param(".....X....X...", 7, "oooo.Xooo.X...", id="7 = 4 + 3 in the two largest gaps"),
        pytest.param("X..XX/X..XX/..X..", 4, "X..XX/X..XX/ooXoo", id="one row before two better rows"),
        pytest.param("..XX/XXXX/..XX/..XX", 4, "..XX/XXXX/ooXX/ooXX", id="near rows before the best row"),
        pytest.param("..XX/..XX/..XX", 4, "ooXX/ooXX/..XX", id="the best of equally near rows"),
        pytest.param("...X./XXXXX/..XXX", 4, "oo.X./XXXXX/ooXXX", id="company before nearness"),
        pytest.param("..X..X", 3, "ooXo.X", id="an odd party in gaps of two: one alone in another two"),
        pytest.param("..X.XX", 3, "ooXoXX", id="or in a single seat if there is no other two"),
        pytest.param(
            "..XX/.XXX/..XX/...X", 5, "..XX/.XXX/ooXX/oooX", id="no one alone if a three makes the party even"
        ),
        pytest.param("..X.X/.X.X.", 5, "ooXoX/oXoX.", id="gaps of two first, then as few alone as possible"),
        pytest.param("...X....", 5, "oooXoo..", id="the bigger share to the first gap, even if it is the shorter"),
        pytest.param("..X./..XX", 3, "ooXo/..XX", id="one alone in one row before one alone in two"),
        pytest.param("..X..X../...XX..X", 5, "..X..X../oooXXooX", id="nobody alone in row 2 before one alone in row 1"),
        pytest.param(".X.X.X./..XXXXX", 4, "oXoX.X./ooXXXXX", id="two alone in two rows before four alone in one"),
        pytest.param(".X.X.", 3, "oXoXo", id="everybody alone when only singles are left"),
        pytest.param("XXXX/.XXX/XXXX/.XXX/.XXX", 2, "XXXX/.XXX/XXXX/oXXX/oXXX", id="people alone sit in near rows too"),
    ],
)
def test_split_when_no_gap_holds_the_party(before: str, size: int, after: str) -> None:
    assert seated(before, Party(size)) == ("split", after)


@pytest.mark.parametrize(
    ("before", "party", "answer", "after"),
    [
        pytest.param("XX/XX", Party(1), "sold_out", "XX/XX", id="no seat"),
        pytest.param("XX/XX", Party(1, allow_partial=True), "sold_out", "XX/XX", id="no seat, however modest"),
        pytest.param("aX/Xa", Party(1), "sold_out", "aX/Xa", id="no seat that this party may use"),
        pytest.param(".X/.X", Party(3), "no_block", ".X/.X", id="fewer seats than people"),
        pytest.param(".X/.X", Party(3, allow_partial=True), "partial", "oX/oX", id="all that is left, row by row"),
        pytest.param(".a/.X", Party(3, allow_partial=True), "partial", "oa/oX", id="never the accessible seats"),
        pytest.param("..X./....", Party(3, allow_partial=True), "adjacent_orphan", "..X./ooo.", id="enough: as usual"),
        pytest.param("..", Party(10_000), "no_block", "..", id="more people than seats were ever built"),
    ],
)
def test_too_few_seats(before: str, party: Party, answer: str, after: str) -> None:
    assert seated(before, party) == (answer, after)


@pytest.mark.parametrize(
    ("before", "size", "how", "after"),
    [
        pytest.param("aa..../......", 2, "adjacent", "aaoo../......", id="the party sits beside the wall"),
        pytest.param("..a..", 3, "split", "ooao.", id="or around it, although the row is empty"),
        pytest.param("...a", 2, "adjacent_orphan", "oo.a", id="a seat left between party and wall is a single"),
    ],
)
def test_an_accessible_seat_is_a_wall_to_people_who_do_not_need_it(
    before: str, size: int, how: str, after: str
) -> None:
    assert seated(before, Party(size)) == (how, after)


@pytest.mark.parametrize(
    ("before", "party", "how", "after"),
    [
        pytest.param("..../a.../a...", Party(2, 1), "adjacent", "..../Oo../a...", id="the best row with such a block"),
        pytest.param("a...a...", Party(2, 1), "adjacent", "Oo..a...", id="the leftmost in the row"),
        pytest.param("..a../XXa.X", Party(2, 1), "adjacent", "..a../XXOoX", id="strands no single"),
        pytest.param("..a..", Party(2, 1), "adjacent_orphan", ".oO..", id="strands one if every block does"),
        pytest.param("aa..", Party(2, 1), "adjacent_orphan", "aOo.", id="a single before a spare accessible seat"),
        pytest.param("aaX", Party(2, 1), "adjacent", "OOX", id="a spare accessible seat before being parted"),
        pytest.param("aaaaa/Xaa.X", Party(3, 1), "adjacent", "aaaaa/XOOoX", id="as few spare ones as possible"),
        pytest.param("aXa", Party(2, 2), "split", "OXO", id="no block: the first accessible seats"),
        pytest.param("aX.../XXaX.", Party(3, 1), "split", "OXoo./XXaX.", id="and the others by the ordinary ladder"),
        pytest.param("aXaX.", Party(3, 1), "no_block", "aXaX.", id="parted people use up no spare accessible seat"),
        pytest.param("aXaX.", Party(3, 1, allow_partial=True), "partial", "OXaXo", id="not even a partial party"),
        pytest.param("aXX..", Party(3, 2, allow_partial=True), "no_block", "aXX..", id="too few accessible seats"),
        pytest.param("AXXX", Party(1, 1), "sold_out", "AXXX", id="no seat at all"),
    ],
)
def test_a_party_that_needs_accessible_seats(before: str, party: Party, how: str, after: str) -> None:
    assert seated(before, party) == (how, after)


@pytest.mark.parametrize(
    ("before", "pick", "orphan"),
    [
        pytest.param("......", [1, 2], True, id="one seat left on the left"),
        pytest.param("......", [0, 1], False, id="four seats left"),
        pytest.param("......", [0, 1, 3, 4], True, id="holes count, since the party could sit in one block"),
        pytest.param("...", [0, 1], False, id="every pair strands one: nobody is refused a last resort"),
        pytest.param("...X..", [0, 1], True, id="but not while another gap fits"),
        pytest.param("...XXX/..XXXX", [0, 1], True, id="in any row"),
        pytest.param("..X..", [0, 1, 3], False, id="a party that no gap holds sits as it likes"),
        pytest.param(".X..", [2, 3], False, id="a single that was there before is nobody's orphan"),
        pytest.param("..a...", [0], True, id="to this pick the accessible seat is a wall"),
        pytest.param("..a...", [2, 3], False, id="to this one it is a seat"),
        pytest.param("..a...", [1, 2], True, id="and this one could have moved"),
        pytest.param("aX.a", [0, 2], True, id="as a partial party of one accessible and all ordinary seats would sit"),
        pytest.param("aa..", [1, 2], False, id="but not onto a second accessible seat"),
    ],
)
def test_a_manual_pick_that_strands_a_single(before: str, pick: list[int], orphan: bool) -> None:
    assert strands_single(*hall(before), pick) is orphan


@pytest.mark.parametrize(
    ("pick", "complaint"),
    [([], "no seat"), ([0, 0], "twice"), ([1], "1-2 is not available"), ([4], "indexes 0 to 3"), ([-1], "seat -1")],
)
def test_a_pick_that_is_not_free_seats_is_an_error(pick: list[int], complaint: str) -> None:
    with pytest.raises(BadSeat, match=complaint):
        strands_single(*hall(".R.."), pick)


@pytest.mark.parametrize(
    ("rule", "before", "size", "how", "after"),
    [
        (first_fit, "...X..", 2, "adjacent", "oo.X.."),
        (first_fit, ".X../XX..", 3, "split", "oXoo/XX.."),
        (first_fit, "a.X", 2, "no_block", "a.X"),
        (seed_halving, "...X..", 2, "adjacent", "oo.X.."),
        (seed_halving, ".X..X/..XXX", 4, "split", ".XooX/ooXXX"),
        (seed_halving, "..X...X.", 5, "split", "ooXoooX."),
        (seed_halving, ".X.X.", 3, "split", "oXoXo"),
        (seed_halving, "aX", 1, "sold_out", "aX"),
    ],
)
def test_the_rules_we_are_measured_against(rule: Rule, before: str, size: int, how: str, after: str) -> None:
    assert seated(before, Party(size), rule) == (how, after)


@st.composite
def states_of_a_subsection(draw: st.DrawFn) -> tuple[Subsection, list[int]]:
    subsection = Subsection(draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    return subsection, draw(st.lists(st.integers(0, 3), min_size=subsection.seats, max_size=subsection.seats))


@given(states_of_a_subsection())
def test_two_bits_a_seat_the_first_seat_in_the_top_bits_and_back(case: tuple[Subsection, list[int]]) -> None:
    subsection, states = case
    packed = pack(subsection, states)
    bits = "".join(f"{byte:08b}" for byte in packed)
    assert len(packed) == -(-2 * subsection.seats // 8)
    assert bits == "".join(f"{state:02b}" for state in states).ljust(len(bits), "0")
    assert unpack(subsection, packed) == states


@given(st.binary(min_size=3, max_size=3))
def test_bits_are_read_exactly_or_refused(packed: bytes) -> None:
    subsection = Subsection(2, 5)
    if packed[-1] & 0b1111:
        with pytest.raises(BadStates, match="last 4 bits are padding"):
            unpack(subsection, packed)
    else:
        assert pack(subsection, unpack(subsection, packed)) == packed


@pytest.mark.parametrize("size", [0, 2, 4])
def test_bits_of_another_subsection_are_refused(size: int) -> None:
    with pytest.raises(BadStates, match=f"{size} bytes for 10 seats; 3 expected"):
        unpack(Subsection(2, 5), bytes(size))


@pytest.mark.parametrize(
    ("states", "complaint"), [([0], "1 states for 2"), ([0, 4], "1-2 has state 4"), ([-1, 0], "-1")]
)
def test_states_that_are_not_of_this_subsection_are_refused(states: list[int], complaint: str) -> None:
    for use in (pack, lambda subsection, states: choose(subsection, states, Party(1))):
        with pytest.raises(BadStates, match=complaint):
            use(Subsection(1, 2), states)


@given(st.integers(1, 25), st.integers(1, 20))
def test_a_seat_has_one_index_and_one_name(row: int, seat: int) -> None:
    subsection = Subsection(25, 20)
    index = subsection.index(row, seat)
    assert index == (row - 1) * 20 + seat - 1
    assert subsection.name(index) == f"{row}-{seat}"
    assert subsection.named(f"{row}-{seat}") == index
    assert subsection.row(index) == row


@pytest.mark.parametrize(
    "name",
    ["", "5", "5-", "-5", "05-1", "5-01", "5-1 ", "\u0665-1", "0-1", "1-0", "26-1", "1-21", "1-1-1", "9" * 99 + "-1"],
)
def test_a_name_that_names_no_seat_is_refused(name: str) -> None:
    with pytest.raises(BadSeat):
        Subsection(25, 20).named(name)


@pytest.mark.parametrize(
    ("rows", "width", "accessible", "complaint"),
    [
        (0, 5, (), "rows must be at least 1"),
        (5, 0, (), "seats per row must be 1 to 500, not 0"),
        (1, 501, (), "seats per row must be 1 to 500, not 501"),
        (21, 500, (), "21 rows of 500 are more than 10000 seats"),
        (2, 3, (6,), "accessible seat 6 is not one of the indexes 0 to 5"),
        (2, 3, (-1,), "accessible seat -1"),
    ],
)
def test_an_impossible_subsection_is_refused(
    rows: int, width: int, accessible: tuple[int, ...], complaint: str
) -> None:
    with pytest.raises(BadSubsection, match=complaint):
        Subsection(rows, width, frozenset(accessible))


@pytest.mark.parametrize(("size", "accessible"), [(0, 0), (-1, 0), (10_001, 0), (2, 3), (2, -1)])
def test_an_impossible_party_is_refused(size: int, accessible: int) -> None:
    with pytest.raises(BadParty):
        Party(size, accessible)


def test_the_largest_subsection_is_seated_from_first_to_last_seat() -> None:
    subsection = Subsection(20, 500)
    assert choose(subsection, [0] * 10_000, Party(10_000)) == Choice(tuple(range(10_000)), How.SPLIT)


def test_the_pictures_show_what_the_model_does() -> None:
    drawn = runpy.run_path(str(DOCS / "pictures" / "draw_seat_choice.py"))["pictures"]()
    stored = {path.name: path.read_text() for path in (DOCS / "explanation" / "pictures").glob("seat-choice-*.svg")}
    assert drawn == stored, "run docs/pictures/draw_seat_choice.py"
    page = (DOCS / "explanation" / "seat-choice.md").read_text()
    assert [name for name in drawn if f"pictures/{name}" not in page] == []
