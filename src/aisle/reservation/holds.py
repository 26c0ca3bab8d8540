"""Holds on the interactive path: seats or places taken at once for a buyer who is still choosing, until a deadline.

`HoldInventory` and `HoldPools` are the inventory for claims that the store lets run out: what concurrent requests ask
of one subsection or pool goes as one call. `Holds` seats a party, extends its time, gives back what it has.
"""

import asyncio
from collections.abc import Sequence

from aisle.limits import HOLD_CHOOSERS_MAX
from aisle.reservation.claims import Claim, Code, Outcome, Settlement, Verb
from aisle.reservation.generation import Gate
from aisle.reservation.hall import HallChooser, Seated
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place
from aisle.reservation.one_turn import OneTurn
from aisle.reservation.plan import standing_plan
from aisle.reservation.pool import PoolPlace, PoolSettlement, Take, Taken
from aisle.reservation.pools import Pools
from aisle.reservation.sweeper import Where
from aisle.store import Store

DAY_MS = 86_400_000


class HoldInventory(Inventory):
    def __init__(self, store: Store, gate: Gate | None = None) -> None:
        super().__init__(store, gate)
        self._turn: OneTurn[Place, Claim, Outcome] = OneTurn(store, self._claim_turn)

    async def claim(self, place: Place, claims: Sequence[Claim], *, epoch: int) -> list[Outcome]:
        return await asyncio.gather(*(self._turn.submit(place, epoch, claim.id, claim) for claim in claims))

    async def aclose(self) -> None:
        await self._turn.drain()

    async def _claim_turn(self, place: Place, claims: Sequence[Claim], epoch: int) -> list[Outcome]:
        return await super().claim(place, claims, epoch=epoch)


class HoldPools(Pools):
    def __init__(self, store: Store, gate: Gate | None = None) -> None:
        super().__init__(store, gate)
        self._turn: OneTurn[PoolPlace, Take, Taken] = OneTurn(store, self._take_turn)

    async def take(self, place: PoolPlace, takes: Sequence[Take], *, epoch: int) -> list[Taken]:
        return await asyncio.gather(*(self._turn.submit(place, epoch, take.id, take) for take in takes))

    async def aclose(self) -> None:
        await self._turn.drain()

    async def _take_turn(self, place: PoolPlace, takes: Sequence[Take], epoch: int) -> list[Taken]:
        return await super().take(place, takes, epoch=epoch)


class Holds:
    def __init__(self, store: Store, inventory: HoldInventory, pools: HoldPools) -> None:
        self._store = store
        self._inventory = inventory
        self._pools = pools
        self._choosers: dict[int, HallChooser] = {}

    async def take(
        self, event: int, claim: Claim, *, section: str | None, subsection: int | None, epoch: int
    ) -> Seated:
        """Seat the party now, all or nothing. Safe to repeat with the same claim."""
        if section is None or subsection is None:
            return await self._chooser(event).claim_best(claim, epoch=epoch, section=section)
        place = Place(event, section, subsection)
        [outcome] = await self._inventory.claim(place, [claim], epoch=epoch)
        return Seated(outcome.code, ((place, outcome),))

    async def take_places(self, place: PoolPlace, take: Take, *, epoch: int) -> Taken:
        [taken] = await self._pools.take(place, [take], epoch=epoch)
        return taken

    async def extend(self, place: Where, hold: str, *, owner: str, taken_ms: int, until_ms: int, epoch: int) -> Code:
        """The hold lasts until exactly `until_ms`, or longer if it did already. The moment names the operation."""
        operation, cap_ms = f"until-{until_ms}", until_ms - taken_ms
        if isinstance(place, Place):
            code, deadline_ms = await self._inventory.extend(
                place, hold, owner=owner, operation=operation, more_ms=DAY_MS, cap_ms=cap_ms, epoch=epoch
            )
        else:
            code, deadline_ms = await self._pools.extend(
                place, hold, owner=owner, operation=operation, more_ms=DAY_MS, cap_ms=cap_ms, epoch=epoch
            )
        return Code.OK if code is Code.LIMIT and deadline_ms >= until_ms else code

    async def release(self, hold: str, *, owner: str, places: Sequence[Where], epoch: int) -> Code:
        """Give back what a hold has, wherever it was being taken. A hold that has ended already is given back."""
        if not places:
            places = [place for place, _ in (await standing_plan(self._store, hold)).shares]
        codes = await asyncio.gather(*(self._release(place, hold, owner, epoch) for place in places))
        return next((code for code in codes if code not in (Code.OK, Code.UNKNOWN)), Code.OK)

    async def _release(self, place: Where, hold: str, owner: str, epoch: int) -> Code:
        if isinstance(place, Place):
            [settled] = await self._inventory.settle(place, [Settlement(Verb.RELEASE, hold, owner)], epoch=epoch)
            return settled.code
        [gone] = await self._pools.settle(place, [PoolSettlement(verb=Verb.RELEASE, id=hold, owner=owner)], epoch=epoch)
        return gone.code

    def _chooser(self, event: int) -> HallChooser:
        chooser = self._choosers.get(event)
        if chooser is None:
            if len(self._choosers) >= HOLD_CHOOSERS_MAX:
                self._choosers.clear()
            chooser = self._choosers[event] = HallChooser(self._store, self._inventory, event)
        return chooser
