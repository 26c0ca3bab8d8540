"""The process is killed at every crash point with bookings under way; the next one settles what it finds.

Nothing is lost and nothing is done twice: every buyer who was told "accepted" gets an outcome, whoever heard nothing
asks again under the same key and gets one booking, and bits, counters, claims, tickets and bookings agree in the end.
"""

import asyncio
import re
from pathlib import Path

import pytest

import aisle
from aisle.crash_points import BOOKING_POINTS, POINTS
from tests.http_client import connections
from tests.people import a_hall, new_key
from tests.running import as_environment, run_aisle
from tests.stage import prepared_stage, settle

pytestmark = pytest.mark.xdist_group("stage-kills")  # one stage for the module, in one worker

BUYERS = 12
# Ends in the middle of a sale: 12 parties of 1 to 3 want 24 seats of 20, so some are refused as well.
HALL = a_hall(("A", 3000, 1, 10), ("B", 1000, 1, 10))


@pytest.fixture(scope="module")
def stage(servers, tmp_path_factory):
    with prepared_stage(servers, tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture(scope="module")
def events(stage):
    """One event on sale for each crash point, made by a process that lives."""
    stage.start()
    with stage.person("seller") as seller:
        events = {point: seller.opens(HALL) for point in BOOKING_POINTS}
    stage.stop()
    return events


@pytest.fixture
def stage_left_empty(stage):
    yield stage
    stage.stop()


@pytest.fixture(scope="module")
def tokens(stage):
    return asyncio.run(stage.tokens(BUYERS))


def test_every_crash_point_in_the_source_is_visited():
    text = "".join(path.read_text() for path in Path(aisle.__file__).parent.rglob("*.py"))
    named = set(re.findall(r'crash_point\("([a-z_]+)"\)', text))
    built = {point for point in POINTS if point.startswith("before_offsets_")}
    assert 'crash_point(f"before_offsets_{name}")' in text
    assert named | built == set(POINTS)
    assert len(built) == 3


@pytest.mark.parametrize("point", BOOKING_POINTS)
def test_a_process_killed_here_loses_nothing(stage_left_empty, stage, events, tokens, point):
    event = events[point]
    keys = [new_key() for _ in tokens]
    stage.start(crash_at=point)
    accepted = asyncio.run(rush(stage, event, tokens, keys, and_cancel=True))
    assert stage.wait_for_death() == 137, stage.said()

    stage.start()
    stage.fetch("update booking.bookings set placed_at = placed_at - interval '1 minute' where state = 'PROCESSING'")
    again = asyncio.run(rush(stage, event, tokens, keys, and_cancel=False))
    assert len(again) == BUYERS, "everybody gets an answer from the next process"
    assert accepted.items() <= again.items(), "the same key is the same booking, before and after the crash"
    stage.settle(event)
    states = stage.fetch("select id::text, state from booking.bookings where event_id = $1", event)
    assert {row["id"] for row in states} == set(again.values()), "one booking a key"
    assert {row["state"] for row in states} <= {"PENDING_PAYMENT", "FAILED", "CANCELLED"}


def test_the_operators_verification_finds_nothing_after_all_of_it(stage, events):
    verified = run_aisle("verify", "--json", env=as_environment(stage.config))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    stage.look(lambda database, store: settle(database, store, list(events.values())))


async def rush(stage, event, tokens, keys, *, and_cancel):
    """Everybody books at once, and a third cancels as soon as it has seats. Returns the bookings that were accepted."""
    accepted = {}

    async def book(connection, n):
        order = {"event_id": event, "quantity": n % 3 + 1, **({"section": "AB"[n % 2]} if n % 4 else {})}
        answer = await connection.request("POST", "/bookings", order, token=tokens[n], key=keys[n])
        assert answer.status == 202, answer.body
        accepted[keys[n]] = answer.json["id"]
        while and_cancel and n % 3 == 0:
            shown = await connection.request("GET", f"/bookings/{accepted[keys[n]]}", token=tokens[n])
            if shown.json["state"] != "PROCESSING":
                await connection.request("POST", f"/bookings/{accepted[keys[n]]}/cancel", token=tokens[n])
                return
            await asyncio.sleep(0.02)

    async with connections(stage.address, len(tokens)) as opened:
        outcomes = await asyncio.gather(
            *(book(connection, n) for n, connection in enumerate(opened)), return_exceptions=True
        )
    unexpected = [o for o in outcomes if o is not None and not (and_cancel and isinstance(o, ConnectionError))]
    assert unexpected == [], unexpected
    return accepted
