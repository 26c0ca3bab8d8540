"""The hot store edge against a real Valkey: scripts, the probe, what an outage looks like to a caller."""

import asyncio

import pytest

from aisle.breaker import BreakerState
from aisle.errors import StartupError, StoreScriptFailed, StoreUnavailable
from aisle.scripts import Script, load_script
from aisle.store import open_store
from respline import ServerError
from tests.conftest import with_settings

COUNT = b"return redis.call('INCRBY', KEYS[1], ARGV[1])"


def script(name: str, source: bytes) -> Script:
    import hashlib

    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())


async def test_a_script_the_server_does_not_know_is_loaded_and_runs_once(config, metrics):
    unknown = script("count", COUNT + b" -- " + config.store_prefix.encode())
    async with open_store(config, metrics) as store:
        assert await store.run(unknown, [config.store_prefix + "n"], [5]) == 5
        assert await store.run(unknown, [config.store_prefix + "n"], [1]) == 6
        await store.call("SCRIPT", "FLUSH")
        assert await store.run(unknown, [config.store_prefix + "n"], [1]) == 7


async def test_many_runs_travel_together_and_a_failed_one_spoils_only_itself(config, metrics):
    key, wrong = config.store_prefix + "n", config.store_prefix + "list"
    async with open_store(config, metrics) as store:
        await store.call("RPUSH", wrong, "x")
        replies = await store.run_many(script("count", COUNT), [([key], [1]), ([wrong], [1]), ([key], [1])])
        assert [replies[0], replies[2]] == [1, 2]
        assert isinstance(replies[1], StoreScriptFailed)
        assert replies[1].code == "WRONGTYPE"
        with pytest.raises(StoreScriptFailed):
            await store.run(script("count", COUNT), [wrong], [1])
        assert metrics.registry.get_sample_value("aisle_store_script_seconds_count", {"script": "count"}) >= 2


async def test_a_refused_command_is_an_answer_not_an_outage(config, metrics):
    async with open_store(config, metrics) as store:
        await store.call("RPUSH", config.store_prefix + "list", "x")
        for _ in range(20):
            with pytest.raises(ServerError):
                await store.call("INCR", config.store_prefix + "list")
        assert store.breaker.state is BreakerState.CLOSED


async def test_blocking_reads_do_not_hold_up_the_data_connection(config, metrics):
    waiting = config.store_prefix + "queue"
    async with open_store(with_settings(config, store_pool_size=2), metrics) as store, store.blocking_line() as line:
        blocked = asyncio.ensure_future(line.call("BLPOP", waiting, 0))
        await store.ping()
        await store.call("RPUSH", waiting, "now")
        assert await blocked == [waiting.encode(), b"now"]


async def test_the_pool_bounds_blocking_reads(config, metrics):
    async with open_store(with_settings(config, store_pool_size=2), metrics) as store, store.blocking_line():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), store.blocking_line():
                pytest.fail("a second blocking connection was opened beyond the pool size")


async def test_the_probe_leaves_no_key_behind_and_names_the_server(config, metrics):
    async with open_store(config, metrics) as store:
        assert store.server.flavour == "valkey"
        assert store.server.version.startswith("9.")
        _, found = await store.call("SCAN", 0, "MATCH", config.store_prefix + "*", "COUNT", 100000)
        assert found == []


async def test_a_store_that_may_evict_seats_is_refused(own_valkey, config, metrics):
    valkey = own_valkey({"maxmemory-policy": "allkeys-lru"})
    with pytest.raises(StartupError, match="maxmemory-policy is allkeys-lru"):
        async with open_store(with_settings(config, store_url=valkey.url), metrics):
            pytest.fail("opened")


async def test_a_replica_is_refused(own_valkey, config, metrics):
    replica = own_valkey({"replicaof": "127.0.0.1 1"})
    with pytest.raises(StartupError, match="read-only replica"):
        async with open_store(with_settings(config, store_url=replica.url), metrics):
            pytest.fail("opened")


async def test_calls_are_refused_at_once_while_the_store_is_away_and_work_when_it_is_back(own_valkey, config, metrics):
    valkey = own_valkey({})
    async with open_store(with_settings(config, store_url=valkey.url), metrics) as store:
        await store.call("SET", "k", "v")
        await asyncio.to_thread(valkey.kill)
        for _ in range(20):
            with pytest.raises(StoreUnavailable) as refused:
                await store.call("SET", "k", "lost")
            assert (refused.value.status, refused.value.code) == (503, "store_unavailable")
        assert store.breaker.state is BreakerState.OPEN
        assert metrics.registry.get_sample_value("aisle_store_breaker_open") == 1
        await asyncio.to_thread(valkey.restart)
        store.breaker._clock = lambda: float("inf")  # thirty seconds later
        async with asyncio.timeout(30):
            while store.breaker.state is not BreakerState.CLOSED:
                try:
                    assert await store.call("GET", "k") in (b"v", None)
                except StoreUnavailable:
                    await asyncio.sleep(0.02)


def test_a_script_file_may_put_others_in_front():
    assert load_script("aisle", "probe").source.startswith(b"-- Start-up probe")
