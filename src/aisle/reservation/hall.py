"""The best seats of a whole section or event: which subsection, and what to do when the party fits in none.

Counts are cached and refreshed from the store; they only say where to look first. Every seat is taken by the claim
script of its subsection, so a wrong guess costs a round trip, never a seat. Subsections are tried best first, rung by
rung: together anywhere in the hall comes before stranding a single, and that before parting the party.
A party that no subsection can seat is shared out over neighbouring ones, all or nothing.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from aisle.errors import StoreScriptFailed
from aisle.reservation.claims import Claim, Code, Outcome, Rung, Settlement, Verb
from aisle.reservation.inventory import Inventory
from aisle.reservation.keys import Place, subsection_keys
from aisle.reservation.plan import Plan, adopt, standing_plan
from aisle.reservation.reads import places_of, statuses
from aisle.scripts import load_script
from aisle.store import Store

OFFER = load_script("aisle.reservation", "offer")

COUNTS_FRESH_SECONDS = 1.0
OFFERS_PER_ROUND_TRIP = 4
PLANS_MAX = 50
UNDONE = "undone"  # the note by which claim.lua knows a share that was never granted


class Seated(msgspec.Struct, frozen=True):
    """Where the party sits: one outcome a subsection, all OK; or the refusal that ended the search."""

    code: Code
    outcomes: tuple[tuple[Place, Outcome], ...] = ()


class HallChooser:
    """One event's hall as this process sees it. Holds counts only; safe to throw away at any time."""

    def __init__(
        self, store: Store, inventory: Inventory, event: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._inventory = inventory
        self._event = event
        self._clock = clock
        self._places: list[Place] = []
        self._available: dict[Place, int] = {}
        self._fresh_until = float("-inf")

    async def claim_best(self, claim: Claim, *, epoch: int, section: str | None = None) -> Seated:
        """Seat the party in the event, or in one section of it. Safe to repeat with the same claim, anywhere."""
        fault = claim.check()
        if fault or claim.seats is not None:
            return Seated(Code.INVALID)
        standing = Plan()
        refusal = Seated(Code.CLOSED)
        tried = 0
        async for plan in self._plans(claim, section):
            adopted = await adopt(self._store, claim.id, known=standing, plan=plan)
            if adopted != plan:
                # An earlier run of this claim, or one that runs beside us, has chosen; its choice counts.
                refusal = await self._carry_out(claim, adopted, epoch)
                if refusal.code is not Code.NO_BLOCK:
                    return refusal
                standing = adopted
                adopted = await adopt(self._store, claim.id, known=standing, plan=plan)
            refusal = await self._carry_out(claim, plan, epoch) if adopted == plan else refusal
            if refusal.code is not Code.NO_BLOCK:
                return refusal
            standing = adopted
            tried += 1
            if tried == PLANS_MAX:
                return refusal
        return refusal if tried else await self._already_seated(claim, epoch, section)

    async def _already_seated(self, claim: Claim, epoch: int, section: str | None) -> Seated:
        """There is no room for this party; but the seats that are gone may be its own, taken before a crash."""
        earlier = await standing_plan(self._store, claim.id)
        seated = await self._carry_out(claim, earlier, epoch) if earlier.shares else Seated(Code.NO_BLOCK)
        return Seated(self._nothing_fits(claim, section)) if seated.code is Code.NO_BLOCK else seated

    async def _plans(self, claim: Claim, section: str | None) -> AsyncIterator[Plan]:
        """Ways to seat the party, best first. Each is only a guess; the second round looks at fresh counts."""
        for forced in (False, True):
            await self._refresh(force=forced)
            places = self._in(section)
            roomy = [place for place in places if self._available.get(place, 0) >= claim.size]
            for rung in (Rung.ADJACENT, Rung.ADJACENT_ORPHAN, Rung.SPLIT):
                if rung > claim.worst:
                    return
                for start in range(0, len(roomy), OFFERS_PER_ROUND_TRIP):
                    for place in await self._offering(roomy[start : start + OFFERS_PER_ROUND_TRIP], claim, rung):
                        yield Plan(((place, claim.size),))
        shares = share_out([(place, self._available.get(place, 0)) for place in self._in(section)], claim)
        if shares:
            yield Plan(tuple(shares))

    async def _offering(self, places: Sequence[Place], claim: Claim, rung: Rung) -> list[Place]:
        """Those of the places that would seat the whole party on this rung right now."""
        args = (claim.size, claim.accessible, int(rung))
        replies = await self._store.run_many(
            OFFER, [(subsection_keys(self._store.prefix, place)[:3], args) for place in places]
        )
        offering = []
        for place, reply in zip(places, replies, strict=True):
            if isinstance(reply, StoreScriptFailed):
                raise reply
            how, _, self._available[place] = reply
            if how:
                offering.append(place)
        return offering

    async def _carry_out(self, claim: Claim, plan: Plan, epoch: int) -> Seated:
        """Take every share of the plan, or none. NO_BLOCK means: try another plan."""
        taken: list[tuple[Place, Outcome]] = []
        needing = claim.accessible
        for place, size in plan.shares:
            part = msgspec.structs.replace(claim, size=size, accessible=min(needing, size))
            [outcome] = await self._inventory.claim(place, [part], epoch=epoch)
            if not outcome.ok:
                await self._give_back(claim, taken, epoch)
                gone = outcome.code in (Code.SOLD_OUT, Code.NO_BLOCK)
                return Seated(Code.NO_BLOCK if gone else outcome.code)
            needing -= part.accessible
            taken.append((place, outcome))
            self._available[place] = self._available.get(place, size) - size
        standing = await adopt(self._store, claim.id, known=plan, plan=plan)
        if standing == plan:
            return Seated(Code.OK, tuple(taken))
        # A run beside us moved on while we were taking seats: ours go back, and its plan is followed.
        await self._give_back(claim, [pair for pair in taken if pair[0] not in dict(standing.shares)], epoch)
        return await self._carry_out(claim, standing, epoch)

    async def _give_back(self, claim: Claim, taken: Sequence[tuple[Place, Outcome]], epoch: int) -> None:
        back = Settlement(Verb.RELEASE, claim.id, claim.owner, UNDONE)
        for place, _ in taken:
            await self._inventory.settle(place, [back], epoch=epoch)

    async def _refresh(self, *, force: bool) -> None:
        if not force and self._clock() < self._fresh_until:
            return
        self._places = await places_of(self._store, self._event)
        found = await statuses(self._store, self._places)
        self._available = {status.place: status.available for status in found if status is not None}
        self._fresh_until = self._clock() + COUNTS_FRESH_SECONDS

    def _in(self, section: str | None) -> list[Place]:
        return [place for place in self._places if section in (None, place.section)]

    def _nothing_fits(self, claim: Claim, section: str | None) -> Code:
        places = self._in(section)
        if not places:
            return Code.CLOSED
        return Code.NO_BLOCK if any(self._available.get(place, 0) for place in places) else Code.SOLD_OUT


def share_out(rooms: Sequence[tuple[Place, int]], claim: Claim) -> list[tuple[Place, int]]:
    """The fewest neighbouring subsections (in rank order) that hold the party; the best such run of them.

    A last share of one person is made two where another share can spare somebody. A party that accepts fewer seats
    than it asked for gets all there are. Empty if nothing is left, or too little.
    """
    rooms = [(place, room) for place, room in rooms if room > 0]
    best: list[tuple[Place, int]] = []
    for start in range(len(rooms)):
        run, held = [], 0
        for place, room in rooms[start:]:
            run.append((place, min(room, claim.size - held)))
            held += run[-1][1]
            if held == claim.size:
                break
        if held == claim.size and (not best or len(run) < len(best)):
            best = run
    if not best:
        return rooms if claim.allow_partial else []
    return _nobody_alone(best, dict(rooms))


def _nobody_alone(shares: list[tuple[Place, int]], rooms: dict[Place, int]) -> list[tuple[Place, int]]:
    last, size = shares[-1]
    if size != 1 or rooms[last] < 2:
        return shares
    for n in reversed(range(len(shares) - 1)):
        place, share = shares[n]
        if share >= 3:
            return [*shares[:n], (place, share - 1), *shares[n + 1 : -1], (last, 2)]
    return shares
