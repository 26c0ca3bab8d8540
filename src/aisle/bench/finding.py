"""How long one question takes: find and take two seats in a subsection or in the hall, open an event, read its status.

Time inside the server comes from its SLOWLOG with the threshold at zero: wall-clock microseconds of every single call,
collecting garbage and being put off the core included. What needs several round trips, or Python on our side, is timed
as its caller sees it.
"""

import random
import statistics
import time
from collections.abc import Sequence

import msgspec

from aisle.bench.cost import percentile
from aisle.bench.selling import PARTY
from aisle.bench.stage import EPOCH, Stage
from aisle.reservation.claims import Claim, Outcome, Settled, Settlement, Verb
from aisle.reservation.hall import HallChooser
from aisle.reservation.inventory import CLAIM, SETTLE, Hall
from aisle.reservation.keys import Place
from aisle.reservation.reads import statuses
from aisle.reservation.subsection import Subsection
from aisle.store import Command

PERCENT_FULL = (0, 50, 95, 99)
SAMPLES_A_PATTERN = 50
WARM_UP_CLAIMS = 5
SLOWLOG = {"slowlog-log-slower-than": 0, "slowlog-max-len": 10_000}

_pack = msgspec.msgpack.Encoder().encode
_outcomes = msgspec.msgpack.Decoder(list[Outcome]).decode
_settled = msgspec.msgpack.Decoder(list[Settled]).decode


class Spread(msgspec.Struct, frozen=True):
    p50: float
    p99: float
    worst: float
    samples: int


async def measure_finding(stage: Stage, *, in_a_row: bool) -> dict[int, Spread]:
    """Server microseconds to find and take two adjacent seats, by how full the subsection is.

    Each claim is released before the next. In a row, as in a rush, the server has the next call when it ends one;
    otherwise it waits for each and finds its memory as cold as others on the machine have made it. The levels take
    turns, and the medians of the rounds are told: a neighbour who is noisy for a second disturbs one round.
    """
    before = await stage.store.call("CONFIG", "GET", *SLOWLOG)
    await _configure(stage, SLOWLOG)
    rounds: dict[int, list[Spread]] = {percent: [] for percent in PERCENT_FULL}
    for _ in range(stage.sizes.rounds):
        for percent in PERCENT_FULL:
            samples: list[int] = []
            for pattern in range(max(1, stage.sizes.samples // SAMPLES_A_PATTERN)):
                samples += await _times_of_pattern(stage, percent, 1000 * percent + pattern, in_a_row)
            rounds[percent].append(spread_of(samples))
    await _configure(stage, dict(zip(before[::2], before[1::2], strict=True)))
    return {percent: median_spread(spreads) for percent, spreads in rounds.items()}


async def measure_hall_best(stage: Stage) -> dict[int, Spread]:
    """Microseconds until a party of two has the best seats of the whole event, by how full the event is."""
    spreads = {}
    for percent in PERCENT_FULL:
        halls = stage.new_halls()
        await stage.open(halls)
        for hall in halls:
            await _fill(stage, hall, percent, seed=1000 * percent + hall.rank)
        chooser = HallChooser(stage.store, stage.inventory, halls[0].place.event)
        samples = []
        for n in range(stage.sizes.samples):
            claim = Claim(id=f"h-{halls[0].place.event}-{n}", owner="finder", size=PARTY)
            started = time.perf_counter()
            seated = await chooser.claim_best(claim, epoch=EPOCH)
            samples.append((time.perf_counter() - started) * 1e6)
            [(place, _)] = seated.outcomes
            await _settle(stage, place, Verb.RELEASE, claim)
        spreads[percent] = spread_of(samples)
        await stage.clear(halls)
    return spreads


async def measure_opening(stage: Stage) -> float:
    """Seconds to open a whole event, from Python values to on sale; the median of the rounds."""
    samples = []
    for _ in range(stage.sizes.rounds):
        halls = stage.new_halls()
        started = time.perf_counter()
        await stage.open(halls)
        samples.append(time.perf_counter() - started)
        await stage.clear(halls)
    return percentile(samples, 50)


async def measure_status(stage: Stage) -> Spread:
    """Milliseconds to read the counters of every subsection of an event in one pipeline, seen from the caller."""
    halls = stage.new_halls()
    await stage.open(halls)
    places = [hall.place for hall in halls]
    samples = []
    for _ in range(stage.sizes.samples):
        started = time.perf_counter()
        found = await statuses(stage.store, places)
        samples.append((time.perf_counter() - started) * 1000)
    assert sum(status.available for status in found if status) == stage.sizes.seats
    await stage.clear(halls)
    return spread_of(samples)


def spread_of(samples: Sequence[float]) -> Spread:
    p50, p99 = percentile(samples, 50), percentile(samples, 99)
    return Spread(round(p50, 3), round(p99, 3), round(max(samples), 3), len(samples))


def median_spread(rounds: Sequence[Spread]) -> Spread:
    """Field by field, except that the worst call of all stays the worst."""
    p50, p99 = statistics.median(one.p50 for one in rounds), statistics.median(one.p99 for one in rounds)
    return Spread(p50, p99, max(one.worst for one in rounds), sum(one.samples for one in rounds))


async def _times_of_pattern(stage: Stage, percent: int, seed: int, in_a_row: bool) -> list[int]:
    [hall, other] = halls = stage.new_halls(2)
    await stage.open(halls)
    await _fill(stage, hall, percent, seed)
    await stage.store.call("SLOWLOG", "RESET")
    # The first script after this costs the server five times what the next ones do, in whatever subsection: that is the
    # price of the reset, not of finding seats.
    for n in range(WARM_UP_CLAIMS):
        await stage.inventory.claim(other.place, [Claim(id=f"w-{n}", owner="warm", size=PARTY)], epoch=EPOCH)
    claims = [
        Claim(id=f"f-{n}", owner="finder", size=PARTY) for n in range(min(SAMPLES_A_PATTERN, stage.sizes.samples))
    ]
    taken = await (_take_in_a_row if in_a_row else _take_one_by_one)(stage, hall.place, claims)
    assert all(outcome.ok for outcome in taken)
    assert all(len(outcome.runs) == 2 for outcome in taken), "the pattern has no two free seats side by side"
    entries = await stage.store.call("SLOWLOG", "GET", -1)
    await stage.clear(halls)
    newest_first = [int(entry[2]) for entry in entries if entry[3][:2] == [b"EVALSHA", CLAIM.sha]]
    return newest_first[:-WARM_UP_CLAIMS]


async def _take_one_by_one(stage: Stage, place: Place, claims: Sequence[Claim]) -> list[Outcome]:
    taken = []
    for claim in claims:
        taken += await stage.inventory.claim(place, [claim], epoch=EPOCH)
        await _settle(stage, place, Verb.RELEASE, claim)
    return taken


async def _take_in_a_row(stage: Stage, place: Place, claims: Sequence[Claim]) -> list[Outcome]:
    keys = stage.inventory.keys(place)
    commands: list[Command] = []
    for claim in claims:
        release = Settlement(Verb.RELEASE, claim.id, claim.owner)
        for sha, asked in ((CLAIM.sha, claim.packed()), (SETTLE.sha, release.packed())):
            commands.append((b"EVALSHA", sha, len(keys), *keys, EPOCH, _pack([asked])))
    replies = await stage.store.call_many(commands)
    assert all(settled.ok for reply in replies[1::2] for settled in _settled(reply))
    return [outcome for reply in replies[::2] for outcome in _outcomes(reply)]


async def _fill(stage: Stage, hall: Hall, percent: int, seed: int) -> None:
    """Half of the taken seats sold, half reserved, scattered, with at least one pair left side by side."""
    taken = taken_seats(hall.shape, percent, random.Random(seed))  # noqa: S311 - repeatable on purpose
    sold, reserved = taken[::2], taken[1::2]
    for name, seats in (("sold", sold), ("reserved", reserved)):
        if seats:
            claim = Claim(id=name, owner="filler", seats=tuple(seats))
            [outcome] = await stage.inventory.claim(hall.place, [claim], epoch=EPOCH)
            assert outcome.ok
    if sold:
        await _settle(stage, hall.place, Verb.CONFIRM, Claim(id="sold", owner="filler"))


def taken_seats(shape: Subsection, percent: int, chance: random.Random) -> list[int]:
    pair = shape.index(chance.randint(1, shape.rows), chance.randint(1, shape.seats_per_row - 1))
    others = [seat for seat in range(shape.seats) if seat not in (pair, pair + 1)]
    return chance.sample(others, min(len(others), shape.seats * percent // 100))


async def _settle(stage: Stage, place: Place, verb: Verb, claim: Claim) -> None:
    [settled] = await stage.inventory.settle(place, [Settlement(verb, claim.id, claim.owner)], epoch=EPOCH)
    assert settled.ok


async def _configure(stage: Stage, settings: dict[str, int]) -> None:
    await stage.store.call("CONFIG", "SET", *(item for pair in settings.items() for item in pair))
