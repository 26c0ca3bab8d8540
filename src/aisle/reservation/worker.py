"""The seat-reservation service: turns messages into seats taken, sold and given back in the store.

Everything of one subsection in a batch is one call; all subsections travel in one round trip. Safe to repeat: claims
are known by their booking, settlements by what they find.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from aisle.crash_points import crash_point
from aisle.messages import (
    BookingFailed,
    BookingPendingPayment,
    Message,
    Part,
    PlacesReserved,
    PriceChanged,
    SeatsFinalized,
    SeatsInitialized,
    SeatsReleased,
    SeatsReserved,
    TicketReserveRequested,
    route_of,
)
from aisle.reservation.claims import Claim, Code, Outcome, Settled, Settlement, Verb
from aisle.reservation.conversion import Converter
from aisle.reservation.hall import HallChooser, Seated
from aisle.reservation.inventory import Claims, Hall, Inventory
from aisle.reservation.keys import Place
from aisle.reservation.pool import Pool, PoolPlace, PoolSettled, PoolSettlement, Take, Taken
from aisle.reservation.pools import Pools
from aisle.reservation.prices import set_prices
from aisle.reservation.subsection import Subsection
from aisle.store import Store

HALL_CLAIMS_AT_ONCE = 64

log = structlog.get_logger()


class ReservationWorker:
    def __init__(self, store: Store, inventory: Inventory, pools: Pools) -> None:
        self._store = store
        self._inventory = inventory
        self._pools = pools
        self._converter = Converter(inventory, pools)
        self._choosers: dict[int, HallChooser] = {}
        self._hall_slots = asyncio.Semaphore(HALL_CLAIMS_AT_ONCE)

    async def handle(self, messages: Sequence[Message]) -> list[Message]:
        """Seats are opened and given back before new ones are taken, so that a batch sees the fullest hall."""
        await self._open([m for m in messages if isinstance(m, SeatsInitialized)])
        await set_prices(self._store, [m for m in messages if isinstance(m, PriceChanged)])
        await self._settle([m for m in messages if isinstance(m, SeatsFinalized | SeatsReleased)])
        return await self._reserve([m for m in messages if isinstance(m, TicketReserveRequested)])

    async def _open(self, messages: Sequence[SeatsInitialized]) -> None:
        for message in messages:
            await self._inventory.open(halls_of(message), epoch=message.epoch)
            await self._pools.open(pools_of(message), epoch=message.epoch)

    async def _settle(self, messages: Sequence[SeatsFinalized | SeatsReleased]) -> None:
        seats: dict[tuple[Place, int], list[Settlement]] = defaultdict(list)
        places: dict[tuple[PoolPlace, int], list[PoolSettlement]] = defaultdict(list)
        for m in messages:
            for part in m.parts:
                if part.in_pool:
                    places[PoolPlace(m.event, part.section), m.epoch] += pool_settlements_of(m, part)
                else:
                    seats[Place(m.event, part.section, part.subsection), m.epoch] += settlements_of(m, part)
        in_halls, in_pools = await asyncio.gather(
            asyncio.gather(*(self._inventory.settle(place, asked, epoch=e) for (place, e), asked in seats.items())),
            asyncio.gather(*(self._pools.settle(place, asked, epoch=e) for (place, e), asked in places.items())),
        )
        _say_unsettled(seats, in_halls)
        _say_unsettled(places, in_pools)

    async def _reserve(self, requests: Sequence[TicketReserveRequested]) -> list[Message]:
        """What cannot be decided now is not answered: its booking stays PROCESSING and is asked for again.

        That is so while the store is being verified, and after a rebuild that a request does not know of. Waiting here
        instead would keep releases from the store, which its verification may need.
        """
        if requests and not await self._inventory.may_claim():
            log.warning("requests_wait_for_verification", count=len(requests))
            return []
        answers = await self._answer(requests)
        decided = [a for a in answers if not (isinstance(a, BookingFailed) and a.reason == Code.FENCED)]
        if len(decided) < len(answers):
            log.warning("requests_wait_for_epoch", count=len(answers) - len(decided))
        return decided

    async def _answer(self, requests: Sequence[TicketReserveRequested]) -> list[Message]:
        direct: dict[tuple[Place, int], list[TicketReserveRequested]] = defaultdict(list)
        anywhere, in_pools, held = [], [], []
        for request in requests:
            if request.held:
                held.append(request)
            elif request.in_pool is not None:
                in_pools.append(request)
            elif request.in_section is not None and request.in_subsection is not None:
                place = Place(request.event, request.in_section, request.in_subsection)
                direct[place, request.epoch].append(request)
            else:
                anywhere.append(request)
        batches = [Claims(*key, [claim_of(request) for request in asked]) for key, asked in direct.items()]
        seated_anywhere = asyncio.gather(*(self._seat_anywhere(request) for request in anywhere))
        answers: list[Message] = await self._take_places(in_pools)
        seated = await self._inventory.claim_many(batches)
        for ((place, _), asked), outcomes in zip(direct.items(), seated, strict=True):
            for request, outcome in zip(asked, outcomes, strict=True):
                answers += answers_to(request, outcome.code, ((place, outcome),))
        for request, found in zip(anywhere, await seated_anywhere, strict=True):
            answers += answers_to(request, found.code, found.outcomes)
        answers += await self._convert(held)
        if answers:
            crash_point("after_claim")
        return answers

    async def _take_places(self, requests: Sequence[TicketReserveRequested]) -> list[Message]:
        wanted: dict[tuple[PoolPlace, int], list[TicketReserveRequested]] = defaultdict(list)
        for request in requests:
            wanted[PoolPlace(request.event, request.in_pool or ""), request.epoch].append(request)
        calls = (
            self._pools.take(place, [take_of(request) for request in asked], epoch=epoch)
            for (place, epoch), asked in wanted.items()
        )
        return [
            place_answer(request, taken)
            for asked, answers in zip(wanted.values(), await asyncio.gather(*calls), strict=True)
            for request, taken in zip(asked, answers, strict=True)
        ]

    async def _convert(self, requests: Sequence[TicketReserveRequested]) -> list[Message]:
        """Checkouts that their own processes did not finish."""
        calls = (
            self._converter.convert(r.event, r.held, booking=r.booking, owner=r.buyer, epoch=r.epoch) for r in requests
        )
        answers: list[Message] = []
        for request, code in zip(requests, await asyncio.gather(*calls), strict=True):
            held = request.held[0]
            if request.in_pool is not None:
                answers.append(place_answer(request, Taken(code, held.places, price=held.parts[0].price)))
            else:
                answers += answers_with(request, code, tuple(part for one in request.held for part in one.parts))
        return answers

    async def _seat_anywhere(self, request: TicketReserveRequested) -> Seated:
        chooser = self._choosers.get(request.event)
        if chooser is None:
            chooser = self._choosers[request.event] = HallChooser(self._store, self._inventory, request.event)
        async with self._hall_slots:
            return await chooser.claim_best(claim_of(request), epoch=request.epoch, section=request.in_section)


def halls_of(message: SeatsInitialized) -> list[Hall]:
    return [
        Hall(
            place=Place(message.event, message.section, sub.subsection),
            shape=Subsection(sub.rows, sub.seats_per_row, frozenset(sub.accessible)),
            price=sub.price,
            limit=min(message.limit, sub.rows * sub.seats_per_row),
            rank=sub.rank,
            blocked=frozenset(sub.blocked),
        )
        for sub in message.halls
    ]


def pools_of(message: SeatsInitialized) -> list[Pool]:
    return [
        Pool(PoolPlace(message.event, p.pool), p.capacity, p.price, p.limit, p.one_hold_per_buyer)
        for p in message.pools
    ]


def settlements_of(message: SeatsFinalized | SeatsReleased, part: Part) -> list[Settlement]:
    """What the store has to do for one part of a message, in this order."""
    confirm = Settlement(Verb.CONFIRM, message.booking, message.buyer, "paid")
    if isinstance(message, SeatsFinalized):
        return [confirm]
    if not message.sold:
        return [Settlement(Verb.RELEASE, message.booking, message.buyer, message.why)]
    # A refund may overtake the sale on its way here, on another topic: the sale is made up for first, so that it finds
    # nothing left to do when it comes.
    return [confirm, Settlement(Verb.REOPEN, message.booking, message.buyer, message.why, part.seats)]


def pool_settlements_of(message: SeatsFinalized | SeatsReleased, part: Part) -> list[PoolSettlement]:
    """The same for places of a pool, which are counted: a refund says how many, and is known by its message."""
    confirm = PoolSettlement(verb=Verb.CONFIRM, id=message.booking, owner=message.buyer, why="paid")
    if isinstance(message, SeatsFinalized):
        return [confirm]
    if not message.sold:
        return [PoolSettlement(verb=Verb.RELEASE, id=message.booking, owner=message.buyer, why=message.why)]
    reopen = PoolSettlement(
        verb=Verb.REOPEN, id=message.booking, owner=message.buyer, why=message.why, quantity=len(part.seats),
        operation=message.id.replace(".", "-"),
    )  # fmt: skip
    return [confirm, reopen]


def claim_of(request: TicketReserveRequested) -> Claim:
    return Claim(
        id=request.booking,
        owner=request.buyer,
        size=request.quantity,
        accessible=request.accessible,
        allow_partial=request.allow_partial,
        seats=request.seats,
    )


def take_of(request: TicketReserveRequested) -> Take:
    return Take(id=request.booking, owner=request.buyer, quantity=request.quantity, allow_partial=request.allow_partial)


def place_answer(request: TicketReserveRequested, taken: Taken) -> Message:
    shared = {**route_of(request), "booking": request.booking}
    if not taken.ok:
        return BookingFailed(id=f"{request.booking}.failed", reason=taken.code.value, **shared)
    return PlacesReserved(
        id=f"{request.booking}.places",
        buyer=request.buyer,
        pool=request.in_pool or "",
        quantity=taken.quantity,
        price=taken.price,
        **shared,
    )


def answers_to(
    request: TicketReserveRequested, code: Code, outcomes: Sequence[tuple[Place, Outcome]]
) -> tuple[Message, ...]:
    parts = tuple(Part(place.section, place.subsection, outcome.seats, outcome.price) for place, outcome in outcomes)
    return answers_with(request, code, parts)


def answers_with(request: TicketReserveRequested, code: Code, parts: tuple[Part, ...]) -> tuple[Message, ...]:
    """What the other services hear: seats and a booking to be paid, or a failure with its reason."""
    shared = {**route_of(request), "booking": request.booking}
    if code is not Code.OK:
        return (BookingFailed(id=f"{request.booking}.failed", reason=code.value, **shared),)
    # The buyer's first: each is written by itself, and somebody waits for this one.
    return (
        BookingPendingPayment(id=f"{request.booking}.pending", parts=parts, **shared),
        SeatsReserved(id=f"{request.booking}.reserved", buyer=request.buyer, parts=parts, **shared),
    )


def _say_unsettled(
    wanted: Mapping[Any, Sequence[Settlement | PoolSettlement]], answers: Sequence[Sequence[Settled | PoolSettled]]
) -> None:
    for (place, _), asked, settled in zip(wanted, wanted.values(), answers, strict=True):
        for settlement, answer in zip(asked, settled, strict=True):
            # A sale that comes after its refund finds the claim ended, as it should.
            if not answer.ok and not (settlement.verb is Verb.CONFIRM and answer.code is Code.EXPIRED):
                what = f"{settlement.verb} {settlement.id}"
                log.warning("not_settled", place=str(place), what=what, code=answer.code)
