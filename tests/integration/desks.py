"""The accounts slice in this process, on the real servers, with a clock the test may turn."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID

from aisle.accounts.account import Account, Role
from aisle.accounts.desk import Desk, open_desk
from aisle.accounts.passwords import NOBODY
from aisle.config import Config
from aisle.db import open_database
from aisle.ids import new_id
from aisle.metrics import Metrics
from aisle.store import open_store


class Clock:
    """Starts at the real time, because the store's keys run on theirs, and jumps when told."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC).timestamp()

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def opened_desk(config: Config, clock: Clock | None = None) -> AsyncIterator[Desk]:
    async with (
        open_database(config) as database,
        open_store(config, Metrics()) as store,
        open_desk(config, database, store, clock=clock or Clock()) as desk,
    ):
        yield desk


async def account_in(desk: Desk, role: Role = Role.BUYER) -> UUID:
    """An account nobody can log in to: for tests that make its sessions themselves."""
    now = datetime.now(UTC)
    account = Account(new_id(now), f"{role}.{os.urandom(6).hex()}@example.com", role, now)
    assert await desk.accounts.insert(account, NOBODY)
    return account.id
