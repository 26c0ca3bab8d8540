"""Verify, rebuild, inspect and the gate on each kind of store: Valkey, Redis, a cluster of three nodes."""

import pytest

from aisle.errors import StoreUnverified
from aisle.reservation.claims import Claim
from aisle.reservation.generation import Gate, Standing
from aisle.reservation.inspect import look_at_facts, look_at_keys
from aisle.reservation.inventory import Inventory
from aisle.reservation.rebuild import rebuild
from aisle.reservation.verify import verify
from tests.integration.lively_hall import A1, A2, EPOCH, lively_hall
from tests.invariants import assert_store_consistent

pytest_plugins = ["tests.integration.stores"]


async def test_an_event_is_verified_lost_rebuilt_and_sold_from_again(any_config, metrics):
    async with lively_hall(any_config, metrics) as hall:
        await assert_store_consistent(hall.store, 1)
        facts = await look_at_facts(hall.store, 1)
        await hall.store.call_many([("DEL", key) for key in await hall.dump()])
        assert (await rebuild(hall.store, facts)).findings == ()
        assert (await verify(hall.store, 1, facts.of_any_epoch())).clean
        await hall.inventory.switch([A1, A2], epoch=EPOCH + 1, on_sale=True)
        assert (await hall.inventory.claim(A1, [Claim(id="next", owner="eve", size=2)], epoch=EPOCH + 1))[0].ok
        assert (await rebuild(hall.store, await look_at_facts(hall.store, 1))).findings == ()
        await assert_store_consistent(hall.store, 1)


async def test_keys_and_orphans_are_found_on_every_node(any_config, metrics):
    async with lively_hall(any_config, metrics) as hall:
        strays = [f"{hall.store.prefix}holds:{{1:S-{number}}}" for number in range(1, 9)]
        await hall.store.call_many([("HSET", stray, "a", "b") for stray in strays])
        view = await look_at_keys(hall.store)
        assert {kind.name: kind.keys for kind in view.kinds}["holds"] == 9
        assert len(view.orphans) == 8
        assert len((await verify(hall.store)).findings) == 8


async def test_the_gate_knows_every_server(any_config, metrics):
    async with lively_hall(any_config, metrics) as hall:
        gate = Gate(hall.store, "ours")
        inventory = Inventory(hall.store, gate)
        with pytest.raises(StoreUnverified):
            await inventory.claim(A1, [Claim(id="early", owner="eve", size=1)], epoch=EPOCH)
        assert len(gate.connected()) == len(hall.store.nodes)
        assert await gate.admit(gate.connected(), fresh=True) is Standing.VERIFIED
        assert (await inventory.claim(A1, [Claim(id="now", owner="eve", size=1)], epoch=EPOCH))[0].ok
