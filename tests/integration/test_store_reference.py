"""docs/reference/store.md lists exactly the keys that a store has after everything was used once."""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from aisle.booking.cart import Hold, HoldState, begin
from aisle.booking.carts import Carts
from aisle.ops.notes import Reconciled, note
from aisle.reservation.claims import Claim, Kind
from aisle.reservation.generation import Gate
from aisle.reservation.hall import HallChooser
from aisle.reservation.keyspace import NAMES
from aisle.reservation.pool import Pool, PoolPlace, Take
from aisle.reservation.pools import Pools
from aisle.reservation.sweeper import announce, sweep_once
from tests.integration.lively_hall import A1, EPOCH, lively_hall

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "store.md"


def pattern(key: str) -> str:
    """The kind of a key: its name, with what differs from key to key left out."""
    key = re.sub(r"\{\d+:\w+-\d+\}", "{place}", key)
    key = re.sub(r"\{\d+:\w+\}", "{pool}", key)
    return re.sub(r"^(event_sections|hall_plan|cart):.*", r"\1:*", key)


def documented() -> set[str]:
    """First column of the tables before the seeds' own."""
    text = PAGE.read_text().partition("## Where the seeds' keys went")[0]
    return {pattern(key) for key in re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)}


async def test_every_key_in_the_store_is_on_the_page_and_every_key_on_the_page_in_the_store(config, metrics):
    async with lively_hall(config, metrics) as hall:
        pools, place = Pools(hall.store), PoolPlace(1, "GA")
        await pools.open([Pool(place, capacity=100, price=1500, limit=4)], epoch=EPOCH)
        await pools.switch([place], epoch=EPOCH, on_sale=True)
        standing = Take(id="standing", owner="fay", kind=Kind.HOLD, quantity=2, hold_ms=600_000)
        assert (await pools.take(place, [standing], epoch=EPOCH))[0].ok
        await hall.inventory.claim(A1, [Claim(id="late", owner="hal", kind=Kind.HOLD, size=1, hold_ms=1)], epoch=EPOCH)
        await pools.take(place, [Take(id="late", owner="hal", kind=Kind.HOLD, quantity=1, hold_ms=1)], epoch=EPOCH)
        await announce(hall.store, [A1, place])
        await asyncio.sleep(0.005)
        assert len(await sweep_once(hall.store)) == 2
        chooser = HallChooser(hall.store, hall.inventory, 1)
        assert (await chooser.claim_best(Claim(id="anywhere", owner="gus", size=2), epoch=EPOCH)).code == "ok"
        gate = Gate(hall.store, "an-installation")
        await gate.admit(gate.connected(), fresh=True)
        await note(hall.store, "reconcile", Reconciled(at=datetime.now(UTC), seconds=0.1, seats=35))
        asked = Hold(id="held", asked="", state=HoldState.TAKING, quantity=1)
        limits = {"event": 1, "hold_ms": 600_000, "hold_ms_max": 1_800_000, "seats_max": 10}
        await Carts(hall.store).change(uuid4(), lambda cart, now_ms: begin(cart, asked, now_ms=now_ms, **limits))
        found = {pattern(key.decode().removeprefix(hall.store.prefix)) for key in await hall.dump()}
    assert found == documented()


def test_the_operators_tools_know_every_key_on_the_page():
    assert {re.split(r":[{*]", name)[0] for name in documented()} == set(NAMES)
