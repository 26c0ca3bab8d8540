"""A till of a test's own, on the database of a stage: the same steps that the product takes, in the test's process."""

from collections.abc import Callable
from datetime import UTC, datetime
from unittest.mock import Mock

import asyncpg
from prometheus_client import CollectorRegistry

from aisle.booking.pay import Till
from aisle.metrics import MoneyMetrics
from aisle.money_bridges import sell_with, take_back_with
from aisle.payment.provider import Provider
from aisle.payment.sandbox import Sandbox
from aisle.relay import Relay
from aisle.ticketing.sell import TicketSeller


def utc_now() -> datetime:
    return datetime.now(UTC)


def till_on(
    database: asyncpg.Pool, provider: Provider | None = None, *, clock: Callable[[], datetime] = utc_now
) -> Till:
    """Messages stay in the outbox, for whoever relays them."""
    seller = TicketSeller()
    provider = provider or Sandbox(database, clock=clock)

    async def currency_of(connection: asyncpg.Connection, event: int) -> str:
        return str(await connection.fetchval("select currency from ticketing.events where id = $1", event))

    return Till(
        database=database,
        providers={provider.name: provider},
        provider=provider.name,
        provider_seconds=8,
        sell=sell_with(seller),
        take_back=take_back_with(seller),
        currency_of=currency_of,
        relay=Mock(spec=Relay),
        clock=clock,
        metrics=MoneyMetrics(CollectorRegistry()),
    )
