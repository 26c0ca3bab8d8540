"""Hypothesis plays against the scripts of a pool: after every step the store holds exactly what the model says.

Few ids and few owners, so that calls repeat, come late, and come from strangers. Deadlines are by the store's clock; a
hold becomes overdue when the machine writes its record and its index entry into the past.
"""

import asyncio
import copy
import itertools
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from aisle.reservation.claims import Code, Kind, Verb
from aisle.reservation.pool import HOLD_MS_MAX, Pool, PoolPlace, PoolSettlement, Take
from aisle.reservation.pool_picture import PoolPicture, PoolRecord, findings
from aisle.reservation.pools import Pools
from aisle.store import Store, open_store
from tests.integration.pool_model import PoolModel

pytest_plugins = ["tests.integration.stores"]

EPOCH = 7
HOLD_MS = 600_000
T = TypeVar("T")

ids = st.sampled_from(["a", "b", "c", "d", "e", "f"])
owners = st.sampled_from(["ann"] * 5 + ["bob"])
epochs = st.sampled_from([EPOCH] * 12 + [EPOCH - 1])
takes = st.builds(
    Take,
    id=ids,
    owner=owners,
    quantity=st.sampled_from([1, 1, 2, 2, 3, 5]),
    kind=st.sampled_from(Kind),
    allow_partial=st.booleans(),
    hold_ms=st.just(HOLD_MS),
)
whole_settlements = st.builds(
    PoolSettlement, verb=st.sampled_from(Verb), id=ids, owner=owners, why=st.sampled_from(["released", "refunded"])
)
part_refunds = st.builds(
    PoolSettlement,
    verb=st.just(Verb.REOPEN),
    id=ids,
    owner=owners,
    why=st.just("refunded"),
    quantity=st.integers(1, 3),
    operation=st.sampled_from(["r", "r-1", "r-11"]),
)
EVERYWHERE = {
    "take ok", "take full", "take no_block", "take limit", "take closed", "take fenced", "take not_owner",
    "take expired", "take already_holding", "release ok", "release sold", "confirm ok", "confirm expired",
    "confirm unknown", "reopen ok", "reopen not_sold", "reopen part ok", "reopen part not_sold", "convert ok",
    "convert unknown", "convert expired", "convert taken", "extend ok", "extend limit", "extend expired", "resize ok",
    "resize taken", "resize fenced", "sweep released", "sweep forgot",
}  # fmt: skip
seen: Counter[str] = Counter()


def aims(requests):
    """A request and which of the claims there are it is for, or None to leave it as it was drawn."""
    return st.tuples(st.none() | st.integers(0, 5) | st.integers(0, 5), requests)


class PoolMachine(RuleBasedStateMachine):
    def __init__(self, store: Store, run: asyncio.Runner, events: itertools.count) -> None:
        super().__init__()
        self.store, self.runner = store, run
        self.pools, self.place = Pools(store), PoolPlace(next(events), "GA")
        self.past = itertools.count(1)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    @initialize(capacity=st.integers(4, 14), limit=st.integers(4, 5), one_per_buyer=st.booleans())
    def open(self, capacity, limit, one_per_buyer):
        self.model = PoolModel(capacity, 3000, limit, one_per_buyer, on_sale=True)
        pool = Pool(self.place, capacity, 3000, limit, one_per_buyer)
        for _ in range(2):
            self.run(self.pools.open([pool], epoch=EPOCH))
        self.run(self.pools.switch([self.place], epoch=EPOCH, on_sale=True))
        self.before, self.picture = None, self.look()
        self.compare()

    @rule(batch=st.lists(takes, min_size=1, max_size=4), epoch=epochs)
    def take(self, batch, epoch):
        answers = self.run(self.pools.take(self.place, batch, epoch=epoch))
        for take, answer in zip(batch, answers, strict=True):
            expected = self.model.take(take) if epoch == EPOCH else (Code.FENCED, 0)
            assert (answer.code, answer.quantity) == expected
            if answer.ok:
                entry = self.model.entries[take.id]
                if not entry.taken_ms:
                    entry.taken_ms = answer.taken_ms
                    entry.deadline_ms = answer.taken_ms + HOLD_MS if take.kind is Kind.HOLD else 0
                assert (answer.deadline_ms, answer.taken_ms) == (entry.deadline_ms, entry.taken_ms)
                assert answer.price == entry.price
            seen[f"take {answer.code}"] += 1
        self.check()

    @rule(batch=st.lists(aims(whole_settlements | part_refunds), min_size=1, max_size=4), epoch=epochs)
    def settle(self, batch, epoch):
        batch = [self.aimed(aim, settlement) for aim, settlement in batch]
        answers = self.run(self.pools.settle(self.place, batch, epoch=epoch))
        for settlement, answer in zip(batch, answers, strict=True):
            expected = self.model.settle(settlement) if epoch == EPOCH else (Code.FENCED, 0)
            assert (answer.code, answer.quantity) == expected
            part = " part" if settlement.quantity else ""
            seen[f"{settlement.verb}{part} {answer.code}"] += 1
        self.check()

    @rule(holds=st.lists(ids, min_size=1, max_size=3, unique=True), booking=ids, owner=owners, epoch=epochs)
    def convert(self, holds, booking, owner, epoch):
        live = [claim for claim, entry in self.model.entries.items() if entry.is_live_hold and entry.owner == owner]
        holds = live or holds if len(holds) < 3 else holds
        answer = self.run(self.pools.convert(self.place, holds, booking=booking, owner=owner, epoch=epoch))
        if booking in holds:
            assert answer.code is Code.INVALID
        else:
            expected = self.model.convert(holds, booking, owner) if epoch == EPOCH else (Code.FENCED, 0)
            assert (answer.code, answer.quantity) == expected
        seen[f"convert {answer.code}"] += 1
        self.check(adopt=booking)

    @rule(who=aims(takes), operation=st.sampled_from(["x1", "x2"]), cap=st.integers(1, 4), epoch=epochs)
    def extend(self, who, operation, cap, epoch):
        who = self.aimed(*who)
        cap_ms = cap * HOLD_MS
        answer = self.run(
            self.pools.extend(
                self.place,
                who.id,
                owner=who.owner,
                operation=operation,
                more_ms=HOLD_MS_MAX,
                cap_ms=cap_ms,
                epoch=epoch,
            )
        )
        expected = self.model.extend(who.id, who.owner, operation, cap_ms) if epoch == EPOCH else (Code.FENCED, 0)
        assert answer == expected
        seen[f"extend {answer[0]}"] += 1
        self.check()

    @rule(was=st.integers(0, 2), capacity=st.integers(4, 14), epoch=epochs)
    def resize(self, was, capacity, epoch):
        was = max(1, self.model.capacity - was) if was < 2 else 1 + capacity
        answer = self.run(self.pools.resize(self.place, was=was, capacity=capacity, epoch=epoch))
        assert answer == (self.model.resize(was, capacity) if epoch == EPOCH else (Code.FENCED, 0))
        seen[f"resize {answer[0]}"] += 1
        self.check()

    @rule(on_sale=st.sampled_from([True] * 7 + [False]), price=st.sampled_from([None, 2500, 3000]))
    def switch(self, on_sale, price):
        self.run(self.pools.switch([self.place], epoch=EPOCH, on_sale=on_sale, price=price))
        self.model.on_sale = on_sale
        self.model.price = price or self.model.price
        self.check()

    @precondition(lambda self: any(entry.is_running for entry in self.model.entries.values()))
    @rule(data=st.data())
    def a_deadline_passes(self, data):
        running = sorted(claim for claim, entry in self.model.entries.items() if entry.is_running)
        claim = data.draw(st.sampled_from(running))
        entry = self.model.entries[claim]
        entry.due = entry.deadline_ms = next(self.past)
        fields = self.picture.records[claim].split("|")
        fields[5] = str(entry.due)
        _, holds, index = self.pools.keys(self.place)
        self.run(self.store.call("HSET", holds, claim, "|".join(fields)))
        self.run(self.store.call("ZADD", index, entry.due, claim))
        self.check(by_hand=True)

    @precondition(lambda self: any(entry.state == "E" for entry in self.model.entries.values()))
    @rule()
    def a_day_passes(self):
        ended = sorted(claim for claim, entry in self.model.entries.items() if entry.state == "E" and entry.due is None)
        for claim in ended:
            self.model.entries[claim].due = next(self.past)
            self.run(self.store.call("ZADD", self.pools.keys(self.place)[2], self.model.entries[claim].due, claim))
        self.check(by_hand=True)

    @rule(at_most=st.integers(1, 5))
    def sweep(self, at_most):
        [swept] = self.run(self.pools.sweep([self.place], at_most=at_most))
        released, forgotten = self.model.sweep(at_most)
        assert [(one.claim, one.owner, one.runs) for one in swept.released] == [
            (claim, owner, (0, quantity)) for claim, owner, quantity in released
        ]
        assert (swept.forgotten, swept.more) == (forgotten, int(len(released) + forgotten == at_most))
        seen.update(["sweep released"] * len(released) + ["sweep forgot"] * forgotten)
        self.check()
        assert swept.left == len(self.picture.index)

    def aimed(self, aim: int | None, request: T) -> T:
        """The same request for a claim that exists, by its owner: random ids alone would mostly meet nothing."""
        if aim is None or not self.model.entries:
            return request
        claim = sorted(self.model.entries)[aim % len(self.model.entries)]
        return msgspec.structs.replace(request, id=claim, owner=self.model.entries[claim].owner)

    def look(self) -> PoolPicture:
        picture = self.run(self.pools.picture(self.place))
        assert picture is not None
        return picture

    def check(self, *, adopt: str = "", by_hand: bool = False) -> None:
        """The store equals the model; what changed nothing in the model wrote nothing at all."""
        previous, self.picture = self.picture, self.look()
        if adopt in self.model.entries and not self.model.entries[adopt].taken_ms:
            self.model.entries[adopt].taken_ms = PoolRecord.parse(self.picture.records[adopt]).taken_ms
        if self.model == self.before:
            assert replace(self.picture, now_ms=0) == replace(previous, now_ms=0)
        elif not by_hand:
            assert int(self.picture.pool["version"]) == int(previous.pool["version"]) + self.counts_may_move()
        self.compare()

    def counts_may_move(self) -> int:
        # An extension moves a deadline and no count, so it is the one change that has no version of its own.
        def without_deadlines(model: PoolModel) -> PoolModel:
            model = copy.deepcopy(model)
            for entry in model.entries.values():
                if entry.is_live_hold:
                    entry.deadline_ms, entry.note = 0, ""
            return model

        return int(without_deadlines(self.model) != without_deadlines(self.before))

    def compare(self) -> None:
        model, picture = self.model, self.picture
        assert findings(picture) == []
        assert picture.pool | {"version": "", "updated_at": ""} == {
            "epoch": str(EPOCH),
            "state": "open" if model.on_sale else "closed",
            "capacity": str(model.capacity),
            "held": str(model.held),
            "sold": str(model.sold),
            "price": str(model.price),
            "limit": str(model.limit),
            "one_per_buyer": str(int(model.one_per_buyer)),
            "version": "",
            "updated_at": "",
        }
        assert {claim: PoolRecord.parse(text) for claim, text in picture.records.items()} == {
            claim: PoolRecord(
                entry.state,
                entry.kind.value,
                entry.owner,
                entry.price,
                entry.taken_ms,
                entry.deadline_ms,
                entry.written_note,
                entry.quantity,
            )
            for claim, entry in model.entries.items()
        }
        running = {o: c for o, c in picture.pointers.items() if model.entries[c].is_running}
        assert running == model.running
        self.before = copy.deepcopy(model)


def test_the_scripts_do_what_the_model_says(any_config, metrics):
    seen.clear()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()
        store = runner.run(stack.enter_async_context(open_store(any_config, metrics)))
        try:
            events = itertools.count(1)
            run_state_machine_as_test(
                lambda: PoolMachine(store, runner, events),
                settings=settings(
                    max_examples=150,
                    stateful_step_count=40,
                    deadline=None,
                    derandomize=True,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(stack.aclose())
    assert not EVERYWHERE - seen.keys(), "the machine never came there, so it proves nothing about it"
