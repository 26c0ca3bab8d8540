"""Give the money of a paid booking back, all of it or for some of its seats, and put the seats on sale again.

One transaction ends the booking or takes the seats out of it, voids the tickets' codes, owes the money and tells the
store. The provider is asked afterwards, by the refund's id, until it has done it.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from aisle.audit import Deed, note
from aisle.booking import order_store, store
from aisle.booking.booking import State
from aisle.booking.pay import Till
from aisle.booking.payment_moves import owe_back
from aisle.crash_points import crash_point
from aisle.errors import Problem
from aisle.ids import new_id
from aisle.messages import Part
from aisle.payment import ledger
from aisle.payment import store as payments
from aisle.payment.payment import Payment, PaymentState, Refund
from aisle.payment.provider import ProviderSilent


async def refund(
    till: Till,
    booking: UUID,
    *,
    seats: Sequence[Part] | None,
    why: str,
    key: str,
    by: UUID | None = None,
    buyer: UUID | None = None,
) -> None:
    """All seats, or those named, as `by` asks. One that is not `buyer`'s is not found; repeating changes nothing."""
    now = till.clock()
    async with till.database.acquire() as connection, connection.transaction():
        row = (await store.lock(connection, [booking])).get(booking)
        if row is None or (buyer is not None and row["buyer"] != buyer):
            raise Problem(404, "not_found", "no such booking")
        if await _was_done(connection, row, seats, key):
            return
        if row["state"] != State.PAID:
            raise Problem(409, "not_refundable", f"a booking that is {row['state']} cannot be refunded")
        payment = await payments.kept_for(connection, booking)
        assert payment is not None, "a booking is PAID by a payment"
        parts = order_store.parts_of(row["parts"])
        going = parts if seats is None else _named(parts, seats)
        if not await till.take_back(connection, row, going, why="refunded", now=now):
            raise Problem(409, "already_in", "somebody has entered with a ticket of this booking")
        staying = _without(parts, going)
        await _owe_price(connection, payment, going, key=key, why=why, now=now)
        if staying:
            await store.keep_only(connection, row, staying)
        else:
            await store.end(connection, [(booking, why)], State.REFUNDED, now=now)
            await payments.move(connection, [(payment.id, "")], PaymentState.RETURNED, now=now)
        seats_back = sum(len(part.seats) for part in going)
        await note(
            connection, Deed.REFUNDED, actor=by or buyer, subject=booking, detail={"seats": seats_back, "why": why}
        )
    crash_point("after_refund")


async def _owe_price(
    connection: asyncpg.Connection, payment: Payment, going: Sequence[Part], *, key: str, why: str, now: datetime
) -> None:
    """Each seat goes back for what was paid for it; where less was accepted, for what is left of that."""
    price = sum(part.price * len(part.seats) for part in going)
    amount = min(price, payment.money[0] - payment.refunded)
    await owe_back(connection, payment, amount, key=key, why=why, parts=going, from_account=ledger.SALES, now=now)
    entry = ledger.Entry(
        payment.id, new_id(now), "unwaived", ledger.SALES, ledger.ADJUSTMENTS, price - amount, payment.currency
    )
    await ledger.book(connection, [entry], now=now)


async def give_back_money(till: Till, refund: Refund) -> None:
    """Have the provider do what is owed. Raises ProviderSilent while it does not."""
    async with till.database.acquire() as connection:
        payment = await payments.find(connection, refund.payment)
    assert payment is not None
    provider = till.providers[payment.provider]
    given = provider.refund(refund.id, payment.id, payment.reference, refund.amount)
    if not await till.ask(payment.provider, "refund", given):
        raise ProviderSilent("the refund is not done yet")
    crash_point("after_provider_refund")
    now = till.clock()
    async with till.database.acquire() as connection, connection.transaction():
        if await payments.refund_done(connection, refund.id, now=now):
            account = ledger.provider_account(payment.provider)
            entry = ledger.Entry(
                payment.id, refund.id, "refunded", ledger.REFUNDS, account, refund.amount, refund.currency
            )
            await ledger.book(connection, [entry], now=now)


async def _was_done(
    connection: asyncpg.Connection, row: asyncpg.Record, seats: Sequence[Part] | None, key: str
) -> bool:
    """True for a repeat. A key that was used for other seats is refused."""
    if seats is None and row["state"] == State.REFUNDED:
        return True
    earlier = await payments.refund_with_key(connection, row["id"], key)
    if earlier is None:
        return False
    if seats is not None and _seats_of(order_store.parts_of(earlier[1])) != _seats_of(seats):
        raise Problem(422, "key_reused", "this Idempotency-Key was used for other seats")
    return True


def _named(parts: Sequence[Part], seats: Sequence[Part]) -> tuple[Part, ...]:
    """The named seats as parts of the booking, with the prices they were bought at."""
    wanted = _seats_of(seats)
    if not wanted or not wanted <= _seats_of(parts):
        raise Problem(409, "not_in_booking", "a named seat is not one of this booking's")
    return _only(parts, wanted)


def _without(parts: Sequence[Part], going: Sequence[Part]) -> tuple[Part, ...]:
    return _only(parts, _seats_of(parts) - _seats_of(going))


def _only(parts: Sequence[Part], wanted: set[tuple[str, int, int]]) -> tuple[Part, ...]:
    kept = []
    for part in parts:
        seats = tuple(seat for seat in part.seats if (part.section, part.subsection, seat) in wanted)
        if seats:
            kept.append(msgspec.structs.replace(part, seats=seats))
    return tuple(kept)


def _seats_of(parts: Sequence[Part]) -> set[tuple[str, int, int]]:
    return {(part.section, part.subsection, seat) for part in parts for seat in part.seats}
