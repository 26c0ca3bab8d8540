"""Buyers who order while a test does something to the topology, and what has to be true of their orders afterwards."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.people import new_key
from tests.scale.topology import ScaleStage, all_orders

BUYERS = 40


@contextmanager
def orders_meanwhile(stage: ScaleStage, event: int, at: tuple[str, ...] = ("api-1",)) -> Iterator[dict[str, str]]:
    """Buyers who order all through the block, and whose every order was answered when it ends."""
    tokens = asyncio.run(stage.tokens(BUYERS))
    keys = [new_key() for _ in tokens]
    told: dict[str, str] = {}
    failed: list[BaseException] = []

    def order() -> None:
        try:
            for first in range(0, BUYERS, 4):
                some = slice(first, first + 4)
                told.update(asyncio.run(all_orders(stage, event, tokens[some], keys[some], at=at)))
                time.sleep(0.2)
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=order)
    thread.start()
    try:
        yield told
    finally:
        thread.join()
    assert not failed
    assert len(told) == BUYERS, "everybody got an answer"


def require_one_booking_a_key(stage: ScaleStage, event: int, told: dict[str, str]) -> None:
    rows = stage.fetch("select id::text, state, reason from booking.bookings where event_id = $1", event)
    assert {row["id"] for row in rows} == set(told.values()) - {""}, "one booking a key, and none that nobody heard of"
    ended = [tuple(row) for row in rows if row["state"] not in ("PENDING_PAYMENT", "FAILED")]
    assert not ended
