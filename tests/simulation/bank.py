"""A payment provider in memory: idempotent by our ids, sometimes silent, and its webhooks come when they like."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from aisle.payment.provider import Answer, Charge, Notice, ProviderSilent, Verdict
from tests.simulation.world import World

FIRST = {"card_declined": "declined", "card_late": "pending", "card_3ds": "action"}


class Bank:
    """The provider's books, the same for every process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.charges: dict[UUID, dict[str, Any]] = {}
        self.refunds: dict[UUID, int] = {}
        # Set by the history: takes a webhook to some process.
        self.send: Any = None

    def charge(self, charge: Charge) -> dict[str, Any]:
        found = self.charges.get(charge.payment)
        if found is None:
            found = self.charges[charge.payment] = {
                "payment": charge.payment, "amount": charge.amount + (charge.method == "card_wrong_amount"),
                "currency": charge.currency, "card": charge.method, "refunded": 0,
                "state": FIRST.get(charge.method, "authorised"),
            }  # fmt: skip
            if charge.method == "card_late":
                self._later(charge.payment)
            elif self.world.chance.random() < 0.3:
                self._notify(charge.payment)
        return found

    def _later(self, payment: UUID) -> None:
        def decide() -> None:
            found = self.charges[payment]
            if found["state"] == "pending":
                found["state"] = "authorised" if self.world.chance.random() < 0.85 else "declined"
                self.world.note("a provider decided late")
            self._notify(payment)

        self.world.loop.call_later(self.world.chance.uniform(1, 90), decide)

    def _notify(self, payment: UUID) -> None:
        body = msgspec.json.encode({"id": f"n-{payment}", "payment": payment, "kind": "charge"})
        for _ in range(self.world.chance.choice((1, 1, 2, 3))):
            delay = self.world.chance.random() ** 3 * 60
            self.world.loop.call_later(delay, lambda: self.send(body))


class BankLine:
    """The provider as one process sees it. `aisle.payment.provider.Provider`."""

    name = "sandbox"

    def __init__(self, bank: Bank, process: Any) -> None:
        self._bank, self._process = bank, process

    async def authorise(self, charge: Charge) -> Answer:
        silent_before, silent_after = charge.method == "card_timeout", charge.method == "card_charge_timeout"
        await self._arrive(silent_before)
        self._bank.charge(charge)
        return await self._answer(charge.payment, silent_after)

    async def confirm(self, payment: UUID, reference: str, proof: str) -> Answer:
        await self._arrive()
        found = self._bank.charges.get(payment)
        if found is not None and found["state"] == "action":
            found["state"] = "authorised" if proof == "000000" else "declined"
        return await self._answer(payment)

    async def look(self, payment: UUID, reference: str, since: datetime) -> Answer:
        await self._arrive()
        return await self._answer(payment)

    async def capture(self, payment: UUID, reference: str) -> Answer:
        await self._arrive()
        found = self._bank.charges.get(payment)
        if found is not None and found["state"] == "authorised":
            if found["card"] == "card_capture_fails":
                return Answer(verdict=Verdict.DECLINED, reason="the money cannot be captured")
            found["state"] = "captured"
        return await self._answer(payment)

    async def void(self, payment: UUID, reference: str) -> Answer:
        await self._arrive()
        found = self._bank.charges.get(payment)
        if found is not None and found["state"] in ("pending", "action", "authorised"):
            found["state"] = "voided"
        return await self._answer(payment)

    async def refund(self, refund: UUID, payment: UUID, reference: str, amount: int) -> bool:
        await self._arrive()
        found = self._bank.charges.get(payment)
        if refund not in self._bank.refunds:
            if found is None or found["state"] != "captured" or found["refunded"] + amount > found["amount"]:
                raise ProviderSilent("the provider has no such money")
            found["refunded"] += amount
            self._bank.refunds[refund] = amount
        await self._answer(payment)
        return True

    def read_notice(self, body: bytes, headers: Mapping[str, str], now: datetime) -> Notice:
        return msgspec.json.decode(body, type=Notice)

    async def _arrive(self, silent: bool = False) -> None:
        self._process.require_alive()
        await self._bank.world.travel()
        self._process.require_alive()
        if silent or self._bank.world.is_lost():
            raise ProviderSilent("the provider did not answer")

    async def _answer(self, payment: UUID, silent: bool = False) -> Answer:
        if silent or self._bank.world.is_lost():
            self._bank.world.note("the provider acted and did not answer")
            raise ProviderSilent("the provider did not answer")
        await asyncio.sleep(0)
        found = self._bank.charges.get(payment)
        if found is None:
            return Answer(verdict=Verdict.UNKNOWN)
        return Answer(
            verdict=Verdict(found["state"]), amount=found["amount"], currency=found["currency"], reference=str(payment)
        )
