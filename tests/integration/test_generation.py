"""The gate: nothing is claimed from a store that may not be the one that was verified."""

import asyncio
import contextlib
from contextlib import asynccontextmanager

import pytest

from aisle.errors import StartupError, StoreOutcomeUnknown, StoreUnavailable, StoreUnverified
from aisle.reservation.claims import Claim, Code
from aisle.reservation.generation import RECHECK_SECONDS, RUNS_REMEMBERED_MAX, Gate, Standing
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import generation
from aisle.store import open_store
from tests.conftest import with_settings
from tests.integration.lively_hall import A1, EPOCH, fill

OURS = "0b8d1f6e-0000-4000-8000-000000000001"
PATIENCE_SECONDS = 30


class HallTime:
    """Stands still until a test moves it."""

    seconds = 0.0


@asynccontextmanager
async def gated(config, metrics, installation=OURS, hall_time=HallTime):
    """A hall filled without a gate, then an inventory with one."""
    async with open_store(config, metrics) as store:
        hall = await fill(store)
        gate = Gate(store, installation, clock=lambda: hall_time.seconds)
        yield hall, gate, Inventory(store, gate)


SHUT = "shut"


async def claim(inventory: Inventory, identifier: str) -> Code | str:
    try:
        [outcome] = await inventory.claim(A1, [Claim(id=identifier, owner="eve", size=1)], epoch=EPOCH)
    except StoreUnverified:
        return SHUT
    return outcome.code


async def claim_when_back(inventory: Inventory, identifier: str) -> Code | str:
    """Claim until the store answers again."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await claim(inventory, identifier)
            except (StoreUnavailable, StoreOutcomeUnknown):
                await asyncio.sleep(0.02)


async def test_an_unmarked_store_sells_nothing_until_it_is_admitted_as_fresh(config, metrics):
    async with gated(config, metrics) as (hall, gate, inventory):
        before = await hall.dump()
        assert await claim(inventory, "early") is SHUT
        assert await hall.dump() == before, "a closed gate touches no seat"
        assert await gate.require_ours() is Standing.UNMARKED
        assert await gate.admit(gate.connected()) is Standing.UNMARKED, "flushed and new look alike: somebody must say"
        assert await hall.store.call("EXISTS", generation(hall.store.prefix)) == 0
        assert await gate.admit(gate.connected(), fresh=True) is Standing.VERIFIED
        assert await claim(inventory, "now") is Code.OK


async def test_a_store_of_another_installation_ends_the_start(config, metrics):
    async with gated(config, metrics) as (hall, gate, inventory):
        await gate.admit(gate.connected(), fresh=True)
        other = Gate(hall.store, "somebody-else")
        with pytest.raises(StartupError, match="belongs to another installation"):
            await other.require_ours()
        before = await hall.store.call("HGETALL", generation(hall.store.prefix))
        assert await other.admit(other.connected(), fresh=True) is Standing.FOREIGN
        assert await hall.store.call("HGETALL", generation(hall.store.prefix)) == before
        assert await claim(Inventory(hall.store, other), "thief") is SHUT
        assert await claim(inventory, "ours") is Code.OK


async def test_a_store_flushed_under_a_running_process_closes_the_gate_within_a_second(config, metrics):
    time = HallTime()
    async with gated(config, metrics, hall_time=time) as (hall, gate, inventory):
        await gate.admit(gate.connected(), fresh=True)
        assert await claim(inventory, "before") is Code.OK
        await hall.store.call("DEL", generation(hall.store.prefix))
        time.seconds += RECHECK_SECONDS
        assert await claim(inventory, "after") is SHUT
        assert gate.standing is Standing.UNMARKED


async def test_a_restarted_server_sells_nothing_until_it_is_verified(own_valkey, config, metrics):
    valkey = own_valkey({})
    async with gated(with_settings(config, store_url=valkey.url), metrics) as (hall, gate, inventory):
        await gate.admit(gate.connected(), fresh=True)
        assert await claim(inventory, "before") is Code.OK
        verified = gate.connected()
        await asyncio.to_thread(valkey.kill)
        await asyncio.to_thread(valkey.restart)
        hall.store.breaker._clock = lambda: float("inf")  # the breaker's pause is over
        assert await claim_when_back(inventory, "after") is SHUT
        assert gate.standing is Standing.RESTARTED
        assert await hall.store.call("HEXISTS", hall.key("holds"), "before") == 1
        assert await hall.store.call("HEXISTS", hall.key("holds"), "after") == 0
        assert await gate.admit(verified) is Standing.RESTARTED, "what was verified is not what we are connected to"
        assert await gate.admit(gate.connected()) is Standing.VERIFIED
        assert await claim(inventory, "after") is Code.OK


async def test_a_server_that_was_a_replica_meanwhile_is_verified_again(own_valkey, config, metrics):
    """Two servers that take turns keep their processes: without its term, this one would pass for the one it was."""
    async with gated(with_settings(config, store_url=own_valkey({}).url), metrics) as (hall, gate, inventory):
        await gate.admit(gate.connected(), fresh=True)
        assert await claim(inventory, "before") is Code.OK
        run, _ = gate.connected()[0]
        [node] = hall.store.nodes
        await hall.store.call_on(node, "REPLICAOF", "127.0.0.1", "1")
        await hall.store.call_on(node, "REPLICAOF", "NO", "ONE")
        process = node.server_info["run_id"]
        with contextlib.suppress(StoreOutcomeUnknown):
            await hall.store.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
        assert await claim_when_back(inventory, "after") is SHUT
        assert node.server_info["run_id"] == process, "it is the same process all the time"
        assert gate.standing is Standing.RESTARTED
        assert gate.connected()[0][0] != run
        assert await gate.admit(gate.connected()) is Standing.VERIFIED
        assert await claim(inventory, "after") is Code.OK


async def test_another_process_learns_that_the_store_was_verified(config, metrics):
    time = HallTime()
    async with gated(config, metrics, hall_time=time) as (hall, _, inventory):
        assert await claim(inventory, "early") is SHUT
        elsewhere = Gate(hall.store, OURS)
        await elsewhere.admit(elsewhere.connected(), fresh=True)
        time.seconds += RECHECK_SECONDS
        assert await claim(inventory, "now") is Code.OK


async def test_an_open_gate_costs_no_round_trip(config, metrics):
    async with open_store(config, metrics) as store:
        gate = Gate(store, OURS, clock=lambda: 0.0)
        await gate.admit(gate.connected(), fresh=True)
        sent = store.nodes[0].counters.commands
        for _ in range(100):
            assert await gate.is_open()
        assert store.nodes[0].counters.commands == sent


async def test_many_claims_after_a_reconnect_ask_once(config, metrics):
    now = 0.0
    async with open_store(config, metrics) as store:
        gate = Gate(store, OURS, clock=lambda: now)
        await gate.admit(gate.connected(), fresh=True)
        now, sent = 100.0, store.nodes[0].counters.commands
        assert all(await asyncio.gather(*(gate.is_open() for _ in range(50))))
        await store.ping()
        assert store.nodes[0].counters.commands - sent == 2, "one look for fifty claims, and the ping"


async def test_old_runs_are_forgotten(config, metrics):
    async with open_store(config, metrics) as store:
        gate = Gate(store, OURS)
        for number in range(RUNS_REMEMBERED_MAX + 20):
            await store.call("HSET", generation(store.prefix), f"run:old{number}", number)
        assert await gate.admit(gate.connected(), fresh=True) is Standing.VERIFIED
        assert await store.call("HLEN", generation(store.prefix)) == RUNS_REMEMBERED_MAX + 1
