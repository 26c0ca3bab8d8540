"""How well a rule fills a hall: the same parties in the same order, seated by first-fit, the seed's rule and ours.

Parties of 1 to 6 arrive in a seeded order; some give their seats back later, which tears gaps. Two sales per rule:
    together   a party that finds no seats side by side leaves; ends when not even two free seats are side by side
    apart      every party is seated, side by side or not, until the hall is full
Uses the models, not the store: the scripts are proven equal to `seating.choose`.
"""

import random
from collections.abc import Callable, Sequence

import msgspec

from aisle.bench.seat_fill_rules import first_fit, seed_halving
from aisle.reservation.seating import Choice, How, Party, Refusal, choose
from aisle.reservation.subsection import SeatState, Subsection, gaps_of

Rule = Callable[[Subsection, Sequence[int], Party], Choice | Refusal]

RULES: dict[str, Rule] = {"first_fit": first_fit, "seed_rule": seed_halving, "aisle": choose}
SIZES, WEIGHTS = (1, 2, 3, 4, 5, 6), (10, 40, 15, 20, 8, 7)
GIVES_BACK = 0.2

SHAPES = {
    "10 rows of 20": Subsection(10, 20),
    "25 rows of 8": Subsection(25, 8),
    "4 rows of 50": Subsection(4, 50),
    "12 rows of 15, accessible ends": Subsection(12, 15, frozenset(range(11 * 15, 11 * 15 + 4))),
}


class Fill(msgspec.Struct):
    """Sums over all seeds of a shape."""

    seats: int = 0
    seats_sold_together: int = 0
    stranded_singles: int = 0
    parties_turned_away: int = 0
    parties_seated_apart_sale: int = 0
    split_parties: int = 0
    people_alone: int = 0


def measure_seat_fill(seeds: int) -> dict[str, dict[str, dict[str, float]]]:
    table: dict[str, dict[str, dict[str, float]]] = {}
    total = {name: Fill() for name in RULES}
    for shape_name, shape in SHAPES.items():
        table[shape_name] = {}
        for rule_name, rule in RULES.items():
            fill = Fill()
            for seed in range(seeds):
                sell_together(shape, rule, seed, fill)
                sell_apart(shape, rule, seed, fill)
            table[shape_name][rule_name] = as_figures(fill)
            for name in Fill.__struct_fields__:
                setattr(total[rule_name], name, getattr(total[rule_name], name) + getattr(fill, name))
    return {"all shapes": {name: as_figures(fill) for name, fill in total.items()}, **table}


def as_figures(fill: Fill) -> dict[str, float]:
    return {
        "sell_through_percent": round(100 * fill.seats_sold_together / fill.seats, 2),
        "stranded_singles": fill.stranded_singles,
        "parties_turned_away": fill.parties_turned_away,
        "split_parties": fill.split_parties,
        "split_percent": round(100 * fill.split_parties / max(1, fill.parties_seated_apart_sale), 2),
        "people_alone": fill.people_alone,
    }


def sell_together(shape: Subsection, rule: Rule, seed: int, fill: Fill) -> None:
    states, arrivals = [int(SeatState.AVAILABLE)] * shape.seats, Arrivals(shape, seed)
    while longest_gap(shape, states) >= 2:
        size = arrivals.next_party(states)
        chosen = rule(shape, states, Party(size))
        if isinstance(chosen, Choice) and chosen.how in (How.ADJACENT, How.ADJACENT_ORPHAN):
            arrivals.seat(states, chosen.seats)
        else:
            fill.parties_turned_away += 1
    left = len(ordinary_free(shape, states))
    fill.seats += shape.seats - len(shape.accessible)
    fill.seats_sold_together += shape.seats - len(shape.accessible) - left
    fill.stranded_singles += left


def sell_apart(shape: Subsection, rule: Rule, seed: int, fill: Fill) -> None:
    states, arrivals = [int(SeatState.AVAILABLE)] * shape.seats, Arrivals(shape, seed)
    while free := len(ordinary_free(shape, states)):
        size = min(arrivals.next_party(states), free)
        chosen = rule(shape, states, Party(size))
        assert isinstance(chosen, Choice), f"{size} people were refused {free} seats"
        arrivals.seat(states, chosen.seats)
        fill.parties_seated_apart_sale += 1
        fill.split_parties += chosen.how is How.SPLIT
        fill.people_alone += people_alone(shape, chosen.seats)


class Arrivals:
    """Who comes and who gives back, the same for every rule: two seeded streams that never look at the seats.

    As many parties as a hall holds may give back; after that the hall can only fill.
    """

    def __init__(self, shape: Subsection, seed: int) -> None:
        self._sizes = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._backs = random.Random(-1 - seed)  # noqa: S311
        self._may_give_back = shape.seats // 4
        self._seated: list[Sequence[int]] = []

    def next_party(self, states: list[int]) -> int:
        [size] = self._sizes.choices(SIZES, WEIGHTS)
        if self._may_give_back > 0:
            self._may_give_back -= 1
            if self._backs.random() < GIVES_BACK and self._seated:
                for seat in self._seated.pop(self._backs.randrange(len(self._seated))):
                    states[seat] = SeatState.AVAILABLE
        return size

    def seat(self, states: list[int], seats: Sequence[int]) -> None:
        self._seated.append(seats)
        for seat in seats:
            states[seat] = SeatState.RESERVED


def ordinary_free(shape: Subsection, states: Sequence[int]) -> list[int]:
    return [seat for seat, state in enumerate(states) if state == SeatState.AVAILABLE and seat not in shape.accessible]


def longest_gap(shape: Subsection, states: Sequence[int]) -> int:
    return max((gap.length for gap in gaps_of(shape, ordinary_free(shape, states))), default=0)


def people_alone(shape: Subsection, seats: Sequence[int]) -> int:
    """People of a party of two or more with nobody of it beside them."""
    return sum(gap.length == 1 for gap in gaps_of(shape, seats)) if len(seats) > 1 else 0
