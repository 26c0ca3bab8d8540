"""How a session ends: by its owner, by silence, by age, with its key; and what happens while the store is away."""

import asyncio
import time

import asyncpg
import pytest
import redis

from aisle.accounts.access import Access
from aisle.accounts.account import Role
from aisle.accounts.sessions import SESSIONS_PER_ACCOUNT_MAX
from aisle.accounts.store import AccountsStore
from aisle.accounts.tokens import Kind, Signer, new_signing_key
from aisle.embedded.supervisor import Supervisor
from aisle.errors import Problem, StoreUnavailable
from tests.conftest import with_settings
from tests.integration.desks import Clock, account_in, opened_desk
from tests.integration.visitors import ADDRESS_LIMITS_OFF, COOKIE, Visitor, keys_in_store, new_email
from tests.running import serving, wait_until


def session_keys(config):
    return keys_in_store(config, "session:*")


async def until_gone(config):
    deadline = time.monotonic() + 60
    while session_keys(config):
        assert time.monotonic() < deadline, "the session's key should have run out"
        await asyncio.sleep(0.02)


async def test_a_session_nobody_uses_ends(config):
    clock = Clock()
    async with opened_desk(with_settings(config, session_idle_seconds=0.3), clock) as desk:
        text = (await desk.sessions.open(await account_in(desk), Role.BUYER)).encode()
        assert await desk.sessions.find(text) is not None
        await until_gone(config)
        clock.now += 0.3
        assert await desk.sessions.find(text) is None


async def test_being_seen_starts_the_idle_time_anew_but_never_past_the_absolute_end(config):
    clock = Clock()
    settings = with_settings(config, session_idle_seconds=1000, session_seconds_max=3000)
    async with opened_desk(settings, clock) as desk:
        text = (await desk.sessions.open(await account_in(desk), Role.BUYER)).encode()
        [(key, _)] = session_keys(config)
        with redis.Redis.from_url(config.store_url) as store:
            store.pexpire(key, 5_000)
            assert await desk.sessions.find(text) is not None
            assert 900_000 < store.pttl(key) <= 1_000_000
            clock.now += 2990
            assert await desk.sessions.find(text) is not None
            assert store.pttl(key) <= 10_000
        clock.now += 10
        assert await desk.sessions.find(text) is None


async def test_a_session_ends_at_its_age_even_if_its_key_stayed_in_the_store(config):
    clock = Clock()
    async with opened_desk(with_settings(config, session_seconds_max=60), clock) as desk:
        text = (await desk.sessions.open(await account_in(desk), Role.BUYER)).encode()
        with redis.Redis.from_url(config.store_url) as store:
            store.persist(session_keys(config)[0][0])
        clock.now += 60
        assert await desk.sessions.find(text) is None
        assert len(session_keys(config)) == 1


async def test_logging_out_counts_at_once_here_and_within_two_seconds_elsewhere(config):
    clock = Clock()
    async with opened_desk(config, clock) as here, opened_desk(config, clock) as elsewhere:
        text = (await here.sessions.open(await account_in(here), Role.BUYER)).encode()
        actor = await here.sessions.find(text)
        assert await elsewhere.sessions.find(text) == actor
        await here.sessions.end(actor)
        assert await here.sessions.find(text) is None
        clock.now += 2.0
        assert await elsewhere.sessions.find(text) is None


async def test_an_ended_session_is_announced_to_whoever_keeps_connections_open(config):
    async with opened_desk(config) as desk:
        text = await desk.sessions.open(await account_in(desk), Role.BUYER)
        actor = await desk.sessions.find(text.encode())
        with redis.Redis.from_url(config.store_url) as store, store.pubsub(ignore_subscribe_messages=True) as ear:
            ear.subscribe(f"{config.store_prefix}sessions_ended")
            while ear.connection.can_read(timeout=0.0) is False:
                await asyncio.sleep(0.01)
            ear.get_message()
            await desk.sessions.end(actor)
            message = ear.get_message(timeout=30)
    assert message["data"] == actor.session.hex().encode()


async def test_an_account_has_a_bounded_number_of_sessions_and_the_oldest_gives_way(config):
    clock = Clock()
    async with opened_desk(config, clock) as desk:
        account_id = await account_in(desk)
        texts = []
        for _ in range(SESSIONS_PER_ACCOUNT_MAX + 2):
            clock.now += 0.01
            texts.append((await desk.sessions.open(account_id, Role.BUYER)).encode())
        assert len(session_keys(config)) == SESSIONS_PER_ACCOUNT_MAX
        found = [await desk.sessions.find(text) is not None for text in texts]
        assert found == [False, False] + [True] * SESSIONS_PER_ACCOUNT_MAX


async def test_a_forged_session_is_refused_without_asking_a_store_that_is_down(config, tmp_path):
    """The genuine one proves that the store cannot answer; so the forged ones cannot have asked it."""
    with Supervisor(tmp_path / "data", log=lambda line: None) as supervisor:
        valkey = supervisor.start_valkey()
        async with opened_desk(with_settings(config, store_url=valkey.url, store_timeout=1)) as desk:
            text = await desk.sessions.open(await account_in(desk), Role.BUYER)
            valkey.kill()
            foreign = Signer([new_signing_key()]).issue(Kind.SESSION, 2**50).text
            for forged in (foreign, text[:-1], text[:-1] + ("A" if text[-1] != "A" else "B"), "t" + text[1:], ""):
                assert await desk.sessions.find(forged.encode()) is None
            with pytest.raises(Problem) as refusal:
                await desk.sessions.find(text.encode())
            assert refusal.value.status == 503


async def test_a_store_that_refuses_the_command_lets_nobody_in(config):
    async with opened_desk(config) as desk:
        text = (await desk.sessions.open(await account_in(desk), Role.BUYER)).encode()
        [(key, _)] = session_keys(config)
        with redis.Redis.from_url(config.store_url) as store:
            store.delete(key)
            store.hset(key, "wrong", "type")
            with pytest.raises(StoreUnavailable):
                await desk.sessions.find(text)


async def test_keys_are_made_once_by_processes_that_start_together(config, fresh_database_url):
    from aisle.migrate import migrate

    fresh = with_settings(config, database_url=fresh_database_url)
    await migrate(fresh)
    pool = await asyncpg.create_pool(fresh_database_url, min_size=8, max_size=8)
    async with pool:
        sets = await asyncio.gather(*(AccountsStore(pool).signing_keys() for _ in range(8)))
        assert len({tuple(keys) for keys in sets}) == 1
        assert await pool.fetchval("select count(*) from accounts.signing_keys") == 1


async def test_rotation_a_new_key_signs_once_the_others_had_time_to_hear_of_it(config, fresh_database_url):
    from aisle.migrate import migrate

    fresh = with_settings(config, database_url=fresh_database_url)
    await migrate(fresh)
    clock = Clock()
    async with opened_desk(fresh, clock) as desk, asyncpg.create_pool(fresh_database_url, min_size=1) as pool:
        [first] = await desk.accounts.signing_keys()
        text = (await desk.sessions.open(await account_in(desk), Role.BUYER)).encode()
        second = new_signing_key()
        await desk.accounts.add_signing_key(second)
        assert await desk.accounts.signing_keys() == [first, second], "too young to sign"
        await pool.execute("update accounts.signing_keys set created_at = created_at - interval '61 seconds'")
        keys = await desk.accounts.signing_keys()
        assert keys == [second, first]
        desk.signer.use(keys)
        assert await desk.sessions.find(text) is not None, "the old key still verifies"
        await pool.execute("delete from accounts.signing_keys where id = $1", first.id.decode())
        desk.signer.use(await desk.accounts.signing_keys())
        clock.now += 2.0
        assert await desk.sessions.find(text) is None, "removed: what it signed is over"


async def test_a_key_given_as_a_setting_leaves_the_database_without_one(config, fresh_database_url):
    from aisle.migrate import migrate

    fresh = with_settings(config, database_url=fresh_database_url, secret_key="5a" * 32)
    await migrate(fresh)
    async with opened_desk(fresh) as desk:
        text = (await desk.sessions.open(await account_in(desk), Role.BUYER)).encode()
    connection = await asyncpg.connect(fresh_database_url)
    assert await connection.fetchval("select count(*) from accounts.signing_keys") == 0
    await connection.close()
    async with opened_desk(fresh) as restarted:
        assert await restarted.sessions.find(text) is not None


async def test_a_flushed_store_logs_everybody_out_and_lets_nobody_in(config):
    async with opened_desk(config) as desk:
        text = (await desk.sessions.open(await account_in(desk), Role.BUYER)).encode()
        with redis.Redis.from_url(config.store_url) as store:
            store.delete(*(key for key, _ in keys_in_store(config, "*")))
        scope = {"headers": [(b"cookie", f"{COOKIE}=".encode() + text)]}
        assert await Access(desk).recognise(scope) is None


def test_while_the_store_is_away_nobody_is_let_in_and_afterwards_the_session_still_counts(config, tmp_path):
    with Supervisor(tmp_path / "data", log=lambda line: None) as supervisor:
        valkey = supervisor.start_valkey()
        quick = {"store_timeout": 1, "store_breaker_seconds": 2}
        settings = with_settings(config, store_url=valkey.url, **quick, **ADDRESS_LIMITS_OFF)
        with serving(settings) as (process, address), Visitor(address) as visitor:
            email = new_email()
            visitor.register(email)
            visitor.log_in(email)
            valkey.kill()
            wait_until(lambda: visitor.get("/me").status_code == 503, "what was remembered has run out", process)
            refused = [visitor.get("/me"), visitor.log_in(email), visitor.register(new_email())]
            assert {answer.status_code for answer in refused} == {503}
            assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
            assert visitor.delete("/sessions/current").status_code == 503
            valkey.restart()
            wait_until(lambda: visitor.get("/me").status_code == 200, "the store is back", process)
