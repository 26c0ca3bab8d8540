"""The newest batches of a partition, kept in memory by the broker that appended them.

Most consumers read what was just written; they are served from here and cost the store nothing. A tail is always a
gapless run up to the end of the log as far as this broker knows it, or empty.
"""

from bisect import bisect_left


class Tail:
    __slots__ = ("_batches", "_lasts", "base", "size")

    def __init__(self) -> None:
        self.base = 0  # offset of the first record held
        self.size = 0
        self._lasts: list[int] = []  # last offset of each batch
        self._batches: list[bytes] = []

    @property
    def end(self) -> int:
        return self._lasts[-1] + 1 if self._lasts else -1

    def add(self, base: int, last: int, batch: bytes, limit: int) -> None:
        """Keep one more batch; start anew if it does not follow, and drop the older half over the limit."""
        if base != self.end:
            self.clear()
            self.base = base
        self._lasts.append(last)
        self._batches.append(batch)
        self.size += len(batch)
        while self.size > limit and len(self._batches) > 1:
            self._drop((len(self._batches) + 1) // 2)

    def clear(self) -> None:
        self.size = 0
        self._lasts.clear()
        self._batches.clear()

    def covers(self, offset: int) -> bool:
        return bool(self._lasts) and self.base <= offset < self.end

    def read(self, offset: int, limit: int, below: int) -> list[bytes]:
        """Batches from the one that holds `offset`, up to `limit` bytes (but one at least) and below an offset."""
        at = bisect_left(self._lasts, offset)
        found: list[bytes] = []
        while at < len(self._lasts) and self._lasts[at] < below:
            batch = self._batches[at]
            limit -= len(batch)
            if limit < 0 and found:
                break
            found.append(batch)
            at += 1
        return found

    def _drop(self, count: int) -> None:
        self.base = self._lasts[count - 1] + 1
        self.size -= sum(map(len, self._batches[:count]))
        del self._lasts[:count], self._batches[:count]
