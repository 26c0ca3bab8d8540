"""Other ways to do the same, in the same run against the same server, so that ratios mean something on any machine.

The algorithm that seed document 001 prints, word for word; and the same claim script through redis-py's asyncio client.
"""

import asyncio
from itertools import islice

import msgspec
import redis
import redis.asyncio

from aisle.bench.cost import Cost, cost_of, median
from aisle.bench.selling import PARTY, concurrently, orders_for
from aisle.bench.stage import EPOCH, Sizes, Stage
from aisle.reservation.claims import Claim, Outcome
from aisle.reservation.inventory import CLAIM
from aisle.reservation.keys import Place

POOL = 50

_pack = msgspec.msgpack.Encoder().encode
_outcomes = msgspec.msgpack.Decoder(list[Outcome]).decode


async def measure_seed_algorithm(stage: Stage, url: str) -> Cost:
    """One synchronous consumer sells a whole subsection, two adjacent seats a booking."""
    connection = redis.Redis.from_url(url)
    try:
        seller = SeedSeller(connection, stage.store.prefix, stage.sizes)
        seller.initialise()
        return median([await cost_of(stage.store, asyncio.to_thread(seller.sell_out))])
    finally:
        connection.close()


class SeedSeller:
    """Row counters, then a BITFIELD per seat looked at and per seat taken. Not atomic: one consumer only."""

    #   seats_bf:<event>:<section>-<subsection>          2 bits a seat
    #   row_avail:<event>:<section>-<subsection>:<row>   free seats of the row
    #   subsection_avail:<event>:<section>-<subsection>  free seats

    def __init__(self, connection: "redis.Redis", prefix: str, sizes: Sizes) -> None:
        self._connection = connection
        self._sizes = sizes
        self._seats = f"{prefix}seed:seats_bf:1:A-1"
        self._rows = f"{prefix}seed:row_avail:1:A-1"
        self._available = f"{prefix}seed:subsection_avail:1:A-1"

    def initialise(self) -> None:
        self._connection.set(self._seats, bytes(-(-self._sizes.shape.seats // 4)))
        self._connection.set(self._available, self._sizes.shape.seats)
        for row in range(1, self._sizes.rows + 1):
            self._connection.set(f"{self._rows}:{row}", self._sizes.seats_per_row)

    def sell_out(self) -> int:
        bookings = 0
        while pair := self.find():
            self.reserve(*pair)
            bookings += 1
        assert bookings == self._sizes.shape.seats // PARTY, f"sold {bookings} pairs"
        return bookings

    def find(self) -> tuple[int, int] | None:
        for row in range(1, self._sizes.rows + 1):
            if int(self._connection.get(f"{self._rows}:{row}") or 0) < PARTY:
                continue
            for seat in range(1, self._sizes.seats_per_row):
                if self._state(row, seat) == 0 and self._state(row, seat + 1) == 0:
                    return row, seat
        return None

    def reserve(self, row: int, seat: int) -> None:
        for number in (seat, seat + 1):
            self._connection.bitfield(self._seats).set("u2", self._offset(row, number), 1).execute()
            self._connection.decr(f"{self._rows}:{row}")
            self._connection.decr(self._available)

    def _state(self, row: int, seat: int) -> int:
        [state] = self._connection.bitfield(self._seats).get("u2", self._offset(row, seat)).execute()
        return int(state)

    def _offset(self, row: int, seat: int) -> int:
        return 2 * ((row - 1) * self._sizes.seats_per_row + seat - 1)


async def measure_redis_py(stage: Stage, url: str) -> Cost:
    """The claim script, called through a pool of redis-py connections by as many tasks."""
    halls = stage.new_halls(stage.sizes.rival_subsections)
    await stage.open(halls)
    client = redis.asyncio.Redis.from_url(url, max_connections=POOL)

    async def claim(place: Place, claims: list[Claim]) -> int:
        packed = _pack([claim.packed() for claim in claims])
        keys = stage.inventory.keys(place)
        reply = await client.evalsha(CLAIM.sha.decode(), len(keys), *keys, EPOCH, packed)
        assert all(outcome.ok for outcome in _outcomes(reply))
        return len(claims)

    try:
        orders = orders_for(halls, 1)
        # The first calls open the connections of the pool; a running service has them open.
        warm = await concurrently(islice(orders, POOL), claim, POOL)
        return median([await cost_of(stage.store, concurrently(orders[warm:], claim, POOL))])
    finally:
        await client.aclose()
        await stage.clear(halls)
