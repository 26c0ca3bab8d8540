"""Migrations: once each, in order, whoever asks, and never on top of a changed history."""

import asyncio

import asyncpg
import pytest

from aisle.config import Config
from aisle.errors import StartupError
from aisle.migrate import Migration, migrate, pending_migrations, shipped_migrations

ONE = Migration("0001_one.sql", "create table one (id int); insert into one values (1);")
TWO = Migration("0002_two.sql", "create table two (id int);")
BROKEN = Migration("0003_broken.sql", "create table three (id int); select 1 / 0;")


async def names_applied(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        return [row["name"] for row in await connection.fetch("select name from aisle_migrations order by name")]
    finally:
        await connection.close()


async def test_shipped_migrations_apply_once_and_keep_the_installation(fresh_database_url):
    config = Config(database_url=fresh_database_url)
    assert await migrate(config) == [m.name for m in shipped_migrations()]
    connection = await asyncpg.connect(fresh_database_url)
    installation = await connection.fetchval("select id from installation")
    assert await migrate(config) == []
    assert await connection.fetchval("select id from installation") == installation
    assert await pending_migrations(connection) == []
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute("insert into installation default values")
    await connection.close()


async def test_a_new_file_is_applied_to_an_old_database(fresh_database_url):
    config = Config(database_url=fresh_database_url)
    await migrate(config, [ONE])
    assert await migrate(config, [ONE, TWO]) == ["0002_two.sql"]
    assert await names_applied(fresh_database_url) == ["0001_one.sql", "0002_two.sql"]


async def test_a_file_that_fails_leaves_nothing_of_itself_behind(fresh_database_url):
    config = Config(database_url=fresh_database_url)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(config, [ONE, BROKEN])
    assert await names_applied(fresh_database_url) == ["0001_one.sql"]
    connection = await asyncpg.connect(fresh_database_url)
    assert await connection.fetchval("select to_regclass('three')") is None
    await connection.close()


async def test_a_file_changed_after_it_was_applied_stops_the_run(fresh_database_url):
    config = Config(database_url=fresh_database_url)
    await migrate(config, [ONE])
    with pytest.raises(StartupError, match=r"0001_one\.sql was changed"):
        await migrate(config, [Migration(ONE.name, "select 1"), TWO])
    assert await names_applied(fresh_database_url) == ["0001_one.sql"]


async def test_many_at_once_apply_each_file_once(fresh_database_url):
    config = Config(database_url=fresh_database_url)
    applied = await asyncio.gather(*(migrate(config, [ONE, TWO]) for _ in range(8)))
    assert sorted(name for names in applied for name in names) == ["0001_one.sql", "0002_two.sql"]
    connection = await asyncpg.connect(fresh_database_url)
    assert await connection.fetchval("select count(*) from one") == 1
    await connection.close()
