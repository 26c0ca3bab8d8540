"""What the buyers of the benchmarks order: always the same, and to the last seat."""

import io
from collections import Counter

import pytest

from aisle.bench import report
from aisle.bench.rush import QUICK, Size, deck_of

ODD = Size(sections=2, subsections=3, rows=3, seats_per_row=7)


@pytest.mark.parametrize("order", ["random", "hot"])
@pytest.mark.parametrize("parties", ["two", "mix"])
def test_every_subsection_is_ordered_to_its_last_seat_the_same_way_every_time(order, parties):
    deck = deck_of(ODD, order=order, parties=parties)
    assert deck == deck_of(ODD, order=order, parties=parties)
    seats = Counter[tuple[str, int]]()
    for section, subsection, party in deck:
        seats[section, subsection] += party
    assert seats == dict.fromkeys(ODD.places, ODD.seats_each)


def test_hot_is_best_first_and_mix_has_every_size_of_party():
    deck = deck_of(Size(), order="hot", parties="mix")
    places = [(section, subsection) for section, subsection, _ in deck]
    assert places == sorted(places, key=Size().places.index)
    assert {party for *_, party in deck} == {1, 2, 3, 4, 5, 6}


def test_the_default_is_pairs_anywhere():
    deck = deck_of(QUICK)
    assert len(deck) == QUICK.seats // 2
    assert {party for *_, party in deck} == {2}
    assert deck != deck_of(QUICK, order="hot")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_one_line_on_a_terminal_and_nothing_elsewhere(monkeypatch):
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        monkeypatch.setattr("sys.stderr", stream)
        report.bar("selling", 1_000, 2_000)
        report.bar("selling", 2_000, 2_000)
        report.bar("", 1, 2)
    assert pipe.getvalue() == ""
    assert terminal.getvalue().count("\n") == 1
    assert terminal.getvalue().endswith("2,000 of 2,000  selling\n")
