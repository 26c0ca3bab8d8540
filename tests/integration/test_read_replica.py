"""A read replica is for browsing. It is shown here by a copy that stays as it was before the first event.

Whoever decided anything by it would find no event, no account and no booking there; and PostgreSQL counts the sessions
of every database: only browsing ever opens one on the copy.
"""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from aisle.browsing import Browsing, open_browsing
from aisle.db import open_database
from aisle.embedded.server import free_port
from tests.conftest import Servers, with_settings
from tests.door import email_of, scan, tickets_of
from tests.people import a_hall, expect, new_key
from tests.running import wait_until
from tests.stage import Stage, prepared_stage

SESSIONS = "select sessions from pg_stat_database where datname = $1"


@pytest.fixture(scope="module")
def copy(servers: Servers) -> str:
    return f"copy_{free_port()}_{id(servers)}"


@pytest.fixture(scope="module")
def stage(servers: Servers, copy: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    async def execute(statement: str) -> None:
        connection = await asyncpg.connect(servers.database_url)
        await connection.execute(statement)
        await connection.close()

    read_url = urlsplit(servers.database_url)._replace(path=f"/{copy}").geturl()
    with prepared_stage(servers, tmp_path_factory.mktemp("stage"), database_read_url=read_url) as stage:
        original = urlsplit(stage.config.database_url).path.strip("/")
        asyncio.run(execute(f'create database "{copy}" template "{original}"'))
        try:
            stage.start()
            yield stage
        finally:
            stage.stop()
            asyncio.run(execute(f'drop database "{copy}" with (force)'))


def test_everything_but_browsing_is_decided_without_the_replica(stage, seller, buyer, copy):
    event = seller.opens(a_hall(("A", 3000, 2, 10), name="Not in the Copy"))
    assert expect(200, buyer.get(f"/events/{event}"))["name"] == "Not in the Copy"
    assert buyer.free(event) == 20
    booking = buyer.books(event, 2)
    buyer.waits_for(booking, "PENDING_PAYMENT")
    buyer.pays(booking)
    expect(201, buyer.post(f"/events/{event}/holds", {"quantity": 2}, key=new_key()))
    checked_out = expect(201, buyer.post("/cart/checkout", key=new_key()))["id"]
    expect(200, buyer.post(f"/bookings/{checked_out}/cancel"))
    door = stage.staff()
    expect(200, seller.send("PUT", f"/events/{event}/door-staff", json={"email": email_of(door)}))
    assert scan(door, event, tickets_of(buyer, booking)[0]["code"])["outcome"] == "accepted"
    assert [each["id"] for each in expect(200, seller.get("/seller/events"))["items"]] == [event]
    assert len(expect(200, buyer.get("/bookings"))["items"]) == 2
    expect(200, seller.get(f"/events/{event}/sales"))
    stage.settle(event)
    assert stage.fetch(SESSIONS, copy)[0]["sessions"] == 0, "something that decides has asked the replica"

    assert expect(200, buyer.get("/events"))["items"] == [], "browsing shows what the replica has"
    wait_until(lambda: stage.fetch(SESSIONS, copy)[0]["sessions"] > 0, "browsing is counted")


async def test_a_replica_that_is_away_is_left_alone_and_the_primary_answers(config):
    away = with_settings(config, database_read_url=f"postgresql://nobody@127.0.0.1:{free_port()}/none")
    asked = []

    async def count(connection: asyncpg.Connection) -> int:
        asked.append(connection)
        return int(await connection.fetchval("select 1"))

    async with open_database(away) as primary, open_browsing(away, primary) as browsing:
        assert [await browsing.read(count) for _ in range(3)] == [1, 1, 1]
        assert len(asked) == 3


async def test_the_replica_is_tried_again_after_a_while(config):
    now = [0.0]
    async with open_database(config) as primary, open_database(config) as replica:
        browsing = Browsing(primary, replica, clock=lambda: now[0])
        tries = []

        async def read(connection: asyncpg.Connection) -> int:
            tries.append(connection)
            if len(tries) == 1:
                raise asyncpg.QueryCanceledError("it had to follow the primary")
            return len(tries)

        assert await browsing.read(read) == 2
        assert await browsing.read(read) == 3
        now[0] = 60.0
        assert await browsing.read(read) == 4
        assert replica.get_size() >= 1


async def test_nothing_can_be_changed_where_people_browse(config):
    there = with_settings(config, database_read_url=config.database_url)
    async with open_database(there) as primary, open_browsing(there, primary) as browsing:
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await browsing.read(lambda connection: connection.execute("create table public.changed ()"))
