"""Simulated buyers, so that there is something to watch: they come, take seats, and some let them go again.

Each buyer is a task of its own with pauses like a person's. Everything they do goes through the public API; the
accounts behind them share one hash, because hashing a password for each would take a tenth of a second.
"""

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from aisle.accounts.account import Account, Role
from aisle.config import Config
from aisle.demo.conversation import Person
from aisle.demo.load import desk_of
from aisle.ids import new_id

BUYERS_MAX = 500
REPORT_SECONDS = 5.0
PARTIES = (1, 2, 2, 2, 2, 3, 4, 4)
# What a party does with the seats it got.
PAYS, LETS_GO, WALKS_AWAY = 0.6, 0.25, 0.15
CARDS = ("card_ok",) * 9 + ("card_declined",)


async def run_crowd(
    config: Config, address: str, events: Sequence[int], *, buyers: int, seconds: float, say: Callable[[str], None]
) -> Counter[str]:
    """Let `buyers` buy for so long; returns how often what happened."""
    happened: Counter[str] = Counter()
    async with _tokens(config, buyers) as tokens:
        tasks = [asyncio.create_task(_buy(Person(address, token), events, happened)) for token in tokens]
        tasks.append(asyncio.create_task(_report(happened, say)))
        try:
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return happened


@asynccontextmanager
async def _tokens(config: Config, count: int) -> AsyncIterator[list[str]]:
    """Tokens of so many new accounts that nobody can log in to; revoked at the end."""
    async with desk_of(config) as (_, desk):
        hashed = await desk.passwords.hash(secrets.token_hex(16))
        now = datetime.now(UTC)
        wave = secrets.token_hex(4)
        accounts = [Account(new_id(now), f"crowd.{wave}.{n}@aisle.example", Role.BUYER, now) for n in range(count)]
        issued = []
        for account in accounts:
            await desk.accounts.insert(account, hashed)
            issued.append(await desk.bearers.issue(account.id, "crowd", 1))
        try:
            yield [one.text for one in issued]
        finally:
            for account, one in zip(accounts, issued, strict=True):
                await desk.bearers.revoke(account.id, one.token.id)


async def _buy(person: Person, events: Sequence[int], happened: Counter[str]) -> None:
    chance = random.Random()  # noqa: S311 - a crowd, not a secret
    wanted = list(events)
    await asyncio.sleep(chance.uniform(0, 3))
    while wanted:
        event = chance.choice(wanted)
        try:
            if not await _visit(person, event, chance, happened):
                wanted.remove(event)
        except (OSError, ValueError) as error:
            happened[f"no answer ({type(error).__name__})"] += 1
        await asyncio.sleep(chance.uniform(1, 6))


async def _visit(person: Person, event: int, chance: random.Random, happened: Counter[str]) -> bool:
    """One try to get seats; False when this buyer has no more business with the event."""
    sections = (await person.get(f"/events/{event}/sections")).body
    free = [s["section"] for s in sections if s["available"]] if isinstance(sections, list) else []
    if not free:
        return False
    order = {"event_id": event, "quantity": chance.choice(PARTIES)}
    if chance.random() < 0.7:
        order["section"] = chance.choice(free)
    placed = await person.post("/bookings", order)
    if placed.status != 202:
        happened[placed.code or str(placed.status)] += 1
        return placed.status == 503
    booking = await _decided(person, placed.body["id"])
    happened["booked" if booking["state"] == "PENDING_PAYMENT" else f"refused ({booking['reason']})"] += 1
    if booking["state"] == "PENDING_PAYMENT":
        await asyncio.sleep(chance.uniform(1, 5))
        await _settle(person, booking["id"], chance, happened)
    return True


async def _decided(person: Person, booking: str) -> dict[str, str]:
    while True:
        found = (await person.get(f"/bookings/{booking}")).body
        if found["state"] != "PROCESSING":
            return dict(found)
        await asyncio.sleep(0.2)


async def _settle(person: Person, booking: str, chance: random.Random, happened: Counter[str]) -> None:
    (what,) = chance.choices(("pay", "let go", "walk away"), (PAYS, LETS_GO, WALKS_AWAY))
    if what == "let go":
        answer = await person.post(f"/bookings/{booking}/cancel", {})
        happened["let go" if answer.status == 200 else f"cancel {answer.status}"] += 1
    elif what == "walk away":
        happened["walked away"] += 1
    else:
        card = chance.choice(CARDS)
        paid = await person.post(f"/bookings/{booking}/payments", {"method": card})
        happened["paid" if paid.status == 201 else paid.code or f"payment {paid.status}"] += 1


async def _report(happened: Counter[str], say: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        say(summary(happened))


def summary(happened: Counter[str]) -> str:
    return " · ".join(f"{what} {count}" for what, count in happened.most_common()) or "nothing yet"
