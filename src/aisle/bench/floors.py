"""What a claim could cost at least: a bare round trip, a script that does nothing, a claim's commands without a script.

`bench/BUDGET.md` sets the cost of a claim against these. None of them sells anything.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence

import respline
from aisle.bench.cost import Cost, cost_of, median
from aisle.bench.stage import EPOCH, Stage
from aisle.reservation.inventory import Hall
from aisle.scripts import Script

GETS_A_TASK = 500
CALLS_A_ROUND_TRIP = 100

_NOTHING = b"return 1"
NOTHING = Script("nothing", _NOTHING, hashlib.sha1(_NOTHING, usedforsecurity=False).hexdigest().encode())


async def measure_floors(stage: Stage, url: str) -> dict[str, Cost]:
    halls = stage.new_halls()
    await stage.open(halls)
    line = await respline.open_line(url)
    try:
        return {
            "get_over_respline": await _median_of_rounds(stage, lambda: _all_get(stage, line, halls[0])),
            "empty_script": await _median_of_rounds(stage, lambda: _run_nothing(stage, halls)),
            "commands_of_a_claim": await _median_of_rounds(stage, lambda: _send_commands(line, stage, halls)),
        }
    finally:
        await line.aclose()
        await stage.clear(halls)


async def _median_of_rounds(stage: Stage, work: Callable[[], Awaitable[int]]) -> Cost:
    return median([await cost_of(stage.store, work()) for _ in range(stage.sizes.rounds)])


async def _all_get(stage: Stage, line: "respline.Line", hall: Hall) -> int:
    """GET of a seat map, as many callers as sell one by one, nothing of ours but the connection."""
    key = stage.inventory.keys(hall.place)[0]

    async def ask() -> int:
        for _ in range(GETS_A_TASK):
            await line.call(b"GET", key)
        return GETS_A_TASK

    return sum(await asyncio.gather(*(ask() for _ in range(stage.sizes.tasks))))


async def _run_nothing(stage: Stage, halls: Sequence[Hall]) -> int:
    """The keys and arguments of a claim, handed to a script that returns at once."""
    calls = [(stage.inventory.keys(hall.place), (EPOCH, b"x" * 40)) for hall in halls] * CALLS_A_ROUND_TRIP
    for at in range(0, len(calls), CALLS_A_ROUND_TRIP):
        await stage.store.run_many(NOTHING, calls[at : at + CALLS_A_ROUND_TRIP])
    return len(calls)


async def _send_commands(line: "respline.Line", stage: Stage, halls: Sequence[Hall]) -> int:
    """What a claim of two seats reads and writes, as plain commands in a pipeline: neither atomic nor a choice."""
    claims = [(hall, n) for n in range(stage.sizes.shape.seats // 2) for hall in halls]
    for at in range(0, len(claims), CALLS_A_ROUND_TRIP):
        some = claims[at : at + CALLS_A_ROUND_TRIP]
        await line.call_many([command for hall, n in some for command in _commands(stage, hall, n)])
    return len(claims)


def _commands(stage: Stage, hall: Hall, n: int) -> list[tuple[respline.Argument, ...]]:
    seats, config, stats, rows, owners, holds, _ = stage.inventory.keys(hall.place)
    row, first = 2 * n // stage.sizes.seats_per_row + 1, 2 * n % stage.sizes.seats_per_row + 1
    claim, record = f"bk-{n}", f"L|b|buyer-{n}|3000|1760000000000|0|1||{2 * n}+2"
    return [
        ("HMGET", config, "epoch", "state", "rows", "seats_per_row", "price", "limit", "accessible"),
        ("HMGET", holds, claim),
        ("HMGET", stats, "available", "reserved", "sold", "version"),
        ("GET", seats),
        ("TIME",),
        ("HMGET", rows, row),
        ("HMGET", owners, f"{row}-{first}", f"{row}-{first + 1}"),
        ("SETRANGE", seats, n // 2, b"\x55"),
        ("HSET", rows, row, 0),
        ("HSET", owners, f"{row}-{first}", claim, f"{row}-{first + 1}", claim),
        ("HSET", holds, claim, record),
        ("HSET", stats, "available", 0, "reserved", 2 * n, "sold", 0, "version", n, "updated_at", 1760000000000),
    ]
