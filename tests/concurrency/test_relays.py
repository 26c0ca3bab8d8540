"""Several relays on one outbox, as when an operator starts a service twice: they share it, and leave nothing."""

import asyncio
from collections import Counter
from datetime import UTC, datetime

import asyncpg

from aisle.config import Config
from aisle.limits import RELAY_ROWS_MAX
from aisle.messages import BookingExpired, Message, encode
from aisle.migrate import migrate
from aisle.relay import Relay

MESSAGES = 3 * RELAY_ROWS_MAX + 7


class Listener:
    """Takes its time to confirm, so that the relays meet."""

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()

    async def publish(self, messages: list[Message]) -> None:
        await asyncio.sleep(0.05)
        self.heard.update(message.id for message in messages)


def expired(number: int) -> bytes:
    route = {"lane": "shared", "event": 1, "section": "A", "partition": 0, "epoch": 1}
    return encode(BookingExpired(id=f"m{number}", booking="b", buyer="c", parts=(), **route))


async def test_relays_at_once_publish_each_message_once_and_all_of_them(fresh_database_url):
    await migrate(Config(database_url=fresh_database_url))
    async with asyncpg.create_pool(fresh_database_url, min_size=4, max_size=4) as database:
        rows = [(expired(number), datetime.now(UTC)) for number in range(MESSAGES)]
        await database.executemany("insert into booking.outbox (message, written_at) values ($1, $2)", rows)
        listener = Listener()
        relays = [Relay("booking", database, listener) for _ in range(4)]

        async def relay_all(relay: Relay) -> int:
            while await relay.relay_once():
                pass
            return relay.published

        shares = await asyncio.gather(*(relay_all(relay) for relay in relays))
        assert await database.fetchval("select count(*) from booking.outbox") == 0
    assert set(listener.heard.values()) == {1}
    assert len(listener.heard) == sum(shares) == MESSAGES
    assert sum(share > 0 for share in shares) > 1, "they share the work"
