"""Turn the holds of a cart into one booking, all or none, without letting go of a seat. Safe to repeat.

Called by the checkout, and by the reservation service for a checkout that its own process did not finish. Places are
converted in one order, the first of them alone: of two bookings that want the same holds, one finds the first place
converted by the other and touches nothing else. What was converted before a refusal is given back.
"""

import asyncio
from collections.abc import Sequence

import structlog

from aisle.messages import POOL, Held
from aisle.reservation.claims import Code, Settlement, Verb
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place
from aisle.reservation.pool import PoolPlace, PoolSettlement
from aisle.reservation.pools import Pools

log = structlog.get_logger()


class Converter:
    def __init__(self, inventory: Inventory, pools: Pools) -> None:
        self._inventory = inventory
        self._pools = pools

    async def convert(self, event: int, held: Sequence[Held], *, booking: str, owner: str, epoch: int) -> Code:
        ordered = sorted(held, key=lambda h: (h.section, h.subsection))
        codes = [await self._convert_one(event, ordered[0], booking, owner, epoch)]
        if codes[0] is Code.OK:
            rest = (self._convert_one(event, one, booking, owner, epoch) for one in ordered[1:])
            codes += await asyncio.gather(*rest)
        refusal = next((code for code in codes if code is not Code.OK), None)
        if refusal is None:
            return Code.OK
        tried = ordered[: len(codes)]
        await asyncio.gather(*(self._give_back(event, one, booking, owner, epoch) for one in tried))
        return refusal

    async def _convert_one(self, event: int, held: Held, booking: str, owner: str, epoch: int) -> Code:
        if held.subsection == POOL:
            pool = PoolPlace(event, held.section)
            moved = await self._pools.convert(pool, held.holds, booking=booking, owner=owner, epoch=epoch)
            code, as_held = moved.code, moved.quantity == held.places
        else:
            place = Place(event, held.section, held.subsection)
            settled = await self._inventory.convert(place, held.holds, booking=booking, owner=owner, epoch=epoch)
            code, as_held = settled.code, set(settled.seats) == {seat for part in held.parts for seat in part.seats}
        if code is Code.OK and not as_held:
            log.error("converted_other_seats", event_id=event, section=held.section, booking=booking)
            return Code.TAKEN
        return code

    async def _give_back(self, event: int, held: Held, booking: str, owner: str, epoch: int) -> None:
        why = "not-converted"
        if held.subsection == POOL:
            back = PoolSettlement(verb=Verb.RELEASE, id=booking, owner=owner, why=why)
            await self._pools.settle(PoolPlace(event, held.section), [back], epoch=epoch)
        else:
            place = Place(event, held.section, held.subsection)
            await self._inventory.settle(place, [Settlement(Verb.RELEASE, booking, owner, why)], epoch=epoch)
