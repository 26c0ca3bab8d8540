"""What the seats of an event look like to a browser: the JSON of snapshots, deltas and seat maps, made from the bits.

Pure. `docs/reference/live.md` shows each of these with an example.

    bits    |s0|s1|s2|s3| |s4|s5|s6|s7| ...     two a seat: 0 available, 1 reserved, 2 sold, 3 unavailable
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec


class BadMap(ValueError):
    """Bits that cannot be those of the subsection they were read for."""


class Subsection(msgspec.Struct, frozen=True):
    event: int
    section: str
    number: int
    rows: int
    seats_per_row: int

    @property
    def name(self) -> str:
        return f"{self.section}-{self.number}"

    @property
    def seats(self) -> int:
        return self.rows * self.seats_per_row


class SeatMap(NamedTuple):
    """Two bits a seat: 0 available, 1 reserved, 2 sold, 3 unavailable; seat 0 in the top bits of the first byte."""

    version: int
    packed: bytes


class Counts(msgspec.Struct, frozen=True):
    available: int
    reserved: int
    sold: int
    unavailable: int


class Delta(msgspec.Struct, frozen=True, rename={"since": "from"}):
    """One subsection from one version to a later one. `changes` are (seat index, new state)."""

    place: str
    section: str
    subsection: int
    since: int
    version: int
    counts: Counts
    changes: list[tuple[int, int]]


class SectionCounts(msgspec.Struct, frozen=True):
    section: str
    available: int
    reserved: int
    sold: int
    unavailable: int
    total: int


class PlaceCounts(msgspec.Struct, frozen=True, array_like=True):
    section: str
    subsection: int
    version: int
    available: int
    reserved: int
    sold: int
    unavailable: int


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """`map` is base64 of the places' maps one after another, each beginning on a byte of its own."""

    event_id: int
    version: int
    sections: list[SectionCounts]
    places: list[PlaceCounts]
    map: str | None = None


# [section, subsection, rows, seats per row, version]: a list, because the API document would call a struct an object.
PlaceShape = list[str | int]


class HallMap(msgspec.Struct, frozen=True):
    """Every seat of an event. `map` as in a snapshot."""

    event_id: int
    version: int
    places: list[PlaceShape]
    map: str


def snapshot_of(event: int, version: int, seats: Mapping[Subsection, SeatMap], *, with_seats: bool) -> Snapshot:
    places = []
    sections: dict[str, list[int]] = {}
    for s, found in seats.items():
        c = counts_of(found.packed, s.seats)
        places.append(PlaceCounts(s.section, s.number, found.version, c.available, c.reserved, c.sold, c.unavailable))
        sums = sections.setdefault(s.section, [0, 0, 0, 0])
        for n, count in enumerate((c.available, c.reserved, c.sold, c.unavailable)):
            sums[n] += count
    return Snapshot(
        event,
        version,
        [SectionCounts(section, a, r, s, u, a + r + s + u) for section, (a, r, s, u) in sections.items()],
        places,
        _base64(seats.values()) if with_seats else None,
    )


def hall_of(event: int, version: int, seats: Mapping[Subsection, SeatMap]) -> HallMap:
    shapes: list[PlaceShape] = [
        [s.section, s.number, s.rows, s.seats_per_row, found.version] for s, found in seats.items()
    ]
    return HallMap(event, version, shapes, _base64(seats.values()))


def delta_of(subsection: Subsection, old: SeatMap, new: SeatMap) -> Delta:
    return Delta(
        place=subsection.name,
        section=subsection.section,
        subsection=subsection.number,
        since=old.version,
        version=new.version,
        counts=counts_of(new.packed, subsection.seats),
        changes=list(changed_seats(old.packed, new.packed)),
    )


def counts_of(packed: bytes, seats: int) -> Counts:
    """Counted in the bits themselves, so that counts and seats of a message can never disagree."""
    bits = int.from_bytes(packed)
    low_bits = int.from_bytes(b"\x55" * len(packed))
    low, high = bits & low_bits, bits >> 1 & low_bits
    both = (low & high).bit_count()
    reserved, sold = low.bit_count() - both, high.bit_count() - both
    return Counts(seats - reserved - sold - both, reserved, sold, both)


def changed_seats(old: bytes, new: bytes) -> Iterator[tuple[int, int]]:
    """(seat index, new state) of every seat that differs, in index order."""
    for n, (before, after) in enumerate(zip(old, new, strict=True)):
        if before != after:
            for k, shift in enumerate((6, 4, 2, 0)):
                state = after >> shift & 3
                if state != before >> shift & 3:
                    yield 4 * n + k, state


def check_map(subsection: Subsection, packed: bytes) -> None:
    if len(packed) != (subsection.seats + 3) // 4:
        raise BadMap(f"{len(packed)} bytes for the {subsection.seats} seats of {subsection.name}")


def _base64(maps: Iterable[SeatMap]) -> str:
    return base64.b64encode(b"".join(found.packed for found in maps)).decode()
