"""Give back what overdue holds hold. Any number of sweepers may run, anywhere, at once: the scripts decide.

A subsection or pool is visited while it is in `holding`. Whoever takes a hold announces it there *before* taking it: a
crash between the two leaves a visit too many, never one too few. A place without any entry left is struck off, but only
if nobody has announced it since it was looked at.

A hold that ran out is noted beside its place in the step that releases it, and stays noted until PostgreSQL has written
it down: whoever dies in between leaves it to the next sweep, and telling twice is harmless.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import structlog

from aisle.errors import StoreOutcomeUnknown, StoreScriptFailed, StoreUnavailable
from aisle.reservation.keys import Place, holding, lapsed, subsection_keys
from aisle.reservation.pool import PoolPlace, pool_keys
from aisle.scripts import Script, load_script
from aisle.store import Command, Store

ANNOUNCE, SWEEP, POOL_SWEEP, STRIKE = (
    load_script("aisle.reservation", name) for name in ("announce", "sweep", "pool_sweep", "strike")
)

SWEEP_CLAIMS_MAX = 100
PLACES_PER_ROUND_TRIP = 200
IDLE_MS = 60_000
LATE_SECONDS = 10

Where = Place | PoolPlace

log = structlog.get_logger()


class Released(msgspec.Struct, frozen=True, array_like=True):
    """A hold that ended because nobody paid in time. For a pool, `runs` is (0, places)."""

    claim: str
    owner: str
    runs: tuple[int, ...]


class Swept(msgspec.Struct, frozen=True, array_like=True):
    released: tuple[Released, ...]
    forgotten: int
    more: int
    left: int


class Lapsed(NamedTuple):
    """A hold that ran out. One that had seats in several subsections is noted in each, under one id."""

    event: int
    hold: str
    owner: str
    deadline_ms: int


# Writes holds down that ran out, each once however often it is told; false if that is not possible now.
Report = Callable[[Sequence[Lapsed]], Awaitable[bool]]

swept_of = msgspec.msgpack.Decoder(Swept).decode


async def announce(store: Store, places: Sequence[Where]) -> None:
    """Tell the sweepers, before holds are taken there, that these places need visiting."""
    await store.run(ANNOUNCE, (holding(store.prefix),), [str(place) for place in places])


async def note_lapsed(store: Store, place: Where, holds: Sequence[tuple[str, str, int]]) -> None:
    """Holds (id, owner, deadline) that ran out and are about to be ended by somebody else than a sweeper."""
    if holds:
        notes = [item for hold, owner, deadline_ms in holds for item in (deadline_ms, f"{hold}|{owner}")]
        await announce(store, [place])
        await store.call("ZADD", lapsed(store.prefix, place), *notes)


async def sweep_once(store: Store, report: Report | None = None) -> list[tuple[Where, Released]]:
    """Visit every announced place once, have what lapsed written down, and return what was released."""
    members = await store.call("ZRANGEBYSCORE", holding(store.prefix), "-inf", "+inf", "WITHSCORES")
    seen = {_where(member.decode()): score for member, score in zip(members[::2], members[1::2], strict=True)}
    released: list[tuple[Where, Released]] = []
    empty: list[Where] = []
    for script, kind in ((SWEEP, Place), (POOL_SWEEP, PoolPlace)):
        todo = [place for place in seen if isinstance(place, kind)]
        while todo:
            batch, todo = todo[:PLACES_PER_ROUND_TRIP], todo[PLACES_PER_ROUND_TRIP:]
            for place, swept in zip(batch, await _sweep(store, script, batch), strict=True):
                released += [(place, one) for one in swept.released]
                if swept.more:
                    todo.append(place)
                elif swept.left == 0:
                    empty.append(place)
    untold = await _tell(store, list(seen), report) if report is not None else set()
    await _strike(store, [(place, seen[place]) for place in empty if place not in untold])
    return released


class Visited(NamedTuple):
    """`entries` are live holds and ended records; those that wait longer than any sweep takes are `overdue`."""

    places: int
    entries: int
    overdue: int
    overdue_oldest_s: float


async def count_overdue(store: Store) -> Visited:
    members = await store.call("ZRANGE", holding(store.prefix), 0, -1)
    seconds, _ = await store.call("TIME")
    late = (int(seconds) - LATE_SECONDS) * 1000
    index = [_keys(store.prefix, _where(member.decode()))[-1] for member in members]
    entries, overdue, oldest_s = 0, 0, 0.0
    for start in range(0, len(index), PLACES_PER_ROUND_TRIP):
        some = index[start : start + PLACES_PER_ROUND_TRIP]
        commands: list[Command] = [("ZCARD", key) for key in some]
        commands += [("ZCOUNT", key, "-inf", late) for key in some]
        commands += [("ZRANGE", key, 0, 0, "WITHSCORES") for key in some]
        replies = await store.call_many(commands)
        entries += sum(count for count in replies[: len(some)] if isinstance(count, int))
        late_here = sum(count for count in replies[len(some) : 2 * len(some)] if isinstance(count, int))
        overdue += late_here
        if late_here:
            first = min(float(reply[1]) for reply in replies[2 * len(some) :] if isinstance(reply, list) and reply)
            oldest_s = max(oldest_s, int(seconds) - first / 1000)
    return Visited(len(members), entries, overdue, oldest_s)


async def sweep_for_ever(store: Store, *, interval_s: float, report: Report) -> None:
    """Sweep, wait, sweep. A store that is away is waited for; what is overdue stays overdue until it is back."""
    while True:
        try:
            await sweep_once(store, report)
        except (StoreUnavailable, StoreOutcomeUnknown) as error:
            log.warning("sweep_postponed", reason=str(error))
        except StoreScriptFailed as error:
            log.error("sweep_failed", reason=str(error))
        await asyncio.sleep(interval_s)


def _where(member: str) -> Where:
    # A subsection always has a dash, a pool never has one.
    return Place.parse(member) if "-" in member else PoolPlace.parse(member)


async def _tell(store: Store, places: Sequence[Where], report: Report) -> set[Where]:
    """Report what lapsed in these places; returns those where some of it is still to be told."""
    untold: set[Where] = set()
    for start in range(0, len(places), PLACES_PER_ROUND_TRIP):
        some = places[start : start + PLACES_PER_ROUND_TRIP]
        commands = [("ZRANGE", lapsed(store.prefix, place), 0, SWEEP_CLAIMS_MAX - 1, "WITHSCORES") for place in some]
        replies = zip(some, await store.call_many(commands), strict=True)
        noted = {place: reply for place, reply in replies if isinstance(reply, list) and reply}
        if noted and await report([one for place, reply in noted.items() for one in _lapsed(place.event, reply)]):
            await store.call_many([("ZREM", lapsed(store.prefix, p), *reply[::2]) for p, reply in noted.items()])
            noted = {place: reply for place, reply in noted.items() if len(reply) == 2 * SWEEP_CLAIMS_MAX}
        untold |= noted.keys()
    return untold


def _lapsed(event: int, reply: Sequence[bytes]) -> Iterable[Lapsed]:
    for member, score in zip(reply[::2], reply[1::2], strict=True):
        hold, _, owner = member.decode().partition("|")
        yield Lapsed(event, hold, owner, int(float(score)))


async def _sweep(store: Store, script: Script, places: Sequence[Where]) -> list[Swept]:
    replies = await store.run_many(script, [(sweep_keys(store.prefix, place), (SWEEP_CLAIMS_MAX,)) for place in places])
    results = []
    for place, reply in zip(places, replies, strict=True):
        if isinstance(reply, StoreScriptFailed):
            # One damaged subsection must not keep the seats of all others.
            log.error("sweep_failed", place=str(place), reason=str(reply))
            results.append(Swept((), 0, 0, 1))
        else:
            results.append(swept_of(reply))
    return results


def sweep_keys(prefix: str, place: Where) -> tuple[str, ...]:
    """KEYS of the script that sweeps a subsection or a pool."""
    return *_keys(prefix, place), lapsed(prefix, place)


def _keys(prefix: str, place: Where) -> tuple[str, ...]:
    return subsection_keys(prefix, place) if isinstance(place, Place) else pool_keys(prefix, place)


async def _strike(store: Store, places: Sequence[tuple[Where, bytes]]) -> None:
    if places:
        pairs = [item for place, score in places for item in (str(place), score)]
        await store.run(STRIKE, (holding(store.prefix),), (IDLE_MS, *pairs))
