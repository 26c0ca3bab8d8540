"""Single seats given back in any order, at whatever prices they were bought: each goes for exactly what it cost.

A booking put together from a cart has seats at several prices, also in one row. After every step the sums of booking,
payment, refunds, tickets and ledger are the same; nothing is rounded and nothing drifts.
"""

import asyncio
from uuid import UUID, uuid4

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from aisle.booking import order_store
from aisle.booking import store as booking_store
from aisle.booking.booking import Request, State
from aisle.booking.order_store import Placing
from aisle.booking.refund import refund
from aisle.messages import Part, SeatsReserved
from aisle.reservation.claims import Claim
from aisle.reservation.keys import Place
from tests.payment.counter import WINDOW, Counter, counter

SEATS = 10


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    """A price for each seat of a row, and the seats of each refund; some are asked for twice, some never."""
    count = draw(st.integers(2, SEATS))
    prices = draw(st.lists(st.sampled_from([0, 1, 99, 333, 3000, 10**9]), min_size=count, max_size=count))
    left, refunds = draw(st.permutations(range(count))), []
    while left and len(refunds) < 5:
        size = draw(st.integers(1, len(left)))
        refunds.append(list(left[:size]))
        left = left[size:]
    return prices, refunds


async def bought(at: Counter, prices: list[int]) -> UUID:
    """A paid booking whose seat n of the first row costs prices[n], as a cart with frozen prices makes it."""
    id, buyer = uuid4(), uuid4()
    seats = tuple(range(len(prices)))
    await at.inventory.claim(Place(at.event.id, "A", 1), [Claim(id=str(id), owner=str(buyer), seats=seats)], epoch=1)
    by_price: dict[int, list[int]] = {}
    for seat, price in enumerate(prices):
        by_price.setdefault(price, []).append(seat)
    parts = tuple(Part("A", 1, tuple(of), price) for price, of in sorted(by_price.items()))
    placing = Placing(id, at.event.id, "shared", buyer, Request(quantity=len(seats)), id.hex, b"h", SEATS)
    async with at.database.acquire() as connection:
        await order_store.place(connection, [placing], now=at.clock())
        await booking_store.to_pending_payment(connection, [(id, parts)], deadline=at.clock() + WINDOW)
    reserved = SeatsReserved(
        id=f"{id}.reserved", lane="shared", event=at.event.id, section="A", partition=0, epoch=1,
        booking=str(id), buyer=str(buyer), parts=parts,
    )  # fmt: skip
    assert await at._workers[reserved.receiver].handle([reserved]) == []
    await at.pay(id)
    return id


async def sums(at: Counter, booking: UUID) -> dict[str, int]:
    return dict(
        await at.database.fetchrow(
            """select b.total,
                      (select coalesce(sum(price), 0) from ticketing.tickets
                       where event_id = b.event_id and booking = b.id and state = 2)::bigint as tickets,
                      (p.amount - p.refunded)::bigint as kept,
                      (p.amount - (select coalesce(sum(amount), 0) from payment.refunds where booking = b.id))::bigint
                          as not_given_back,
                      (select coalesce(sum(case when to_account = 'sales' then amount else -amount end), 0)
                       from payment.ledger where payment = p.id and 'sales' in (from_account, to_account))::bigint
                          as sales
               from booking.bookings b join payment.payments p on p.booking = b.id where b.id = $1""",
            booking,
        )
    )


async def play(config, prices: list[int], refunds: list[list[int]]) -> None:
    async with counter(config) as at:
        booking = await bought(at, prices)
        staying = dict(enumerate(prices))
        for seats in refunds:
            key, named = uuid4().hex, [Part("A", 1, tuple(seats), 0)]
            for _ in range(2):  # asked for twice, done once
                await refund(at.till, booking, seats=named, why="refunded", key=key)
            gone = sum(staying.pop(seat) for seat in seats)
            given = await at.database.fetchval(
                "select coalesce(sum(amount), 0) from payment.refunds where idempotency_key = $1", key
            )
            assert given == gone
            found = await sums(at, booking)
            if not staying:
                found.pop("total")  # what has ended says what it had cost
            assert set(found.values()) == {sum(staying.values())}, found
        assert await at.state_of(booking) is (State.PAID if staying else State.REFUNDED)
        await at.settle()


@given(plan=plans())
@settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def play_any(config, plan):
    note(f"{plan=}")
    asyncio.run(play(config, *plan))


def test_each_seat_goes_back_for_what_it_cost_and_the_sums_never_drift(config):
    play_any(config)
