"""Halls whose seats the test moves itself, and browsers that watch them over real connections."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import httpx

from aisle.config import Config
from aisle.metrics import Metrics
from aisle.migrate import migrate
from aisle.reservation.claims import Claim, Settlement, Verb
from aisle.reservation.inventory import Hall, Inventory
from aisle.reservation.keys import Place
from aisle.reservation.reads import hall_map, seat_maps
from aisle.reservation.subsection import Subsection, unpack
from aisle.store import Store, open_store
from aisle.ticketing import store as event_store
from aisle.ticketing.event import EventState, plan_hall
from tests.conftest import Servers
from tests.unit.test_event import describe

PATIENCE_SECONDS = 60.0
NOW = datetime.now(UTC)


@contextmanager
def own_database(servers: Servers, name: str) -> Iterator[str]:
    """A migrated database that nobody else listens to."""
    url = urlsplit(servers.database_url)._replace(path=f"/{name}").geturl()

    async def execute(statement: str) -> None:
        connection = await asyncpg.connect(servers.database_url)
        await connection.execute(statement)
        await connection.close()

    asyncio.run(execute(f'create database "{name}"'))
    asyncio.run(migrate(Config(database_url=url)))
    yield url
    asyncio.run(execute(f'drop database "{name}" with (force)'))


class LiveHall:
    """An event on sale: 2 x 10 seats in A-1 and A-2, 4 in B-7 of which one is blocked."""

    def __init__(self, store: Store, event: int, shapes: dict[Place, Subsection]) -> None:
        self.store, self.event, self.shapes = store, event, shapes
        self.inventory = Inventory(store)

    def place(self, section: str, subsection: int) -> Place:
        return Place(self.event, section, subsection)

    async def claim(self, place: Place, id: str, **wanted: Any) -> None:
        [outcome] = await self.inventory.claim(place, [Claim(id=id, owner="ana", **wanted)], epoch=1)
        assert outcome.ok, outcome

    async def settle(self, place: Place, id: str, verb: Verb) -> None:
        [outcome] = await self.inventory.settle(place, [Settlement(verb, id, "ana")], epoch=1)
        assert outcome.ok, outcome

    async def truth(self) -> dict[str, list[int]]:
        """The seats as the store has them now."""
        maps = await seat_maps(self.store, list(self.shapes))
        return {
            f"{m.place.section}-{m.place.subsection}": [int(s) for s in unpack(self.shapes[m.place], m.packed)]
            for m in maps
        }

    async def version(self) -> int:
        return (await hall_map(self.store, self.event)).version


@asynccontextmanager
async def live_hall(
    config: Config, *, state: EventState = EventState.ON_SALE, **description: object
) -> AsyncIterator[LiveHall]:
    described = describe(**description)
    async with (
        asyncpg.create_pool(config.database_url, min_size=1, max_size=2) as database,
        open_store(config, Metrics()) as store,
    ):
        async with database.acquire() as connection, connection.transaction():
            event = await event_store.insert_event(
                connection, uuid4(), described, plan_hall(described), own_lane_from_seats=10**6, now=NOW
            )
            await event_store.move_event(connection, event.id, sources=["creating"], target=state.value, now=NOW)
        halls = []
        for plan in plan_hall(described):
            shape = Subsection(plan.rows, plan.seats_per_row)
            place = Place(event.id, plan.section, plan.subsection)
            halls.append(Hall(place, shape, plan.price, shape.seats, plan.place, frozenset(plan.blocked)))
        ready = LiveHall(store, event.id, {hall.place: hall.shape for hall in halls})
        await ready.inventory.open(halls, epoch=1)
        await ready.inventory.switch(list(ready.shapes), epoch=1, on_sale=True)
        yield ready


class Told(NamedTuple):
    id: int | None
    name: str
    data: Any


class Browser:
    """Reads a stream and folds it as the documentation says. A gap or an id that does not grow fails the test."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.told: list[Told] = []
        self.seats: dict[str, list[int]] = {}
        self.retries: list[int] = []
        self.last_id = -1
        self._versions: dict[str, int] = {}
        self._lines = answer.aiter_lines()

    async def next(self) -> Told | None:
        """The next event; None when the stream has ended."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if name == "retry":
                    self.retries.append(int(value))
                elif line and name:
                    fields[name] = value
                elif "event" in fields:
                    return self._take(fields)
        return None

    async def until(self, name: str) -> Told:
        while told := await self.next():
            if told.name == name:
                return told
        raise AssertionError(f"the stream ended before {name}; it told {self.told}")

    async def until_seats(self, truth: dict[str, list[int]]) -> None:
        while self.seats != truth:
            assert await self.next() is not None, "the stream ended before it told the truth"

    def _take(self, fields: dict[str, str]) -> Told:
        id = int(fields["id"]) if "id" in fields else None
        told = Told(id, fields["event"], json.loads(fields["data"]))
        if id is not None:
            assert id > self.last_id, "ids strictly increase"
            self.last_id = id
        if told.name == "delta":
            self._fold(told.data)
        elif told.name == "snapshot" and "map" in told.data:
            self._start(told.data)
        self.told.append(told)
        return told

    def _start(self, data: dict[str, Any]) -> None:
        rest = base64.b64decode(data["map"])
        self.seats, self._versions = {}, {}
        for section, number, version, *counts in data["places"]:
            size = (sum(counts) + 3) // 4
            states = [int(state) for state in unpack(Subsection(sum(counts), 1), rest[:size])]
            assert [states.count(n) for n in range(4)] == counts
            rest = rest[size:]
            self.seats[f"{section}-{number}"], self._versions[f"{section}-{number}"] = states, version

    def _fold(self, data: dict[str, Any]) -> None:
        place = data["place"]
        if place in self.seats:
            assert data["from"] == self._versions[place], "a gap"
            for seat, state in data["changes"]:
                self.seats[place][seat] = state
        self._versions[place] = data["version"]


@asynccontextmanager
async def browsing(address: str, path: str, **headers: str) -> AsyncIterator[Browser]:
    async with (
        httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client,
        client.stream("GET", f"{address}/api/v1{path}", headers={"origin": address, **headers}) as answer,
    ):
        yield Browser(answer)


async def open_streams(address: str) -> int:
    """How many browsers the process says it has."""
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        text = (await client.get(f"{address}/metrics")).text
    return int(float(next(line.split()[1] for line in text.splitlines() if line.startswith("aisle_sse_connections "))))


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.05)
