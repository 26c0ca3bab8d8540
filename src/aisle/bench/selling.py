"""Sell an event out through the inventory, one claim a call and many claims a call, and confirm what was sold."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from aisle.bench.cost import Cost, cost_of, median
from aisle.bench.stage import EPOCH, Stage
from aisle.reservation.claims import Claim, Outcome, Settlement, Verb
from aisle.reservation.inventory import Hall
from aisle.reservation.keys import Place

PARTY = 2
# The server answers together what it has read at once. The more calls it finds, the less it and this process wait
# for each other.
BATCHES_IN_FLIGHT = 8

Sold = list[tuple[Place, Outcome]]


class SellingCosts(msgspec.Struct, frozen=True):
    claims: Cost
    claims_batch: Cost
    confirms: Cost
    confirms_batch: Cost


async def measure_selling(stage: Stage) -> SellingCosts:
    """Rounds in turn, so that a noisy neighbour disturbs every kind of call alike."""
    costs: dict[str, list[Cost]] = {name: [] for name in SellingCosts.__struct_fields__}
    for _ in range(stage.sizes.rounds):
        for suffix, batch, tasks in (("", 1, stage.sizes.tasks), ("_batch", stage.sizes.batch, BATCHES_IN_FLIGHT)):
            halls = stage.new_halls()
            await stage.open(halls)
            sold: Sold = []
            orders = orders_for(halls, batch)
            costs["claims" + suffix].append(await cost_of(stage.store, claim_all(stage, orders, sold, tasks)))
            await stage.audit_sold_out(halls, sold)
            costs["confirms" + suffix].append(await cost_of(stage.store, confirm_all(stage, orders, tasks)))
            await stage.audit_sold_out(halls, sold)
            await stage.clear(halls)
    return SellingCosts(**{name: median(rounds) for name, rounds in costs.items()})


def orders_for(halls: Sequence[Hall], batch: int) -> list[tuple[Place, list[Claim]]]:
    """Exactly as many parties of two as there are seats for, in a shuffled order that is the same every time."""
    orders = []
    for hall in halls:
        claims = [
            Claim(id=f"bk-{hall.place.event}-{hall.rank}-{n}", owner=f"buyer-{n}", size=PARTY)
            for n in range(hall.shape.seats // PARTY)
        ]
        orders += [(hall.place, claims[at : at + batch]) for at in range(0, len(claims), batch)]
    random.Random(1).shuffle(orders)  # noqa: S311 - repeatable on purpose
    return orders


async def claim_all(stage: Stage, orders: Iterable[tuple[Place, list[Claim]]], sold: Sold, tasks: int) -> int:
    async def claim(place: Place, claims: list[Claim]) -> int:
        outcomes = await stage.inventory.claim(place, claims, epoch=EPOCH)
        refused = [outcome.code for outcome in outcomes if not outcome.ok]
        assert not refused, f"{place} refused {refused[0]} although it has seats for all"
        sold.extend((place, outcome) for outcome in outcomes)
        return len(claims)

    return await concurrently(orders, claim, tasks)


async def confirm_all(stage: Stage, orders: Iterable[tuple[Place, list[Claim]]], tasks: int) -> int:
    async def confirm(place: Place, claims: list[Claim]) -> int:
        settlements = [Settlement(Verb.CONFIRM, claim.id, claim.owner) for claim in claims]
        for settled in await stage.inventory.settle(place, settlements, epoch=EPOCH):
            assert settled.ok, f"{place} did not confirm: {settled.code}"
        return len(claims)

    return await concurrently(orders, confirm, tasks)


async def concurrently(
    orders: Iterable[tuple[Place, list[Claim]]], serve: Callable[[Place, list[Claim]], Awaitable[int]], tasks: int
) -> int:
    """Serve the orders by so many tasks at once; returns the sum of what they returned."""
    waiting = iter(orders)

    async def server() -> int:
        return sum([await serve(place, claims) for place, claims in waiting])

    return sum(await asyncio.gather(*(server() for _ in range(tasks))))
