"""A rolling restart under load: two API processes, each ended with SIGTERM and started anew while buyers buy.

Every order is answered, or repeated under its key at the other process; no answer is a 5xx, but for a 503 that says
when to come back.
"""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from aisle.config import Config
from aisle.embedded.server import free_port
from tests import children
from tests.http_client import Answer, connections
from tests.people import Person, a_hall, new_key
from tests.running import PATIENCE_SECONDS, as_environment, clean_environment, status_of, stop, wait_until
from tests.stage import Stage, settle

BUYERS = 12


class Api:
    """An API process that comes back at the same address, as behind a load balancer."""

    def __init__(self, config: Config) -> None:
        self._config = msgspec.structs.replace(config, port=free_port())
        self.address = f"http://{self._config.host}:{self._config.port}"
        self.start()

    def start(self) -> None:
        self.process: subprocess.Popen[bytes] = children.start(
            [sys.executable, "-m", "aisle", "serve", "--roles", "api"],
            env=clean_environment(as_environment(self._config)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: status_of(f"{self.address}/readyz") == 200, f"{self.address} is ready", self.process)

    def restart(self) -> None:
        stop(self.process)
        assert self.process.returncode == 0, "it drains and ends by itself"
        self.start()


@contextmanager
def two_apis(config: Config) -> Iterator[tuple[Api, Api]]:
    apis = Api(config), Api(config)
    try:
        yield apis
    finally:
        for api in apis:
            stop(api.process)


class Buyer:
    """Buys one seat after the other; whoever does not answer is left for the other process, with the same key."""

    def __init__(self, token: str, event: int, addresses: list[str]) -> None:
        self._token, self._event, self._addresses = token, event, addresses
        self.answers: list[Answer] = []
        self.bought: list[str] = []
        self.repeated = 0

    async def buy_until(self, done: asyncio.Event) -> None:
        while not done.is_set():
            await self._buy(new_key())

    async def _buy(self, key: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    answer = await self._ask(key)
                except (OSError, EOFError):
                    self.repeated += 1
                    self._addresses.reverse()
                    continue
                self.answers.append(answer)
                if answer.status == 202:
                    self.bought.append(answer.json["id"])
                    return
                assert answer.status == 503, answer.body
                await asyncio.sleep(int(answer.headers["retry-after"]))

    async def _ask(self, key: str) -> Answer:
        order: dict[str, Any] = {"event_id": self._event, "quantity": 1}
        async with connections(self._addresses[0], 1) as [connection]:
            return await connection.request("POST", "/bookings", order, token=self._token, key=key)


@pytest.fixture
def event(seller: Person) -> int:
    return seller.opens(a_hall(("A", 3000, 100, 100), seats_per_booking=1, seats_per_buyer=10_000))


async def test_a_rolling_restart_costs_nobody_an_order(stage: Stage, event: int):
    with two_apis(stage.config) as apis:
        tokens = await stage.tokens(BUYERS)
        addresses = [api.address for api in apis]
        buyers = [Buyer(token, event, addresses[n % 2 :] + addresses[: n % 2]) for n, token in enumerate(tokens)]
        done = asyncio.Event()
        buying = asyncio.gather(*(buyer.buy_until(done) for buyer in buyers))
        for api in apis:
            await asyncio.sleep(0.5)
            await asyncio.to_thread(api.restart)
        await asyncio.sleep(0.5)
        done.set()
        await buying
    statuses = Counter(answer.status for buyer in buyers for answer in buyer.answers)
    assert set(statuses) <= {202, 503}, statuses
    bought = [booking for buyer in buyers for booking in buyer.bought]
    assert len(bought) == len(set(bought)) > BUYERS
    async with stage.behind() as (database, store):
        kept = await database.fetchval("select count(*) from booking.bookings where event_id = $1", event)
        assert kept == len(bought), "every order is one booking, however often it was sent"
        await settle(database, store, [event])
