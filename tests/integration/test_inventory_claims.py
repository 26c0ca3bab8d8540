"""What the inventory does for a buyer, told one story at a time, on every kind of store; judged by the store's keys."""

import msgspec
import pytest

from aisle.reservation.claims import Claim, Code, Kind, Rung, Settlement, Verb
from aisle.reservation.inventory import SWEEP, Hall, Inventory
from aisle.reservation.keys import Place, event_sections
from aisle.reservation.subsection import SeatState, Subsection
from aisle.reservation.sweeper import sweep_keys
from aisle.scripts import load_script
from aisle.store import open_store
from tests.integration.inventory_duel import now_ms
from tests.integration.inventory_model import KEEP_ENDED_MS, Record, audit, look

pytest_plugins = ["tests.integration.stores"]

EPOCH = 1
PLACE = Place(1, "A", 1)
OFFER, SEATMAP = load_script("aisle.reservation", "offer"), load_script("aisle.reservation", "seatmap")


class Box:
    """One subsection on sale, and what the store has of it."""

    def __init__(self, store, shape):
        self.store, self.shape, self.inventory = store, shape, Inventory(store)
        self.keys = self.inventory.keys(PLACE)

    async def open(self, **hall):
        settings = {"price": 3000, "limit": min(6, self.shape.seats)} | hall
        await self.inventory.open([Hall(PLACE, self.shape, **settings)], epoch=EPOCH)
        await self.inventory.switch([PLACE], epoch=EPOCH, on_sale=True)
        return self

    async def claim(self, *claims):
        return await self.inventory.claim(PLACE, claims, epoch=EPOCH)

    async def settle(self, *settlements):
        return await self.inventory.settle(PLACE, settlements, epoch=EPOCH)

    async def sweep(self, most=100):
        return msgspec.msgpack.decode(await self.store.run(SWEEP, sweep_keys(self.store.prefix, PLACE), (most,)))

    async def expire(self, name):
        view = await self.view()
        record, past = view.records[name], now_ms() - 5000
        text = Record(**(vars(record) | {"taken": past - 1000, "deadline": past})).text
        await self.store.call("HSET", self.keys[5], name, text)
        await self.store.call("ZADD", self.keys[6], past, name)

    async def view(self):
        view = await look(self.store, PLACE, self.shape)
        assert audit(view, self.shape) == []
        return view

    async def drawn(self):
        """One row per "/": "." available, "r" reserved, "s" sold, "#" not for sale."""
        marks = [".rs#"[state] for state in (await self.view()).states]
        width = self.shape.seats_per_row
        return "/".join("".join(marks[row : row + width]) for row in range(0, len(marks), width))


def booking(name, size=2, owner="ann", **more):
    return Claim(id=name, owner=owner, size=size, **more)


def hold(name, size=2, owner="ann", **more):
    return Claim(id=name, owner=owner, size=size, kind=Kind.HOLD, hold_ms=600_000, **more)


async def test_a_hall_opens_closed_with_its_blocked_seats_counted_and_listed_under_its_event(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        inventory, shape = Inventory(store), Subsection(2, 5)
        second = Place(1, "B", 1)
        halls = [
            Hall(PLACE, shape, price=100, limit=4, rank=2, blocked=frozenset({0, 9})),
            Hall(second, shape, price=50, limit=4, rank=1),
        ]
        await inventory.open(halls, epoch=EPOCH)
        view = await look(store, PLACE, shape)
        assert audit(view, shape) == []
        assert (view.stats["available"], view.stats["unavailable"], view.config["state"]) == (8, 2, "closed")
        listed = await store.call("ZRANGEBYSCORE", event_sections(store.prefix, 1), "-inf", "+inf")
        assert listed == [str(second).encode(), str(PLACE).encode()]
        [refused] = await inventory.claim(PLACE, [booking("a")], epoch=EPOCH)
        assert refused.code is Code.CLOSED
        assert await look(store, PLACE, shape) == view


async def test_a_batch_is_decided_in_the_order_given_and_every_claim_for_itself(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        box = await Box(store, Subsection(2, 5)).open()
        answers = await box.claim(booking("a", 3), booking("b", 7), booking("c", 3), booking("d", 5), booking("a", 3))
        assert [a.code for a in answers] == [Code.OK, Code.LIMIT, Code.OK, Code.NO_BLOCK, Code.OK]
        assert answers[4] == answers[0]
        assert await box.drawn() == "rrr../rrr.."
        assert (await box.view()).owners == dict.fromkeys(("1-1", "1-2", "1-3"), "a") | dict.fromkeys(
            ("2-1", "2-2", "2-3"), "c"
        )


async def test_named_seats_are_taken_all_or_none_unless_fewer_will_do(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        box = await Box(store, Subsection(1, 6)).open()
        await box.claim(booking("a", seats=(2,)))
        before = await box.view()
        [refused] = await box.claim(booking("b", seats=(1, 2, 3)))
        assert (refused.code, refused.seats) == (Code.TAKEN, (2,))
        assert await box.view() == before
        [partial] = await box.claim(booking("b", seats=(3, 2, 1), allow_partial=True))
        assert (partial.code, partial.how, partial.seats) == (Code.OK, Rung.PARTIAL, (1, 3))
        assert await box.drawn() == ".rrr.."


async def test_accessible_seats_are_kept_for_those_who_ask(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        box = await Box(store, Subsection(1, 4, frozenset({0, 1}))).open()
        answers = await box.claim(booking("a", 3), booking("b", seats=(0,)), booking("c", 2))
        assert [a.code for a in answers] == [Code.NO_BLOCK, Code.KEPT, Code.OK]
        assert (await box.claim(booking("d", 1)))[0].code is Code.SOLD_OUT
        [seated] = await box.claim(booking("e", 2, accessible=1))
        assert (seated.code, seated.seats) == (Code.OK, (0, 1))


async def test_a_claim_keeps_the_price_it_was_made_at(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        box = await Box(store, Subsection(1, 6)).open()
        [first] = await box.claim(booking("a"))
        await box.inventory.switch([PLACE], epoch=EPOCH, on_sale=True, price=4000)
        again, second = await box.claim(booking("a"), booking("b"))
        assert (again, second.price) == (first, 4000)
        assert [s.price for s in await box.settle(Settlement(Verb.CONFIRM, "a", "ann"))] == [3000]


async def test_reserved_seats_are_sold_and_a_refund_may_take_back_a_part(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        box = await Box(store, Subsection(1, 8)).open()
        await box.claim(booking("a", 5))
        await box.settle(Settlement(Verb.CONFIRM, "a", "ann"))
        assert await box.drawn() == "sssss..."
        [part] = await box.settle(Settlement(Verb.REOPEN, "a", "ann", "refunded", (1, 3, 7)))
        assert (part.code, part.seats) == (Code.OK, (1, 3))
        assert await box.drawn() == "s.s.s..."
        [rest] = await box.settle(Settlement(Verb.REOPEN, "a", "ann", "refunded"))
        assert rest.seats == (0, 2, 4)
        assert await box.drawn() == "........"
        view = await box.view()
        assert (view.records["a"].state, view.records["a"].note) == ("E", "refunded")


async def test_holds_become_a_booking_without_letting_go_of_a_seat(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        box = await Box(store, Subsection(2, 5)).open()
        await box.claim(hold("h1", 2), hold("h2", 3), hold("h3", 2, owner="bob"))
        refused = await box.inventory.convert(PLACE, ["h1", "h3"], booking="b", owner="ann", epoch=EPOCH)
        assert refused.code is Code.NOT_OWNER
        assert set((await box.view()).index) == {"h1", "h2", "h3"}, "all or none"
        map_before = (await box.view()).states
        done = await box.inventory.convert(PLACE, ["h1", "h2"], booking="b", owner="ann", epoch=EPOCH)
        again = await box.inventory.convert(PLACE, ["h1", "h2"], booking="b", owner="ann", epoch=EPOCH)
        assert (done.code, done.seats) == (Code.OK, (0, 1, 2, 3, 4))
        assert again == done
        view = await box.view()
        assert view.states == map_before
        assert (view.records["b"].kind, view.records["b"].deadline, view.records["h1"].note) == ("b", 0, "converted b")
        assert {view.owners[f"1-{seat}"] for seat in range(1, 6)} == {"b"}


async def test_a_hold_is_extended_up_to_its_cap_and_once_per_operation(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        box = await Box(store, Subsection(1, 5)).open()
        [held] = await box.claim(hold("h"))

        async def extend(operation, more_ms=900_000, owner="ann"):
            asked = {"operation": operation, "more_ms": more_ms, "cap_ms": 1_200_000, "epoch": EPOCH}
            return await box.inventory.extend(PLACE, "h", owner=owner, **asked)

        code, deadline = await extend("op1")
        assert (code, deadline > held.deadline_ms) == (Code.OK, True)
        assert await extend("op1") == (Code.OK, deadline)
        assert (await extend("op2", owner="bob"))[0] is Code.NOT_OWNER
        assert await extend("op3", more_ms=9_000_000) == (Code.OK, held.taken_ms + 1_200_000)
        assert await extend("op4", more_ms=9_000_000) == (Code.LIMIT, held.taken_ms + 1_200_000)
        assert (await box.view()).index == {"h": held.taken_ms + 1_200_000}


async def test_a_sweep_releases_what_is_overdue_and_nothing_else(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        box = await Box(store, Subsection(2, 5)).open()
        await box.claim(hold("late"), hold("live"), booking("booked"))
        assert await box.sweep() == [[], 0, 0, 2]
        await box.expire("late")
        assert await box.sweep() == [[["late", "ann", [0, 2]]], 0, 0, 2]
        assert await box.sweep() == [[], 0, 0, 2], "never twice"
        assert await box.drawn() == "..rr./rr..."
        [too_late] = await box.settle(Settlement(Verb.CONFIRM, "late", "ann"))
        assert too_late.code is Code.EXPIRED
        await store.call("ZADD", box.keys[6], now_ms() - 5000, "late")  # a day later
        assert await box.sweep() == [[], 1, 0, 1]
        assert set((await box.view()).records) == {"live", "booked"}


async def test_an_index_entry_without_a_record_is_put_off_and_never_frees_a_seat(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        box = await Box(store, Subsection(1, 4)).open()
        await box.claim(booking("a"))
        await store.call("ZADD", box.keys[6], now_ms() - 5000, "ghost")
        before = now_ms()
        assert await box.sweep() == [[], 0, 0, 1]
        view = await look(store, PLACE, box.shape)
        assert before + KEEP_ENDED_MS - 1000 <= view.index["ghost"] <= now_ms() + KEEP_ENDED_MS + 1000
        assert view.states == [SeatState.RESERVED] * 2 + [SeatState.AVAILABLE] * 2


async def test_a_sweep_believes_the_record_and_mends_an_index_that_is_behind_it(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        box = await Box(store, Subsection(2, 4)).open()
        [held, *_] = await box.claim(hold("h"), booking("b"), hold("sold"))
        await box.settle(Settlement(Verb.CONFIRM, "sold", "ann"))
        for name in ("h", "b", "sold"):
            await store.call("ZADD", box.keys[6], now_ms() - 5000, name)
        assert await box.sweep() == [[], 0, 0, 1]
        assert (await box.view()).index == {"h": held.deadline_ms}
        assert await box.drawn() == "rrrr/ss.."


@pytest.mark.parametrize(("size", "worst", "offered"), [(2, 3, (1, 0, 7)), (3, 1, (1, 5, 7)), (6, 2, (0, 0, 7))])
async def test_an_offer_and_a_seat_map_say_what_is_and_change_nothing(any_config, metrics, size, worst, offered):
    async with open_store(any_config, metrics) as store:
        box = await Box(store, Subsection(2, 5)).open()
        await box.claim(booking("a", seats=(2, 3, 4)))
        before = await box.view()
        offer = await store.run(OFFER, box.keys[:3], (size, 0, worst))
        packed, version = await store.run(SEATMAP, (box.keys[0], box.keys[2]), ())
        assert tuple(offer) == offered
        assert (packed, int(version)) == (b"\x05\x40\x00", before.stats["version"])
        assert await box.view() == before
        nowhere = box.inventory.keys(Place(1, "Z", 9))
        assert await store.run(SEATMAP, (nowhere[0], nowhere[2]), ()) == []
