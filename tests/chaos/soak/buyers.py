"""People who keep buying while everything around them breaks: they hold, check out, book, pay, cancel, want money
back and go in. Whoever gets no answer asks again under the same key, perhaps another process; some leave in between.

Everything they ask and are told goes into the history. What they do is drawn from the seed of the run.
"""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.soak.history import FAIL, OK, UNKNOWN, Gone, History, Operation, exchange, judge
from tests.chaos.soak.world import World
from tests.people import a_hall

SEATS_PER_BUYER = 8
POOL = "GA"
POOL_PLACES = 20
ROWS, WIDTH = 4, 10
TRIES = 4
LEFT = "a client left and asked again elsewhere"
CARDS = ("card_ok",) * 8 + (
    "card_declined", "card_late", "card_late", "card_late", "card_timeout", "card_charge_timeout", "card_3ds",
    "card_duplicate", "card_duplicate", "card_capture_fails", "card_wrong_amount",
)  # fmt: skip


def a_show(number: int) -> dict[str, Any]:
    hall = a_hall(("A", 3000, ROWS, WIDTH), ("B", 1000, ROWS, WIDTH), seats_per_booking=4)
    pool = {"name": POOL, "price": 500, "capacity": POOL_PLACES, "places_per_buyer": 4}
    return {**hall, "name": f"Chaos {number}", "seats_per_buyer": SEATS_PER_BUYER, "pools": [pool]}


@dataclass
class Sale:
    """What all people of a run share."""

    world: World
    history: History
    events: list[int] = field(default_factory=list)
    door_token: str = ""
    door_email: str = ""
    seller_token: str = ""
    sometimes: Counter[str] = field(default_factory=Counter)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, what: str) -> None:
        self.sometimes[what] += 1

    async def ask(
        self, buyer: str, kind: str, method: str, path: str, body: Any = None, *, token: str = "", key: str = "",
        door: int = 0, leave_after_s: float | None = None, seconds: float = 12.0, **asked: Any,
    ) -> Operation:  # fmt: skip
        """One request, written down. `asked` is what the judge wants to know of it."""
        operation = Operation(buyer, kind, key, {"path": path, "body": body, **asked}, time.monotonic())
        self.history.operations.append(operation)
        self.history.in_flight += 1
        doors = self.world.doors
        try:
            answer = await exchange(
                doors[door % len(doors)], method, path, body, token=token, key=key, seconds=seconds,
                leave_after_s=leave_after_s,
            )  # fmt: skip
            judge(operation, answer)
        except Gone as gone:
            operation.code = str(gone)
        finally:
            operation.completed = time.monotonic()
            self.history.in_flight -= 1
        return operation


class Buyer:
    def __init__(self, sale: Sale, name: str, token: str, seed: int) -> None:
        self.sale, self.name, self.token = sale, name, token
        self.chance = random.Random(seed)
        self._keys = 0

    async def live(self) -> None:
        while not self.sale.over.is_set():
            event = self.chance.choice(self.sale.events[-3:])
            booking = await (self._places(event) if self.chance.random() < 0.6 else self._holds(event))
            if booking is not None:
                await self._goes_on(event, booking)
            await self._waits(0.3)

    async def _places(self, event: int) -> str | None:
        order = {"event_id": event, **self._order()}
        told = await self._ask("book", "POST", "/bookings", order, key=self._key(), event=event)
        if told is not None and self.chance.random() < 0.05:
            await self._misuses_key(order)
        return str(told["id"]) if told else None

    async def _misuses_key(self, order: dict[str, Any]) -> None:
        """The last key with another body must be refused."""
        other = {"event_id": order["event_id"], "quantity": 1, "section": "B", "allow_partial": True}
        await self._once("book", "POST", "/bookings", other, key=f"{self.name}-{self._keys}", misuse=True)

    async def _holds(self, event: int) -> str | None:
        held = None
        for _ in range(self.chance.choice((1, 1, 2))):
            held = await self._ask(
                "hold", "POST", f"/events/{event}/holds", self._order(), key=self._key(), event=event
            )
        if held is None:
            return None
        await self._waits(self.chance.choice((0.2, 1, 4)))
        what = self.chance.random()
        if what < 0.12:
            await self._ask("release", "DELETE", f"/events/{event}/holds/{held['id']}", event=event)
            return None
        if what < 0.22:
            self.sale.note("a hold was left to lapse")
            await asyncio.sleep(13)
            return None
        if what < 0.4:
            path = f"/events/{event}/holds/{held['id']}/extend"
            await self._ask("extend", "POST", path, key=self._key(), event=event)
        if what > 0.9:
            self.sale.note("a checkout raced the sweep")
            await asyncio.sleep(self.chance.uniform(11, 13))
        told = await self._ask("checkout", "POST", "/cart/checkout", key=self._key(), event=event)
        return str(told["id"]) if told else None

    async def _goes_on(self, event: int, booking: str) -> None:
        state = await self._decided(event, booking)
        if state != "PENDING_PAYMENT":
            return
        what = self.chance.random()
        if what < 0.15:
            await self._ask("cancel", "POST", f"/bookings/{booking}/cancel", key=self._key(), booking=booking)
        elif what < 0.22:
            self.sale.note("a booking was left to expire")
        elif await self._pays(booking):
            await self._uses(event, booking)

    async def _decided(self, event: int, booking: str) -> str:
        for _ in range(40):
            told = await self._looks(event, booking)
            if told is not None and told["state"] != "PROCESSING":
                return str(told["state"])
            if self.sale.over.is_set():
                break
            await self._waits(0.8)
        return "PROCESSING"

    async def _looks(self, event: int, booking: str) -> dict[str, Any] | None:
        looked = await self._once("look", "GET", f"/bookings/{booking}", booking=booking, event=event)
        return looked.answer if looked.outcome == OK else None

    async def _pays(self, booking: str) -> bool:
        for _ in range(2):
            card = self.chance.choice(CARDS)
            body = {"method": card}
            paid = await self._ask(
                "pay", "POST", f"/bookings/{booking}/payments", body, key=self._key(), booking=booking
            )
            if paid is not None and paid["state"] == "ACTION":
                path = f"/bookings/{booking}/payments/{paid['id']}/confirm"
                paid = await self._ask("confirm", "POST", path, {"code": "000000"}, booking=booking)
            if paid is not None and paid["state"] == "CAPTURED":
                return True
            if card == "card_late":
                self.sale.note("a payment was left undecided")
            if self.chance.random() < 0.5:
                return False
        return False

    async def _uses(self, event: int, booking: str) -> None:
        await self._looks(event, booking)
        what = self.chance.random()
        if what < 0.45:
            await self._ask("refund", "POST", f"/bookings/{booking}/refund", key=self._key(), booking=booking)
            await self._looks(event, booking)
        elif what < 0.75:
            await self._goes_in(event, booking)

    async def _goes_in(self, event: int, booking: str) -> None:
        shown = await self._once("tickets", "GET", f"/bookings/{booking}/tickets", booking=booking)
        if shown.outcome != OK or not shown.answer["tickets"]:
            return
        ticket = shown.answer["tickets"][0]
        body = {"event_id": event, "code": ticket["code"], "gate": "north"}
        scans = [
            self._ask("scan", "POST", "/check-ins", body, key=self._key(), token=self.sale.door_token,
                      ticket=f"{booking} {ticket['id']}", booking=booking)
            for _ in range(2)
        ]  # fmt: skip
        race = self.chance.random() < 0.3
        if race:
            self.sale.note("a refund raced a scan")
            scans.append(self._ask("refund", "POST", f"/bookings/{booking}/refund", key=self._key(), booking=booking))
        await asyncio.gather(*scans)

    def _order(self) -> dict[str, Any]:
        what = self.chance.random()
        if what < 0.25:
            return {"pool": POOL, "quantity": self.chance.randrange(1, 4)}
        if what < 0.5:
            row, first = self.chance.randrange(1, ROWS + 1), self.chance.randrange(1, WIDTH - 1)
            names = [f"{row}-{first + n}" for n in range(self.chance.randrange(1, 3))]
            return {"mode": "manual", "section": self.chance.choice("AB"), "subsection": 1, "seats": names}
        order = {"quantity": self.chance.randrange(1, 5), "allow_partial": self.chance.random() < 0.2}
        return {**order, **({"section": self.chance.choice("AB")} if what < 0.75 else {})}

    async def _ask(self, kind: str, method: str, path: str, body: Any = None, *, key: str = "", **more: Any) -> Any:
        """Again under the same key until there is an answer; None when it is a refusal, or when there never is one."""
        door = self.chance.randrange(100)
        leaves = self.chance.random() < 0.04
        for attempt in range(TRIES):
            leave_after_s = self.chance.uniform(0, 0.02) if leaves and attempt == 0 else None
            tried = {"door": door + attempt, "leave_after_s": leave_after_s, "again": attempt > 0}
            asked = await self._once(kind, method, path, body, key=key, **tried, **more)
            if leave_after_s is not None:
                self.sale.note(LEFT)
            if asked.outcome == OK:
                return asked.answer
            if asked.outcome == FAIL and asked.status not in (429, 503):
                return None
            if asked.outcome == UNKNOWN and asked.status == 0:
                self.sale.note("an outcome stayed unknown to the client")
            await self._waits(0.5 + attempt)
        return None

    async def _once(self, kind: str, method: str, path: str, body: Any = None, **more: Any) -> Operation:
        door, token = more.pop("door", self.chance.randrange(100)), more.pop("token", self.token)
        return await self.sale.ask(self.name, kind, method, path, body, token=token, door=door, **more)

    async def _waits(self, seconds: float) -> None:
        await asyncio.sleep(self.chance.random() * seconds)

    def _key(self) -> str:
        self._keys += 1
        return f"{self.name}-{self._keys}"


class Seller:
    """Opens a new event whenever the last one is about to be sold out or has been on sale long enough."""

    def __init__(self, sale: Sale, token: str, *, every_s: float) -> None:
        self.sale, self.token, self.every_s = sale, token, every_s
        self._number = 0

    async def live(self) -> None:
        while not self.sale.over.is_set():
            await asyncio.sleep(self.every_s)
            await self.opens_one()

    async def opens_one(self) -> None:
        self._number += 1
        key = f"seller-{self._number}-key"
        created = await self._until_ok("create", "POST", "/events", a_show(self._number), key=key)
        if created is None:
            return
        event = int(created["id"])
        while not self.sale.over.is_set():
            opened = await self._ask("open", "POST", f"/events/{event}/open")
            if opened.outcome == OK:
                body = {"email": self.sale.door_email}
                await self._until_ok("staff", "PUT", f"/events/{event}/door-staff", body, key="")
                self.sale.events.append(event)
                return
            await asyncio.sleep(0.5)

    async def _until_ok(self, kind: str, method: str, path: str, body: Any, *, key: str) -> Any:
        while not self.sale.over.is_set():
            asked = await self._ask(kind, method, path, body, key=key)
            if asked.outcome == OK:
                return asked.answer
            await asyncio.sleep(0.5)
        return None

    async def _ask(self, kind: str, method: str, path: str, body: Any = None, *, key: str = "") -> Operation:
        door = self._number + len(self.sale.history.operations)
        return await self.sale.ask("seller", kind, method, path, body, token=self.token, key=key, door=door)
