"""Chance plays against the scripts: after every step the store holds exactly what the model says, key by key.

Hypothesis looks for short stories that break it and makes them shorter; the walk goes where only long stories lead.
Ids are few and owners are sometimes strangers, so calls repeat, come late, come twice and come in the wrong order.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from aisle.reservation.claims import Claim, Kind, Rung, Settlement, Verb
from aisle.reservation.inventory import Hall
from aisle.reservation.keys import Place
from aisle.reservation.subsection import Subsection
from aisle.store import Store, open_store
from tests.conftest import with_settings
from tests.integration.inventory_duel import EPOCH, Duel
from tests.proxy import recording

pytest_plugins = ["tests.integration.stores"]

_events = itertools.count(1)

epochs = st.sampled_from([EPOCH] * 15 + [EPOCH - 1])
numbers = st.integers(0, 40)
strangers = st.sampled_from([False] * 9 + [True])
seat_lists = st.lists(st.integers(0, 20), min_size=1, max_size=4, unique=True).map(tuple)
claims = st.builds(
    Claim,
    id=st.sampled_from("abcdefgh"),
    owner=st.sampled_from(["ann"] * 9 + ["bob"]),
    kind=st.sampled_from(Kind),
    size=st.sampled_from([1, 2, 2, 3, 4, 6]),
    accessible=st.sampled_from([0, 0, 0, 0, 1, 2]),
    allow_partial=st.booleans(),
    worst=st.sampled_from([Rung.SPLIT, Rung.SPLIT, Rung.ADJACENT_ORPHAN, Rung.ADJACENT]),
    hold_ms=st.sampled_from([60_000, 600_000]),
    seats=st.none() | st.none() | seat_lists,
)
settlements = st.tuples(st.sampled_from(Verb), numbers, strangers, st.sampled_from(["released", "refunded", "undone"]))


@st.composite
def halls(draw: st.DrawFn) -> Hall:
    rows, width = draw(st.sampled_from([2, 3, 4, 1])), draw(st.sampled_from([5, 7, 4, 3, 1]))
    some = st.frozensets(st.integers(0, rows * width - 1), max_size=3)
    shape = Subsection(rows, width, draw(some))
    limit = min(draw(st.sampled_from([4, 4, 20, 2])), shape.seats)
    return Hall(Place(next(_events), "A", 1), shape, price=3000, limit=limit, blocked=draw(some))


class InventoryMachine(RuleBasedStateMachine):
    def __init__(self, run: Callable[[Coroutine[Any, Any, None]], None], store: Store, seen: Counter[str]) -> None:
        super().__init__()
        self.run = run
        self.store = store
        self.seen = seen

    @initialize(hall=halls(), first=st.lists(claims, max_size=6))
    def open_a_hall(self, hall: Hall, first: list[Claim]) -> None:
        self.duel = Duel(self.store, hall, self.seen)
        self.run(self.duel.open())
        self.run(self.duel.claim(first))

    @rule()
    def open_again_or_otherwise(self) -> None:
        self.run(self.duel.open_again_or_otherwise())

    @rule(on_sale=st.sampled_from([True] * 4 + [False]), price=st.none() | st.integers(0, 5000))
    def put_on_sale_or_close(self, on_sale: bool, price: int | None) -> None:
        self.run(self.duel.switch(on_sale, price))

    @rule(batch=st.lists(claims, min_size=1, max_size=3), epoch=epochs)
    def claim(self, batch: list[Claim], epoch: int) -> None:
        self.run(self.duel.claim(batch, epoch))

    @rule(batch=st.lists(settlements, min_size=1, max_size=3), epoch=epochs)
    def settle(self, batch: list[tuple[Verb, int, bool, str]], epoch: int) -> None:
        aimed = [Settlement(verb, *self.duel.somebody(n, stranger=odd), why) for verb, n, odd, why in batch]
        self.run(self.duel.settle(aimed, epoch))

    @rule(number=numbers, seats=seat_lists)
    def refund_a_part(self, number: int, seats: tuple[int, ...]) -> None:
        self.run(self.duel.settle([Settlement(Verb.REOPEN, *self.duel.somebody(number), "refunded", seats)]))

    @rule(number=numbers, other=st.none() | numbers, booking=st.sampled_from("axyz"), odd=strangers, epoch=epochs)
    def convert(self, number: int, other: int | None, booking: str, odd: bool, epoch: int) -> None:
        hold, owner = self.duel.somebody(number, stranger=odd)
        holds = [hold] if other is None else [hold, self.duel.somebody(other)[0]]
        self.run(self.duel.convert(holds, booking, owner, epoch))

    @rule(
        number=numbers, odd=strangers, operation=st.sampled_from(["op1", "op2"]),
        more=st.sampled_from([30_000, 900_000]), cap=st.sampled_from([600_000, 1_800_000]), epoch=epochs,
    )  # fmt: skip
    def extend(self, number: int, odd: bool, operation: str, more: int, cap: int, epoch: int) -> None:
        hold, owner = self.duel.somebody(number, stranger=odd)
        self.run(self.duel.extend(hold, owner=owner, operation=operation, more_ms=more, cap_ms=cap, epoch=epoch))

    @rule(most=st.integers(1, 8))
    def sweep(self, most: int) -> None:
        self.run(self.duel.sweep(most))

    @precondition(lambda self: self.duel.live_holds)
    @rule(number=numbers)
    def let_a_hold_expire(self, number: int) -> None:
        self.run(self.duel.expire(self.duel.live_holds[number % len(self.duel.live_holds)]))

    @precondition(lambda self: self.duel.ended)
    @rule(number=numbers)
    def let_a_day_pass(self, number: int) -> None:
        self.run(self.duel.let_a_day_pass(self.duel.ended[number % len(self.duel.ended)]))


def test_no_short_story_tells_the_scripts_from_the_model(any_config, metrics, request):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()
        store = runner.run(stack.enter_async_context(open_store(any_config, metrics)))
        try:
            run_state_machine_as_test(
                lambda: InventoryMachine(runner.run, store, Counter()),
                settings=settings(
                    max_examples=120 if kind_of_store(request) == "valkey" else 30,
                    stateful_step_count=20,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(stack.aclose())


async def test_long_walks_reach_every_answer_and_never_part_from_the_model(any_config, metrics, request):
    seen: Counter[str] = Counter()
    async with open_store(any_config, metrics) as store:
        await walk(store, seen, halls=40 if kind_of_store(request) == "valkey" else 20)
    answers = {name for name in seen if seen[name]}
    assert answers >= EVERY_ANSWER, f"never reached: {sorted(EVERY_ANSWER - answers)}"


async def test_scripts_inside_transactions_as_kvrocks_needs_them_do_the_same(own_valkey, config, metrics):
    # On a new server the first refusal of each script, for not being known, comes from inside a transaction.
    async with recording(own_valkey({}).url) as record:
        async with open_store(with_settings(config, store_url=record.url), metrics) as store:
            store.server = store.server._replace(flavour="kvrocks")
            await walk(store, Counter(), halls=5)
        words = [bytes(command[0]).upper() for command in record.commands]
    scripts = [position for position, word in enumerate(words) if word == b"EVALSHA"]
    assert len(scripts) > 500
    assert all((words[at - 1], words[at + 1]) == (b"MULTI", b"EXEC") for at in scripts)


async def walk(store: Store, seen: Counter[str], *, halls: int) -> None:
    rnd = random.Random(20_261_115)
    for _ in range(halls):
        duel = Duel(store, random_hall(rnd), seen)
        await duel.open()
        for _ in range(120):
            await random_step(rnd, duel)


EVERY_ANSWER = {
    "claim ok", "claim sold_out", "claim no_block", "claim taken", "claim kept", "claim limit", "claim closed",
    "claim fenced", "claim not_owner", "claim expired", "claim unknown", *(f"claim rung {rung}" for rung in range(5)),
    "release ok", "release sold", "release not_owner", "release unknown", "release fenced",
    "confirm ok", "confirm expired", "confirm not_owner", "confirm unknown", "confirm fenced",
    "reopen ok", "reopen expired", "reopen not_sold", "reopen not_owner", "reopen unknown", "reopen fenced",
    "convert ok", "convert expired", "convert not_owner", "convert unknown", "convert fenced", "convert invalid",
    "extend ok", "extend limit", "extend expired", "extend not_owner", "extend unknown", "extend fenced",
    "sweep released", "sweep forgot", "sweep more",
}  # fmt: skip


def random_hall(rnd: random.Random) -> Hall:
    shape = Subsection(rnd.randint(2, 5), rnd.randint(3, 9))
    accessible, blocked = (frozenset(rnd.sample(range(shape.seats), rnd.randint(0, 4))) for _ in range(2))
    shape = Subsection(shape.rows, shape.seats_per_row, accessible)
    place = Place(next(_events), "B", rnd.randint(1, 9))
    return Hall(place, shape, price=rnd.randint(0, 9999), limit=min(6, shape.seats), blocked=blocked)


async def random_step(rnd: random.Random, duel: Duel) -> None:
    number, stranger = rnd.randrange(1000), rnd.random() < 0.05
    epoch = EPOCH if rnd.random() < 0.97 else EPOCH + 1
    match rnd.choices(
        ["claim", "settle", "part", "convert", "extend", "expire", "sweep", "age", "switch", "open"],
        weights=[30, 20, 4, 10, 10, 6, 8, 5, 4, 1],
    )[0]:
        case "claim":
            await duel.claim([random_claim(rnd, duel.hall.shape) for _ in range(rnd.randint(1, 3))], epoch)
        case "settle":
            # A second settlement of the same claim in one batch is part of the game.
            targets = [duel.somebody(rnd.choice([number, rnd.randrange(1000)]), stranger=stranger) for _ in range(3)]
            why = rnd.choice(["released", "refunded", "undone"])
            batch = [Settlement(rnd.choice(list(Verb)), *target, why) for target in targets[: rnd.randint(1, 3)]]
            await duel.settle(batch, epoch)
        case "part":
            seats = tuple(rnd.sample(range(duel.hall.shape.seats), 4))
            await duel.settle([Settlement(Verb.REOPEN, *duel.somebody(number), "refunded", seats)])
        case "convert":
            hold, owner = duel.somebody(number, stranger=stranger)
            more = rnd.choice([[], [], [duel.somebody(number + 1)[0]], [hold]])
            await duel.convert([hold, *more], f"x{rnd.randrange(12)}", owner, epoch)
        case "extend":
            holds = duel.live_holds
            hold = rnd.choice(holds) if holds and rnd.random() < 0.8 else duel.somebody(number)[0]
            owner = duel.model.records[hold].owner if hold in duel.model.records and not stranger else "stranger"
            times = {"more_ms": rnd.choice([30_000, 900_000]), "cap_ms": rnd.choice([60_000, 1_800_000])}
            await duel.extend(hold, owner=owner, operation=f"op{rnd.randrange(3)}", **times, epoch=epoch)
        case "expire" if duel.live_holds:
            await duel.expire(rnd.choice(duel.live_holds))
        case "age" if duel.ended:
            for name in duel.ended[: rnd.randint(1, 4)]:
                await duel.let_a_day_pass(name)
        case "sweep":
            await duel.sweep(rnd.choice([1, 2, 10, 100]))
        case "switch":
            await duel.switch(rnd.random() < 0.8, rnd.choice([None, rnd.randint(0, 9999)]))
        case "open":
            await duel.open_again_or_otherwise()


def random_claim(rnd: random.Random, shape: Subsection) -> Claim:
    named = rnd.random() < 0.3
    return Claim(
        id=f"c{rnd.randrange(20)}",
        owner="bob" if rnd.random() < 0.1 else "ann",
        kind=rnd.choice([Kind.HOLD, Kind.HOLD, Kind.BOOKING]),
        size=rnd.choice([1, 2, 2, 3, 4, 5, 7]),
        accessible=rnd.choice([0, 0, 0, 0, 1]),
        allow_partial=rnd.random() < 0.4,
        worst=rnd.choice([Rung.SPLIT, Rung.SPLIT, Rung.ADJACENT_ORPHAN, Rung.ADJACENT]),
        hold_ms=rnd.choice([60_000, 600_000]),
        seats=tuple(rnd.sample(range(shape.seats + 1), rnd.randint(1, 3))) if named else None,
    )


def kind_of_store(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["any_config"])
