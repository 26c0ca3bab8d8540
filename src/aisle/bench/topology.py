"""How many processes, hosts and partitions a simulated sale has: those of `aisle bench capacity`, and one of yours."""

from collections.abc import Mapping
from typing import Any

import msgspec

from aisle.errors import StartupError
from aisle.limits import EVENT_SEATS_MAX
from aisle.messages import PARTITIONS

SEATS_A_BOOKING = 2
MANY = 1_000


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """How many of what. `embedded`: as `aisle up` runs, all of it and the buyers on one host."""

    name: str
    bookings: int
    buyers: int = 256
    cores: int = 2
    gbit: float = 10.0
    embedded: bool = False
    partitions: int = PARTITIONS
    api: int = 1
    reservation: int = 1
    ticketing: int = 1
    booking: int = 1
    brokers: int = 1
    stores: int = 1
    database_cores: int = 0


def topology_of(numbers: Mapping[str, Any]) -> Topology:
    """One that somebody asks about, by the names of its numbers; hosts are bounded, so that an answer comes."""
    counts = {name: numbers[name] for name in ("api", "reservation", "ticketing", "booking", "brokers", "stores")}
    counts |= {"cores": numbers["cores"], "partitions": numbers["partitions"]}
    wrong = [name for name, count in counts.items() if not 1 <= count <= MANY]
    if wrong or not 2 <= numbers["seats"] <= EVENT_SEATS_MAX or not 0 < numbers["gbit"] <= MANY:
        raise StartupError(
            f"--{(wrong or ['seats or --gbit'])[0]} is out of bounds: 1 to {MANY}, seats to {EVENT_SEATS_MAX}"
        )
    return Topology(
        name="yours", bookings=numbers["seats"] // SEATS_A_BOOKING, buyers=4_096, gbit=numbers["gbit"], **counts
    )


def _step(name: str, seats: int, **counts: Any) -> Topology:
    return Topology(name=name, bookings=seats // SEATS_A_BOOKING, buyers=4_096, cores=4, **counts)


# From one of each to what sells a million seats in half a minute.
LADDER = (
    _step("one of each", 50_000),
    _step("two of each", 50_000, api=2, reservation=2, ticketing=2, booking=2),
    _step("four API, two of each worker", 50_000, api=4, reservation=2, ticketing=2, booking=2, database_cores=8),
    _step(
        "eight API, four of each worker, three stores",
        1_000_000,
        api=8,
        reservation=4,
        ticketing=4,
        booking=4,
        stores=3,
        brokers=3,
        database_cores=16,
    ),
)
