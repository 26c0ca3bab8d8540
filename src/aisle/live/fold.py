"""The seats of one event as this process last saw them, and the last changes: what a browser starts from or resumes.

Pure: no I/O, no clock. The hub gives it what it read from the store; it answers with what changed.

    version of an event     the sum of its subsections' versions, so it grows with every change in any of them
    id of a message         version * 10^9 + tag; the tag is drawn anew for every Fold

Two processes may see two changes in different order, so the same version need not mean the same seats: an id leads on
only in the Fold that gave it. Everybody else starts from a snapshot.
"""

from collections import deque
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from aisle.live import sse
from aisle.live.hall import SeatMap, Snapshot, Subsection, check_map, delta_of, hall_of, snapshot_of

TAGS = 10**9


class Update(NamedTuple):
    """A delta as it goes out."""

    version: int
    section: str
    data: bytes


class Body(NamedTuple):
    etag: str
    data: bytes


class Fold:
    def __init__(
        self, event: int, seats: dict[Subsection, SeatMap], *, tag: int, updates_max: int, bytes_max: int
    ) -> None:
        for subsection, found in seats.items():
            check_map(subsection, found.packed)
        self.event = event
        self.version = sum(found.version for found in seats.values())
        self._seats = dict(seats)
        self._tag = tag
        self._updates_max, self._bytes_max = updates_max, bytes_max
        self._recent: deque[Update] = deque()
        self._recent_bytes = 0
        self._known_since = self.version  # every change after this version is in _recent
        self._kept: dict[tuple[str | None, bool], bytes] = {}
        self._hall: Body | None = None

    def apply(self, found: dict[Subsection, SeatMap]) -> list[Update]:
        """What is new in the maps, in the order it will be told. Maps that are already known change nothing."""
        for subsection, new in found.items():
            check_map(subsection, new.packed)
        updates = [self._move(subsection, new) for subsection, new in found.items() if self._is_news(subsection, new)]
        if updates:
            self._kept.clear()
            self._hall = None
        return updates

    def stale(self, versions: dict[Subsection, int]) -> list[Subsection]:
        """Those whose version is not the one known."""
        return [s for s, version in versions.items() if version != self._seats[s].version]

    def subsections(self, section: str | None = None) -> list[Subsection]:
        return [s for s in self._seats if section is None or s.section == section]

    def after(self, last_id: str, section: str | None) -> list[Update] | None:
        """What a browser has missed that saw `last_id` last; None if that cannot be told without a gap."""
        if not (last_id.isascii() and last_id.isdigit() and len(last_id) <= 40):
            return None
        version, tag = divmod(int(last_id), TAGS)
        if tag != self._tag or not self._known_since <= version <= self.version:
            return None
        return [u for u in self._recent if u.version > version and (section is None or u.section == section)]

    def snapshot(self, section: str | None, *, with_seats: bool) -> bytes:
        """The message that a browser starts from, encoded once however many browsers start now."""
        kept = self._kept.get((section, with_seats))
        if kept is None:
            kept = sse.event("snapshot", self._snapshot(section, with_seats), self._id())
            self._kept[section, with_seats] = kept
        return kept

    def hall(self) -> Body:
        """Every seat as JSON. The tag names the content, so it is the same from whatever process it comes."""
        if self._hall is None:
            data = msgspec.json.encode(hall_of(self.event, self.version, self._seats))
            self._hall = Body(f'"{self.version}-{blake2b(data, digest_size=8).hexdigest()}"', data)
        return self._hall

    def _is_news(self, subsection: Subsection, new: SeatMap) -> bool:
        return new.version != self._seats[subsection].version

    def _move(self, subsection: Subsection, new: SeatMap) -> Update:
        old = self._seats[subsection]
        self._seats[subsection] = new
        # A version goes back only when the store was made anew; what browsers see still goes forward.
        self.version += new.version - old.version if new.version > old.version else 1
        delta = delta_of(subsection, old, new)
        update = Update(self.version, subsection.section, sse.event("delta", delta, self._id()))
        self._remember(update)
        return update

    def _remember(self, update: Update) -> None:
        self._recent.append(update)
        self._recent_bytes += len(update.data)
        while len(self._recent) > self._updates_max or self._recent_bytes > self._bytes_max:
            oldest = self._recent.popleft()
            self._recent_bytes -= len(oldest.data)
            self._known_since = oldest.version

    def _snapshot(self, section: str | None, with_seats: bool) -> Snapshot:
        chosen = {s: found for s, found in self._seats.items() if section is None or s.section == section}
        return snapshot_of(self.event, self.version, chosen, with_seats=with_seats)

    def _id(self) -> int:
        return self.version * TAGS + self._tag
