"""How long tests wait for what must happen: long, since machines that run tests are busy; only a failure costs it."""

import asyncio
import time
from collections.abc import Callable

PATIENCE_SECONDS = 150.0


def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, _in_vain(what)
        time.sleep(0.02)


async def until(condition: Callable[[], object], what: str) -> None:
    """The same for something in this event loop."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, _in_vain(what)
        await asyncio.sleep(0.005)


def _in_vain(what: str) -> str:
    return f"waited {PATIENCE_SECONDS:.0f} s in vain until {what}"
