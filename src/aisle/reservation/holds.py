"""Holds on the interactive path: seats taken at once for a buyer who is still choosing, until a deadline.

`HoldInventory` is the inventory for claims that the store lets run out. It tells the sweepers of a place before it
takes a hold there, and the claims of concurrent requests that arrive in one turn of the event loop share one script
call a subsection and one round trip. `Holds` seats a party, extends its time and gives its seats back.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec
import structlog

from aisle.errors import StoreScriptFailed
from aisle.group_commit import GroupCommit
from aisle.limits import HOLD_BATCH_MAX, HOLD_CHOOSERS_MAX, HOLD_QUEUE_MAX
from aisle.messages import Held
from aisle.reservation.claims import Claim, Code, Outcome, Settlement, Verb
from aisle.reservation.generation import Gate
from aisle.reservation.hall import HallChooser, Seated
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place
from aisle.reservation.plan import standing_plan
from aisle.reservation.sweeper import IDLE_MS, announce
from aisle.store import Store

# Sweepers strike a place off after IDLE_MS without an announcement; a fresh one well within that covers many holds.
ANNOUNCE_EVERY_SECONDS = IDLE_MS / 1000 / 4
DAY_MS = 86_400_000

log = structlog.get_logger()


class OneClaim(msgspec.Struct, frozen=True):
    place: Place
    epoch: int
    claim: Claim


class HoldInventory(Inventory):
    def __init__(self, store: Store, gate: Gate | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(store, gate)
        self._clock = clock
        self._announced: dict[Place, float] = {}
        self._turn: GroupCommit[OneClaim, Outcome | StoreScriptFailed] = GroupCommit(
            self._claim_turn,
            apart=lambda one: (one.place, one.claim.id),
            batch_max=HOLD_BATCH_MAX,
            queue_max=HOLD_QUEUE_MAX,
            lanes=4,
        )

    async def claim(self, place: Place, claims: Sequence[Claim], *, epoch: int) -> list[Outcome]:
        answers = await asyncio.gather(*(self._turn.submit(OneClaim(place, epoch, claim)) for claim in claims))
        outcomes = []
        for answer in answers:
            if isinstance(answer, StoreScriptFailed):
                raise answer
            outcomes.append(answer)
        return outcomes

    async def aclose(self) -> None:
        await self._turn.drain()

    async def _claim_turn(self, batch: Sequence[OneClaim]) -> list[Outcome | StoreScriptFailed]:
        """What arrived in one turn: a call a subsection, all in one round trip. A damaged one spoils no other."""
        by_place: dict[tuple[Place, int], list[int]] = defaultdict(list)
        for n, one in enumerate(batch):
            by_place[one.place, one.epoch].append(n)
        await self._announce({place for place, _ in by_place})
        calls = [
            super(HoldInventory, self).claim(place, [batch[n].claim for n in numbers], epoch=epoch)
            for (place, epoch), numbers in by_place.items()
        ]
        answers: dict[int, Outcome | StoreScriptFailed] = {}
        for numbers, found in zip(by_place.values(), await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(found, BaseException) and not isinstance(found, StoreScriptFailed):
                raise found
            for i, n in enumerate(numbers):
                answers[n] = found if isinstance(found, StoreScriptFailed) else found[i]
        return [answers[n] for n in range(len(batch))]

    async def _announce(self, places: set[Place]) -> None:
        now = self._clock()
        due = [place for place in places if self._announced.get(place, float("-inf")) + ANNOUNCE_EVERY_SECONDS <= now]
        if due:
            await announce(self._store, due)
            self._announced.update(dict.fromkeys(due, now))


class Holds:
    def __init__(self, store: Store, inventory: HoldInventory) -> None:
        self._store = store
        self._inventory = inventory
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

    async def extend(self, place: Place, hold: str, *, owner: str, taken_ms: int, until_ms: int, epoch: int) -> Code:
        """The hold lasts until exactly `until_ms`, or longer if it did already. The moment names the operation."""
        code, deadline_ms = await self._inventory.extend(
            place,
            hold,
            owner=owner,
            operation=f"until-{until_ms}",
            more_ms=DAY_MS,
            cap_ms=until_ms - taken_ms,
            epoch=epoch,
        )
        return Code.OK if code is Code.LIMIT and deadline_ms >= until_ms else code

    async def release(self, event: int, hold: str, *, owner: str, places: Sequence[Place], epoch: int) -> Code:
        """Give back what a hold has, wherever it was being taken. A hold that has ended already is given back."""
        if not places:
            places = [place for place, _ in (await standing_plan(self._store, hold)).shares]
        back = Settlement(Verb.RELEASE, hold, owner, "released")
        answers = await asyncio.gather(*(self._inventory.settle(place, [back], epoch=epoch) for place in places))
        codes = {answer.code for [answer] in answers} - {Code.OK, Code.UNKNOWN}
        return next(iter(codes)) if codes else Code.OK

    def _chooser(self, event: int) -> HallChooser:
        chooser = self._choosers.get(event)
        if chooser is None:
            if len(self._choosers) >= HOLD_CHOOSERS_MAX:
                self._choosers.clear()
            chooser = self._choosers[event] = HallChooser(self._store, self._inventory, event)
        return chooser


async def convert_holds(
    inventory: Inventory, event: int, held: Sequence[Held], *, booking: str, owner: str, epoch: int
) -> Code:
    """Turn the holds of a cart into one booking, all or nothing, without letting go of a seat. Safe to repeat.

    Places are converted in one order, the first of them alone: of two bookings that want the same holds, one finds the
    first place converted by the other and touches nothing else. What was converted before a refusal is given back.
    """
    ordered = sorted(held, key=lambda h: (h.section, h.subsection))
    codes = [await _convert_one(inventory, event, ordered[0], booking, owner, epoch)]
    if codes[0] is Code.OK:
        codes += await asyncio.gather(*(_convert_one(inventory, event, h, booking, owner, epoch) for h in ordered[1:]))
    refusal = next((code for code in codes if code is not Code.OK), None)
    if refusal is None:
        return Code.OK
    back = Settlement(Verb.RELEASE, booking, owner, "not-converted")
    tried = [Place(event, h.section, h.subsection) for h in ordered[: len(codes)]]
    await asyncio.gather(*(inventory.settle(place, [back], epoch=epoch) for place in tried))
    return refusal


async def _convert_one(inventory: Inventory, event: int, held: Held, booking: str, owner: str, epoch: int) -> Code:
    place = Place(event, held.section, held.subsection)
    settled = await inventory.convert(place, held.holds, booking=booking, owner=owner, epoch=epoch)
    expected = {seat for part in held.parts for seat in part.seats}
    if settled.ok and set(settled.seats) != expected:
        log.error("converted_other_seats", place=str(place), booking=booking)
        return Code.TAKEN
    return settled.code
