"""Everything the store holds of one subsection at one moment, and how to read it.

Used by verification, rebuild and inspection; the data path never reads this much. Reading changes nothing. What is read
may be wrong in any way: `Snapshot` only sorts it, `configuration` says what is wrong, `audit` judges the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aisle.errors import StoreScriptFailed
from aisle.reservation.keys import Place, subsection_keys
from aisle.reservation.subsection import BadStates, BadSubsection, SeatState, Subsection, unpack
from aisle.scripts import load_script
from aisle.store import Store

SNAPSHOT = load_script("aisle.reservation", "snapshot")
# A sold-out subsection of 10,000 seats is a reply of about 0.4 MB; so many of them at once are few megabytes.
SNAPSHOTS_PER_ROUND_TRIP = 16


class BadConfiguration(ValueError):
    """section_config lacks a field or holds one that no script wrote."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """section_config, read and checked."""

    shape: Subsection
    epoch: int
    state: str
    price: int
    limit: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The seven keys of a subsection as they were found. A key that is missing is None or empty."""

    map: bytes | None
    config: dict[str, bytes]
    stats: dict[str, str]
    rows: dict[str, str]
    owners: dict[str, str]
    records: dict[str, bytes]
    index: dict[str, str]

    @property
    def is_empty(self) -> bool:
        return self.map is None and not any((self.config, self.stats, self.rows, self.owners, self.records, self.index))

    def configuration(self) -> Configuration:
        """Raises BadConfiguration with the first thing that is wrong."""
        rows, width, epoch, price, limit = (
            _number(self.config, name) for name in ("rows", "seats_per_row", "epoch", "price", "limit")
        )
        state = self.config.get("state", b"").decode(errors="backslashreplace")
        if state not in ("open", "closed", "rebuilding"):
            raise BadConfiguration(f"state is {state!r}, not open, closed or rebuilding")
        try:
            bare = Subsection(rows, width)
        except BadSubsection as error:
            raise BadConfiguration(str(error)) from None
        if not 1 <= limit <= bare.seats:
            raise BadConfiguration(f"limit is {limit}; a claim may take 1 to {bare.seats} seats")
        shape = Subsection(rows, width, _accessible(bare, self.config.get("accessible", b"")))
        return Configuration(shape, epoch, state, price, limit)

    def states(self, shape: Subsection) -> list[SeatState]:
        """Raises BadStates if the map is not one of this shape."""
        return unpack(shape, self.map or b"")


async def read_snapshots(store: Store, places: Sequence[Place]) -> list[Snapshot | StoreScriptFailed]:
    """One consistent picture per subsection, a bounded number of them a round trip. A key of a wrong type fails one."""
    found: list[Snapshot | StoreScriptFailed] = []
    for start in range(0, len(places), SNAPSHOTS_PER_ROUND_TRIP):
        some = places[start : start + SNAPSHOTS_PER_ROUND_TRIP]
        replies = await store.run_many(SNAPSHOT, [(subsection_keys(store.prefix, place), ()) for place in some])
        found += [reply if isinstance(reply, StoreScriptFailed) else _snapshot(reply) for reply in replies]
    return found


def _snapshot(reply: Sequence[Any]) -> Snapshot:
    seats, config, stats, rows, owners, records, index = reply
    return Snapshot(seats, _raw(config), _pairs(stats), _pairs(rows), _pairs(owners), _raw(records), _pairs(index))


def _raw(flat: Sequence[bytes]) -> dict[str, bytes]:
    return {_text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _pairs(flat: Sequence[bytes]) -> dict[str, str]:
    return {name: _text(value) for name, value in _raw(flat).items()}


def _text(raw: bytes) -> str:
    """Foreign bytes stay visible instead of breaking the tool that is there to show them."""
    return raw.decode(errors="backslashreplace")


def _number(config: dict[str, bytes], name: str) -> int:
    raw = config.get(name)
    if raw is None:
        raise BadConfiguration(f"{name} is missing")
    if not (raw.isdigit() and len(raw) <= 15):
        raise BadConfiguration(f"{name} is {_text(raw[:40])!r}, not a number")
    return int(raw)


def _accessible(shape: Subsection, walls: bytes) -> frozenset[int]:
    if not walls:
        return frozenset()
    try:
        states = unpack(shape, walls)
    except BadStates as error:
        raise BadConfiguration(f"accessible: {error}") from None
    if any(state not in (SeatState.AVAILABLE, SeatState.UNAVAILABLE) for state in states):
        raise BadConfiguration("accessible marks a seat with something other than 3")
    return frozenset(seat for seat, state in enumerate(states) if state)
