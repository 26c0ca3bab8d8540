"""The seat-reservation service: turns messages into seats taken, sold and given back in the store.

Everything of one subsection in a batch is one call; all subsections travel in one round trip. Safe to repeat: claims
are known by their booking, settlements by what they find.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import structlog

from aisle.crash_points import crash_point
from aisle.messages import (
    BookingFailed,
    BookingPendingPayment,
    Message,
    Part,
    SeatsFinalized,
    SeatsInitialized,
    SeatsReleased,
    SeatsReserved,
    TicketReserveRequested,
    route_of,
)
from aisle.reservation.claims import Claim, Code, Outcome, Settlement, Verb
from aisle.reservation.hall import HallChooser, Seated
from aisle.reservation.inventory import Hall, Inventory
from aisle.reservation.keys import Place
from aisle.reservation.subsection import Subsection
from aisle.store import Store

HALL_CLAIMS_AT_ONCE = 64

log = structlog.get_logger()


class ReservationWorker:
    def __init__(self, store: Store, inventory: Inventory) -> None:
        self._store = store
        self._inventory = inventory
        self._choosers: dict[int, HallChooser] = {}
        self._hall_slots = asyncio.Semaphore(HALL_CLAIMS_AT_ONCE)

    async def handle(self, messages: Sequence[Message]) -> list[Message]:
        """Seats are opened and given back before new ones are taken, so that a batch sees the fullest hall."""
        await self._open([m for m in messages if isinstance(m, SeatsInitialized)])
        await self._settle([m for m in messages if isinstance(m, SeatsFinalized | SeatsReleased)])
        return await self._reserve([m for m in messages if isinstance(m, TicketReserveRequested)])

    async def _open(self, messages: Sequence[SeatsInitialized]) -> None:
        for message in messages:
            await self._inventory.open(halls_of(message), epoch=message.epoch)

    async def _settle(self, messages: Sequence[SeatsFinalized | SeatsReleased]) -> None:
        wanted: dict[tuple[Place, int], list[Settlement]] = defaultdict(list)
        for message in messages:
            verb, why = (Verb.CONFIRM, "paid") if isinstance(message, SeatsFinalized) else (Verb.RELEASE, message.why)
            for part in message.parts:
                place = Place(message.event, part.section, part.subsection)
                wanted[place, message.epoch].append(Settlement(verb, message.booking, message.buyer, why))
        calls = (self._inventory.settle(place, settlements, epoch=e) for (place, e), settlements in wanted.items())
        for (place, _), asked, settled in zip(wanted, wanted.values(), await asyncio.gather(*calls), strict=True):
            for settlement, answer in zip(asked, settled, strict=True):
                if not answer.ok:
                    what = f"{settlement.verb} {settlement.id}"
                    log.warning("not_settled", place=str(place), what=what, code=answer.code)

    async def _reserve(self, requests: Sequence[TicketReserveRequested]) -> list[Message]:
        direct: dict[tuple[Place, int], list[TicketReserveRequested]] = defaultdict(list)
        anywhere = []
        for request in requests:
            if request.in_section is not None and request.in_subsection is not None:
                place = Place(request.event, request.in_section, request.in_subsection)
                direct[place, request.epoch].append(request)
            else:
                anywhere.append(request)
        batches = (
            self._inventory.claim(place, [claim_of(request) for request in asked], epoch=epoch)
            for (place, epoch), asked in direct.items()
        )
        seated_anywhere = asyncio.gather(*(self._seat_anywhere(request) for request in anywhere))
        answers: list[Message] = []
        for ((place, _), asked), outcomes in zip(direct.items(), await asyncio.gather(*batches), strict=True):
            for request, outcome in zip(asked, outcomes, strict=True):
                answers += answers_to(request, outcome.code, ((place, outcome),))
        for request, seated in zip(anywhere, await seated_anywhere, strict=True):
            answers += answers_to(request, seated.code, seated.outcomes)
        if answers:
            crash_point("after_claim")
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


def claim_of(request: TicketReserveRequested) -> Claim:
    return Claim(
        id=request.booking,
        owner=request.buyer,
        size=request.quantity,
        accessible=request.accessible,
        allow_partial=request.allow_partial,
        seats=request.seats,
    )


def answers_to(
    request: TicketReserveRequested, code: Code, outcomes: Sequence[tuple[Place, Outcome]]
) -> tuple[Message, ...]:
    """What the other services hear: seats and a booking to be paid, or a failure with its reason."""
    shared = {**route_of(request), "booking": request.booking}
    if code is not Code.OK:
        return (BookingFailed(id=f"{request.booking}.failed", reason=code.value, **shared),)
    parts = tuple(Part(place.section, place.subsection, outcome.seats, outcome.price) for place, outcome in outcomes)
    return (
        SeatsReserved(id=f"{request.booking}.reserved", buyer=request.buyer, parts=parts, **shared),
        BookingPendingPayment(id=f"{request.booking}.pending", parts=parts, **shared),
    )
