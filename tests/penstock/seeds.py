"""The seeds of a test that leaves much to chance: one in `make test`, as many as fit the time in `make kills`.

`make kills SEED=7 MINUTES=30` goes on from seed 7 for half an hour; without SEED it begins at the present time.
A failure names its seed, and `SEED=<that> MINUTES=0` does that one again.
"""

import os
import time
from collections.abc import Iterator


def seeds(usual: int = 1) -> Iterator[int]:
    minutes = os.environ.get("CHAOS_MINUTES")
    if minutes is None:
        yield from range(1, usual + 1)
        return
    seed = int(os.environ.get("CHAOS_SEED") or time.time())
    deadline = time.monotonic() + float(minutes) * 60
    yield seed
    while time.monotonic() < deadline:
        seed += 1
        yield seed
