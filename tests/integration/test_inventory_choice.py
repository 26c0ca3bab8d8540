"""The Lua that chooses seats inside the store equals `seating.choose`, seat for seat, on 100,000 random halls.

A test script loads only the files that choose and answers a thousand halls a call, so that the comparison costs
what the choice costs. The seeds are fixed: a difference comes back every time.
"""

import hashlib
import random

import msgspec
import pytest

from aisle.reservation.claims import Rung, seats_of
from aisle.reservation.seating import Party, Refusal, choose
from aisle.reservation.subsection import SeatState, Subsection, pack
from aisle.scripts import Script, read_lua
from aisle.store import open_store
from tests.integration.inventory_model import RUNGS

pytest_plugins = ["tests.integration.stores"]

SEEDS = range(10)
CALLS, CASES = 10, 1000

CHOOSE_MANY = b"""
local answers = {}
for i, q in ipairs(cmsgpack.unpack(ARGV[1])) do
  local how, runs = choose(q[1], q[2], q[3], q[4], q[5], q[6], q[7], q[8])
  answers[i] = {how or 0, runs}
end
return cmsgpack.pack(answers)
"""


def choosing_script() -> Script:
    source = b"\n".join([*(read_lua("aisle.reservation", name).encode() for name in ("seats", "choice")), CHOOSE_MANY])
    return Script("choose_many", source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())


@pytest.mark.parametrize("seed", SEEDS)
async def test_lua_chooses_the_seats_the_model_chooses(seed, config, metrics):
    await compare_choices(config, metrics, random.Random(seed), CALLS)


async def test_lua_chooses_alike_on_every_kind_of_store(any_config, metrics):
    await compare_choices(any_config, metrics, random.Random(1_000), 1)


async def compare_choices(config, metrics, rnd, calls):
    script = choosing_script()
    async with open_store(config, metrics) as store:
        for _ in range(calls):
            cases = [random_case(rnd) for _ in range(CASES)]
            packed = msgspec.msgpack.encode([as_arguments(*case) for case in cases])
            answers = msgspec.msgpack.decode(await store.run(script, (), (packed,)))
            for case, answer in zip(cases, answers, strict=True):
                assert answer_of(answer) == expected(*case), drawn(*case)


def random_case(rnd):
    # Small halls meet the corner cases, long rows the byte boundaries; both ends of fullness matter.
    small, long = (rnd.randint(1, 5), rnd.randint(1, 9)), (rnd.randint(1, 4), rnd.randint(10, 37))
    longest = (rnd.randint(1, 2), rnd.randint(400, 500))
    [(rows, width)] = rnd.choices([small, long, longest], weights=[50, 49, 1])
    full = rnd.choice([0.0, 0.2, 0.5, 0.7, 0.9, 1.0])
    taken = (SeatState.RESERVED, SeatState.SOLD, SeatState.UNAVAILABLE)
    states = [rnd.choice(taken) if rnd.random() < full else SeatState.AVAILABLE for _ in range(rows * width)]
    accessible = rnd.choice([0, 0, 0.1, 0.3])
    shape = Subsection(rows, width, frozenset(seat for seat in range(rows * width) if rnd.random() < accessible))
    size = rnd.choice([1, 2, 2, 3, 4, 5, 6, 8, rnd.randint(1, rows * width)])
    needing = rnd.choice([0, 0, 1, rnd.randint(0, size)])
    return shape, states, Party(size, needing, rnd.random() < 0.3), rnd.choice([3, 3, 3, 2, 1])


def as_arguments(shape, states, party, worst):
    walls = [SeatState.UNAVAILABLE if s in shape.accessible else SeatState.AVAILABLE for s in range(shape.seats)]
    packed_walls = pack(shape, walls) if shape.accessible else b""
    partial = party.allow_partial
    # Text, not bytes: the store's msgpack knows strings only, and a string of it may hold any byte.
    return [
        msgspec.Raw(as_string(pack(shape, states))), msgspec.Raw(as_string(packed_walls)), shape.seats_per_row,
        shape.seats, party.size, party.accessible, partial, worst,
    ]  # fmt: skip


def as_string(value):
    return b"\xda" + len(value).to_bytes(2) + value


def answer_of(answer):
    how, runs = answer
    return runs if how == 0 else (Rung(how), seats_of(runs))


def expected(shape, states, party, worst):
    choice = choose(shape, states, party)
    if isinstance(choice, Refusal):
        return choice.value
    rung = RUNGS[choice.how]
    # Fewer seats are asked for by name, so they are the last rung of those who accept being split.
    return (rung, choice.seats) if min(rung, Rung.SPLIT) <= worst else Refusal.NO_BLOCK.value


def drawn(shape, states, party, worst):
    marks = [".RX#"[state] if seat not in shape.accessible else "arxA"[state] for seat, state in enumerate(states)]
    width = shape.seats_per_row
    rows = ("".join(marks[row : row + width]) for row in range(0, len(marks), width))
    return f"{party}, worst rung {worst}: {'/'.join(rows)}"
