"""An event's copies: one look for all who ask at once, and never an old copy after a change."""

import asyncio

import msgspec
import pytest

from aisle.db import open_database
from aisle.metrics import Metrics
from aisle.store import open_store
from aisle.ticketing.catalogue import Catalogue, Listing


class Slow(Catalogue):
    """Stops between reading the database and writing the copy, where the danger is."""

    def __init__(self, *args):
        super().__init__(*args)
        self.reads = 0
        self.read = asyncio.Event()
        self.go_on = asyncio.Event()

    async def _listing_of(self, event_id: int) -> Listing:
        self.reads += 1
        found = await super()._listing_of(event_id)
        self.read.set()
        await self.go_on.wait()
        return found


async def write_event(database, name: str) -> int:
    return await database.fetchval(
        """insert into ticketing.events (seller, name, starts_at, currency, lane, seats, seats_per_booking,
                                         seats_per_buyer, created_at, updated_at)
           values (gen_random_uuid(), $1, now(), 'EUR', 'shared', 0, 1, 1, now(), now()) returning id""",
        name,
    )


async def test_those_who_ask_together_cause_one_look(config):
    async with open_database(config) as database, open_store(config, Metrics()) as store:
        event = await write_event(database, "asked by many")
        catalogue = Slow(database, store)
        catalogue.go_on.set()
        found = await asyncio.gather(*(catalogue.find(event) for _ in range(200)))
        assert {listing.event.name for listing in found} == {"asked by many"}
        assert catalogue.reads == 1


async def test_what_was_read_before_a_change_is_not_kept_after_it(config):
    async with open_database(config) as database, open_store(config, Metrics()) as store:
        event = await write_event(database, "old")
        slow, other = Slow(database, store), Catalogue(database, store)
        reading = asyncio.create_task(slow.find(event))
        await slow.read.wait()
        await database.execute("update ticketing.events set name = 'new' where id = $1", event)
        await other.changed(event)
        slow.go_on.set()
        await reading
        await slow.changed(event)
        for catalogue in (slow, other, Catalogue(database, store)):
            assert (await catalogue.find(event)).event.name == "new"


class Unguarded(Slow):
    """Writes its copy whatever has happened since it looked: what the script is there to prevent."""

    async def _from_database(self, event_id: int, found: bytes) -> Listing:
        listing = await self._listing_of(event_id)
        await self._hot_store.call("SET", self._key(event_id), msgspec.json.encode(listing), "PX", 60_000)
        return listing


@pytest.mark.parametrize(("kind", "kept"), [(Slow, "newest"), (Unguarded, "new")])
async def test_what_was_read_between_two_changes_is_not_kept_after_the_second(config, kind, kept):
    async with open_database(config) as database, open_store(config, Metrics()) as store:
        event = await write_event(database, "new")
        slow, other = kind(database, store), Catalogue(database, store)
        await other.changed(event)
        reading = asyncio.create_task(slow.find(event))
        await slow.read.wait()
        await database.execute("update ticketing.events set name = 'newest' where id = $1", event)
        await other.changed(event)
        slow.go_on.set()
        await reading
        assert (await Catalogue(database, store).find(event)).event.name == kept


async def test_an_event_that_was_just_changed_is_read_from_the_database_once_for_all_processes(config):
    async with open_database(config) as database, open_store(config, Metrics()) as store:
        event = await write_event(database, "just opened")
        processes = [Slow(database, store) for _ in range(3)]
        await processes[0].changed(event)
        for process in processes:
            process.go_on.set()
            assert (await process.find(event)).event.name == "just opened"
        assert [process.reads for process in processes] == [1, 0, 0]


async def test_a_failed_look_is_not_remembered(config):
    async with open_database(config) as database, open_store(config, Metrics()) as store:
        catalogue = Catalogue(database, store)
        with pytest.raises(Exception, match="no such event"):
            await catalogue.find(2**62)
        event = await write_event(database, "there")
        assert (await catalogue.find(event)).event.name == "there"
