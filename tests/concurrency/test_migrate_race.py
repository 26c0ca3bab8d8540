"""Two processes migrate one database at the same moment. The first test shows that the lock is needed."""

import asyncio

import asyncpg

from aisle import migrate as migrate_module
from aisle.config import Config
from tests.running import clean_environment, run_aisle


async def test_without_the_lock_two_migrators_collide(fresh_database_url, monkeypatch):
    async def no_lock(connection):
        return None

    monkeypatch.setattr(migrate_module, "_lock", no_lock)
    slow = migrate_module.Migration("0001_slow.sql", "select pg_sleep(0.3); create table slow (id int);")
    config = Config(database_url=fresh_database_url)
    outcomes = await asyncio.gather(*(migrate_module.migrate(config, [slow]) for _ in range(4)), return_exceptions=True)
    assert any(isinstance(outcome, asyncpg.PostgresError) for outcome in outcomes), "the race no longer shows"


def test_two_processes_migrate_at_once_and_both_succeed(fresh_database_url):
    environment = clean_environment({"AISLE_DATABASE_URL": fresh_database_url})

    async def both():
        return await asyncio.gather(*(asyncio.to_thread(run_aisle, "migrate", env=environment) for _ in range(2)))

    runs = asyncio.run(both())
    assert [run.returncode for run in runs] == [0, 0], [run.stderr for run in runs]
    assert sorted("applied" in run.stdout for run in runs) == [False, True]
