"""The inventory and its model, given the same calls: after each, answers and the seven keys must be the same.

The state machine and the long random walk both play through this. Deadlines are by the store's clock; a hold expires
when its record and its index entry are written into the past.
"""

import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import pytest

from aisle.reservation.claims import Claim, Code, Settlement
from aisle.reservation.inventory import SWEEP, Hall, Inventory
from aisle.reservation.sweeper import sweep_keys
from aisle.store import Store
from tests.integration.inventory_model import Model, View, audit, look

EPOCH = 7
CLOCK_SLACK_MS = 1000  # the store's clock is this machine's, read in other ways
T = TypeVar("T")


class Duel:
    """`seen` counts what was reached: a run that never sold or never expired anything proves little."""

    def __init__(self, store: Store, hall: Hall, seen: Counter[str]) -> None:
        self.store = store
        self.inventory = Inventory(store)
        self.hall, self.place = hall, hall.place
        self.seen = seen

    async def open(self) -> None:
        await self.inventory.open([self.hall], epoch=EPOCH)
        view = await self.look()
        self.model = Model(self.hall, epoch=EPOCH, now=view.stats["updated_at"])
        await self.switch(True, None)

    async def open_again_or_otherwise(self) -> None:
        same = replace(self.hall, price=self.model.price)
        await self.inventory.open([same], epoch=EPOCH)
        with pytest.raises(ValueError, match="another configuration"):
            await self.inventory.open([replace(same, price=same.price + 1)], epoch=EPOCH)
        with pytest.raises(LookupError, match="not in epoch"):
            await self.inventory.switch([self.place], epoch=EPOCH + 1, on_sale=True)
        self.compare(await self.look())

    async def switch(self, on_sale: bool, price: int | None) -> None:
        await self.inventory.switch([self.place], epoch=EPOCH, on_sale=on_sale, price=price)
        self.model.on_sale = on_sale
        self.model.price = self.model.price if price is None else price
        self.compare(await self.look())

    async def claim(self, batch: list[Claim], epoch: int = EPOCH) -> None:
        answers, now, view = await self.act(self.inventory.claim(self.place, batch, epoch=epoch))
        assert [bare(answer) for answer in answers] == self.model.claim(batch, epoch=epoch, now=now)
        self.seen.update(f"claim {answer.code}" for answer in answers)
        self.seen.update(f"claim rung {answer.how}" for answer in answers if answer.ok)
        self.compare(view)

    async def settle(self, batch: list[Settlement], epoch: int = EPOCH) -> None:
        answers, now, view = await self.act(self.inventory.settle(self.place, batch, epoch=epoch))
        assert [bare(answer) for answer in answers] == self.model.settle(batch, epoch=epoch, now=now)
        self.seen.update(f"{s.verb} {answer.code}" for s, answer in zip(batch, answers, strict=True))
        self.compare(view)

    async def convert(self, holds: list[str], booking: str, owner: str, epoch: int = EPOCH) -> None:
        started = now_ms()
        answer = await self.inventory.convert(self.place, holds, booking=booking, owner=owner, epoch=epoch)
        view = await self.look()
        # A conversion moves no seat, so the time is that of the booking it made.
        now = view.records[booking].taken if booking in view.records.keys() - self.model.records.keys() else started
        assert in_window(now, started)
        assert bare(answer) == self.model.convert(holds, booking=booking, owner=owner, epoch=epoch, now=now)
        self.seen[f"convert {answer.code}"] += 1
        self.compare(view)

    async def extend(
        self, hold: str, *, owner: str, operation: str, more_ms: int, cap_ms: int, epoch: int = EPOCH
    ) -> None:
        asked = {"owner": owner, "operation": operation, "more_ms": more_ms, "cap_ms": cap_ms, "epoch": epoch}
        started = now_ms()
        code, deadline = await self.inventory.extend(self.place, hold, **asked)
        earlier = self.model.records.get(hold)
        fresh = code is Code.OK and earlier is not None and deadline not in (earlier.deadline, earlier.taken + cap_ms)
        now = deadline - more_ms if fresh else started
        assert in_window(now, started)
        assert (code, deadline) == self.model.extend(hold, **asked, now=now)
        self.seen[f"extend {code}"] += 1
        self.compare(await self.look())

    async def sweep(self, most: int) -> None:
        packed, now, view = await self.act(self.store.run(SWEEP, sweep_keys(self.store.prefix, self.place), (most,)))
        swept = msgspec.msgpack.decode(packed)
        assert swept == self.model.sweep(most, now=now)
        self.seen.update({"sweep released": len(swept[0]), "sweep forgot": swept[1], "sweep more": swept[2]})
        self.compare(view)

    async def expire(self, name: str) -> None:
        past = now_ms() - 5000
        self.model.records[name] = replace(self.model.records[name], taken=past - 1000, deadline=past)
        self.model.index[name] = past
        *_, records, index = self.inventory.keys(self.place)
        await self.store.call("HSET", records, name, self.model.records[name].text)
        await self.store.call("ZADD", index, past, name)

    async def let_a_day_pass(self, name: str) -> None:
        """Since a claim ended."""
        self.model.index[name] = now_ms() - 5000
        await self.store.call("ZADD", self.inventory.keys(self.place)[6], self.model.index[name], name)

    @property
    def live_holds(self) -> list[str]:
        return sorted(name for name, r in self.model.records.items() if r.state == "L" and r.deadline)

    @property
    def ended(self) -> list[str]:
        return sorted(name for name, r in self.model.records.items() if r.state == "E")

    def somebody(self, number: int, *, stranger: bool = False) -> tuple[str, str]:
        """One of the claims there are, or one that is not; and its owner, or somebody else."""
        names = [*sorted(self.model.records), "nobody"]
        name = names[number % len(names)]
        record = self.model.records.get(name)
        return name, record.owner if record and not stranger else "stranger"

    async def act(self, call: Coroutine[Any, Any, T]) -> tuple[T, int, View]:
        """Run a call; return its answer, the time by which the store decided, and what the store then holds."""
        started = now_ms()
        answer = await call
        view = await self.look()
        # Where no seat moved there is no trace of the time; every deadline is then seconds away from it.
        now = view.stats["updated_at"] if view.stats["version"] != self.model.version else started
        assert in_window(now, started)
        return answer, now, view

    async def look(self) -> View:
        return await look(self.store, self.place, self.hall.shape)

    def compare(self, view: View) -> None:
        assert view == self.model.view()
        assert audit(view, self.hall.shape) == []


def bare(answer: Any) -> Any:
    """Without the sentence for people."""
    return msgspec.structs.replace(answer, detail="")


def in_window(now: int, started: int) -> bool:
    return started - CLOCK_SLACK_MS <= now <= now_ms() + CLOCK_SLACK_MS


def now_ms() -> int:
    return time.time_ns() // 1_000_000
