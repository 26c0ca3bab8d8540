"""The seats a browser is told about: snapshots and deltas fold to the same hall, and resuming never leaves a gap."""

import base64
import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisle.live.fold import TAGS, Fold
from aisle.live.hall import BadMap, SeatMap, Subsection, changed_seats, counts_of, hall_of
from aisle.reservation import subsection as reservation

A1 = Subsection(1, "A", 1, 2, 5)
A2 = Subsection(1, "A", 2, 2, 5)
B1 = Subsection(1, "B", 1, 1, 3)
TAG = 417


def packed(states: list[int]) -> bytes:
    return reservation.pack(reservation.Subsection(1, len(states)), states)


def empty(subsection: Subsection, version: int = 1) -> SeatMap:
    return SeatMap(version, packed([0] * subsection.seats))


def fold_of(updates_max: int = 100, bytes_max: int = 100_000, tag: int = TAG) -> Fold:
    seats = {s: empty(s) for s in (A1, A2, B1)}
    return Fold(1, seats, tag=tag, updates_max=updates_max, bytes_max=bytes_max)


def parse(message: bytes) -> tuple[int, str, dict]:
    id, name, data = message.decode().strip().split("\n")
    return int(id.removeprefix("id: ")), name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


class Browser:
    """Does what the documentation tells a browser to do."""

    def __init__(self) -> None:
        self.seats: dict[str, list[int]] = {}
        self.versions: dict[str, int] = {}
        self.last_id = -1

    def read(self, message: bytes) -> None:
        id, name, data = parse(message)
        assert id > self.last_id, "ids strictly increase"
        self.last_id = id
        if name == "snapshot":
            self._start(data)
            return
        assert data["from"] == self.versions[data["place"]], "a gap"
        for seat, state in data["changes"]:
            self.seats[data["place"]][seat] = state
        self.versions[data["place"]] = data["version"]
        counts = [self.seats[data["place"]].count(state) for state in range(4)]
        assert list(data["counts"].values()) == counts

    def _start(self, data: dict) -> None:
        rest = base64.b64decode(data["map"])
        self.seats.clear()
        for section, number, version, *counts in data["places"]:
            size = (sum(counts) + 3) // 4
            states = reservation.unpack(reservation.Subsection(1, sum(counts)), rest[:size])
            rest = rest[size:]
            self.seats[f"{section}-{number}"] = [int(state) for state in states]
            self.versions[f"{section}-{number}"] = version
        assert rest == b""


def test_counts_are_those_of_the_seats_and_padding_is_no_seat():
    counts = counts_of(packed([0, 1, 2, 3, 1, 1, 0]), 7)
    assert (counts.available, counts.reserved, counts.sold, counts.unavailable) == (2, 3, 1, 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_the_changes_turn_the_old_seats_into_the_new_ones(pairs):
    old, new = [a for a, _ in pairs], [b for _, b in pairs]
    for seat, state in changed_seats(packed(old), packed(new)):
        assert old[seat] != state, "only what changed is told"
        old[seat] = state
    assert old == new


def test_a_change_is_one_delta_of_its_subsection():
    fold = fold_of()
    [update] = fold.apply({A1: SeatMap(2, packed([0, 1, 1, 0, 0, 0, 0, 0, 0, 0])), B1: empty(B1)})
    id, name, data = parse(update.data)
    assert (name, id) == ("delta", 4 * TAGS + TAG)
    assert data == {
        "place": "A-1",
        "section": "A",
        "subsection": 1,
        "from": 1,
        "version": 2,
        "counts": {"available": 8, "reserved": 2, "sold": 0, "unavailable": 0},
        "changes": [[1, 1], [2, 1]],
    }


def test_a_snapshot_of_a_section_has_only_its_places():
    fold = fold_of()
    fold.apply({B1: SeatMap(2, packed([2, 3, 0]))})
    _, name, data = parse(fold.snapshot("B", with_seats=True))
    assert name == "snapshot"
    assert data["version"] == 4, "the version is the event's"
    assert data["sections"] == [
        {"section": "B", "available": 1, "reserved": 0, "sold": 1, "unavailable": 1, "total": 3}
    ]
    assert data["places"] == [["B", 1, 2, 1, 0, 1, 1]]
    assert base64.b64decode(data["map"]) == packed([2, 3, 0])
    assert "map" not in parse(fold.snapshot("B", with_seats=False))[2]


def test_a_snapshot_is_encoded_once_until_something_changes():
    fold = fold_of()
    first = fold.snapshot(None, with_seats=False)
    assert fold.snapshot(None, with_seats=False) is first
    fold.apply({B1: SeatMap(2, packed([1, 0, 0]))})
    assert fold.snapshot(None, with_seats=False) != first


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_whenever_a_browser_leaves_and_comes_back_it_ends_with_the_truth(seed, updates_max):
    chance = random.Random(seed)
    fold = fold_of(updates_max=updates_max)
    truth = {s: [0] * s.seats for s in (A1, A2, B1)}
    versions = dict.fromkeys(truth, 1)
    browser, away = Browser(), False
    browser.read(fold.snapshot(None, with_seats=True))
    for _ in range(chance.randint(1, 60)):
        found = {}
        for s in chance.sample(list(truth), chance.randint(0, 3)):
            truth[s][chance.randrange(s.seats)] = chance.randrange(4)
            versions[s] += chance.randint(1, 3)
            found[s] = SeatMap(versions[s], packed(truth[s]))
        updates = fold.apply(found)
        if not away:
            for update in updates[: chance.randint(0, len(updates)) if (away := chance.random() < 0.3) else None]:
                browser.read(update.data)
        elif chance.random() < 0.5:
            away = come_back(fold, browser)
    if away:
        come_back(fold, browser)
    assert browser.seats == {s.name: states for s, states in truth.items()}
    assert fold.version == sum(versions.values())


def come_back(fold: Fold, browser: Browser) -> bool:
    missed = fold.after(str(browser.last_id), None)
    for message in [fold.snapshot(None, with_seats=True)] if missed is None else [u.data for u in missed]:
        browser.read(message)
    return False


def test_resuming_a_section_brings_that_section_only():
    fold = fold_of()
    start = parse(fold.snapshot("A", with_seats=False))[0]
    fold.apply({A2: SeatMap(2, packed([1] + [0] * 9)), B1: SeatMap(2, packed([1, 0, 0]))})
    assert [parse(u.data)[2]["place"] for u in fold.after(str(start), "A")] == ["A-2"]


def test_what_is_older_than_the_last_changes_cannot_be_resumed():
    fold = fold_of(updates_max=2)
    ids = [parse(fold.snapshot(None, with_seats=False))[0]]
    for version in (2, 3, 4):
        [update] = fold.apply({B1: SeatMap(version, packed([version % 2, 0, 0]))})
        ids.append(parse(update.data)[0])
    assert [fold.after(str(id), None) is None for id in ids] == [True, False, False, False]
    assert [len(fold.after(str(id), None)) for id in ids[1:]] == [2, 1, 0]


def test_the_bytes_kept_for_resuming_are_bounded_too():
    fold = fold_of(bytes_max=400)
    start = parse(fold.snapshot(None, with_seats=False))[0]
    for version in range(2, 12):
        fold.apply({B1: SeatMap(version, packed([version % 2, 0, 0]))})
    assert fold.after(str(start), None) is None
    assert sum(len(u.data) for u in fold._recent) <= 400


@pytest.mark.parametrize("last_id", ["", "x", "-4", "4.5", "٤", "9" * 41, str(3 * TAGS + TAG + 1), str(4 * TAGS + TAG)])
def test_an_id_of_another_process_or_no_id_at_all_does_not_resume(last_id):
    fold = fold_of()
    assert fold.after(last_id, None) is None
    assert fold.after(str(3 * TAGS + TAG), None) == []


def test_a_store_made_anew_is_told_as_a_change_and_ids_still_grow():
    fold = fold_of()
    browser = Browser()
    browser.read(fold.snapshot(None, with_seats=True))
    for version, states in ((9, [1, 1, 1]), (1, [0, 0, 2])):
        for update in fold.apply({B1: SeatMap(version, packed(states))}):
            browser.read(update.data)
    assert browser.seats["B-1"] == [0, 0, 2]


def test_bits_of_another_hall_are_refused_and_change_nothing():
    fold = fold_of()
    before = fold.snapshot(None, with_seats=True)
    with pytest.raises(BadMap):
        fold.apply({A1: SeatMap(2, b"\x55\x55\x50"), B1: SeatMap(2, b"\x00\x00")})
    assert fold.snapshot(None, with_seats=True) == before


def test_fifty_thousand_seats_take_less_than_twenty_kilobytes():
    halls = [Subsection(1, section, n, 25, 20) for section in "ABCDEFGHIJ" for n in range(1, 11)]
    seats = {s: SeatMap(12_345, random.Random(7).randbytes(125)) for s in halls}
    assert len(msgspec.json.encode(hall_of(1, 1_234_500, seats))) <= 20_000


def test_the_seat_map_names_its_content():
    one, other = fold_of(tag=1), fold_of(tag=2)
    assert one.hall() == other.hall(), "the same seats from two processes are the same document"
    one.apply({A1: SeatMap(2, packed([1] + [0] * 9))})
    other.apply({A2: SeatMap(2, packed([1] + [0] * 9))})
    assert one.hall().etag != other.hall().etag, "the same version, other seats"
