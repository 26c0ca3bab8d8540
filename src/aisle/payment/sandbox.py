"""The built-in provider for trying things out: what happens is chosen by the test card. No money moves.

It keeps books of its own (`payment.sandbox_charges`), as a bank would, so a killed process can ask what became of a
payment, and tests can hold our ledger against it. `send` carries the webhooks of the cards that send some.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import msgspec

from aisle.group_commit import GroupCommit
from aisle.limits import PAY_BATCH_MAX, PAY_QUEUE_MAX
from aisle.payment.provider import Answer, Charge, Notice, NoticeRefused, ProviderSilent, Taken, Verdict
from aisle.payment.signature import check_signature, sign

SIGNATURE = "aisle-signature"
ACCOUNT = "sandbox"
RIGHT_PROOF = "000000"

CARDS = {
    "card_ok": "authorised, captured",
    "card_declined": "declined",
    "card_3ds": "wants a confirmation with the code 000000",
    "card_timeout": "no answer, and nothing was charged",
    "card_charge_timeout": "no answer, although it was authorised",
    "card_late": "undecided for a while, then authorised; a webhook says so",
    "card_duplicate": "authorised; the same webhook comes several times, and an older one last",
    "card_wrong_amount": "authorised for another amount than was asked for",
    "card_capture_fails": "authorised, but the money cannot be captured",
}
FIRST_STATE = {"card_declined": "declined", "card_3ds": "action", "card_late": "pending"}
SILENT = frozenset({"card_timeout", "card_charge_timeout"})

# A repeat of a charge finds the first one.
CHARGE = """
    insert into payment.sandbox_charges (payment, amount, currency, card, state, settles_at)
    select * from unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
    on conflict (payment) do nothing
"""
CAPTURE = """
    update payment.sandbox_charges set state = 'captured'
    where payment = any($1::uuid[]) and state = 'authorised' and card <> 'card_capture_fails'
"""
SHOW = "select * from payment.sandbox_charges where payment = any($1::uuid[])"

Send = Callable[[bytes, Mapping[str, str]], Awaitable[None]]


TAKEN = """
    select payment, amount - refunded as amount, currency, state = 'captured' as captured
    from payment.sandbox_charges where state in ('authorised', 'captured') and amount > refunded and settles_at >= $1
"""


class Sandbox:
    name = "sandbox"

    def __init__(
        self, database: asyncpg.Pool, *, clock: Callable[[], datetime], late_s: float = 5.0, secret: str = ""
    ) -> None:
        self._database = database
        self._clock = clock
        self._late = timedelta(seconds=late_s)
        self._secret = secret or secrets.token_hex(32)
        self._sending: set[asyncio.Task[None]] = set()
        # Set by the composition root once there is somebody to hear.
        self.send: Send | None = None
        self._charges: GroupCommit[Charge, Answer] = GroupCommit(
            self._charge, apart=lambda charge: charge.payment, batch_max=PAY_BATCH_MAX, queue_max=PAY_QUEUE_MAX
        )
        self._captures: GroupCommit[UUID, Answer] = GroupCommit(
            self._capture, apart=lambda payment: payment, batch_max=PAY_BATCH_MAX, queue_max=PAY_QUEUE_MAX
        )

    async def authorise(self, charge: Charge) -> Answer:
        if charge.method not in CARDS:
            return Answer(verdict=Verdict.DECLINED, reason="no such test card")
        if charge.method == "card_timeout":
            raise ProviderSilent("the provider did not answer")
        answer = await self._charges.submit(charge)
        if charge.method in SILENT:
            raise ProviderSilent("the provider did not answer")
        if charge.method == "card_late":
            self._later(self._late.total_seconds() + 0.05, [self._notice(charge.payment, "authorised")])
        if charge.method == "card_duplicate":
            notice = self._notice(charge.payment, "authorised")
            self._later(0.05, [notice, notice, notice, self._notice(charge.payment, "pending")])
        return answer

    async def confirm(self, payment: UUID, reference: str, proof: str) -> Answer:
        state = "authorised" if proof == RIGHT_PROOF else "declined"
        await self._database.execute(
            "update payment.sandbox_charges set state = $2 where payment = $1 and state = 'action'", payment, state
        )
        return await self.look(payment, reference, self._clock())

    async def look(self, payment: UUID, reference: str, since: datetime) -> Answer:
        async with self._database.acquire() as connection:
            return (await self._answers(connection, [payment]))[0]

    async def capture(self, payment: UUID, reference: str) -> Answer:
        return await self._captures.submit(payment)

    async def void(self, payment: UUID, reference: str) -> Answer:
        await self._database.execute(
            """update payment.sandbox_charges set state = 'voided'
               where payment = $1 and state in ('pending', 'action', 'authorised')""",
            payment,
        )
        return await self.look(payment, reference, self._clock())

    async def refund(self, refund: UUID, payment: UUID, reference: str, amount: int) -> bool:
        async with self._database.acquire() as connection, connection.transaction():
            new = await connection.fetchval(
                "insert into payment.sandbox_refunds values ($1, $2, $3) on conflict do nothing returning id",
                refund,
                payment,
                amount,
            )
            if new is None:
                return True
            given = await connection.fetchval(
                """update payment.sandbox_charges set refunded = refunded + $2
                   where payment = $1 and state = 'captured' and refunded + $2 <= amount returning payment""",
                payment,
                amount,
            )
            if given is None:
                raise ProviderSilent("the provider has no such money")
        return True

    async def taken_since(self, since: datetime) -> list[Taken]:
        rows = await self._database.fetch(TAKEN, since)
        return [Taken(reference=f"sandbox-{row['payment'].hex}", **row) for row in rows]

    def read_notice(self, body: bytes, headers: Mapping[str, str], now: datetime) -> Notice:
        check_signature(self._secret, headers.get(SIGNATURE, ""), body, now)
        try:
            told = msgspec.json.decode(body, type=_Told)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise NoticeRefused(400, "webhook_unreadable", "the body is not a notice of this provider") from None
        if told.account != ACCOUNT:
            raise NoticeRefused(403, "webhook_other_account", "the notice is for another account")
        return Notice(told.id, told.payment, told.kind)

    async def aclose(self) -> None:
        await self._charges.drain()
        await self._captures.drain()
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def _charge(self, charges: Sequence[Charge]) -> list[Answer]:
        now = self._clock()
        async with self._database.acquire() as connection:
            await connection.execute(
                CHARGE,
                [charge.payment for charge in charges],
                [charge.amount + (charge.method == "card_wrong_amount") for charge in charges],
                [charge.currency for charge in charges],
                [charge.method for charge in charges],
                [FIRST_STATE.get(charge.method, "authorised") for charge in charges],
                [now + self._late if charge.method == "card_late" else now for charge in charges],
            )
            return await self._answers(connection, [charge.payment for charge in charges])

    async def _capture(self, payments: Sequence[UUID]) -> list[Answer]:
        async with self._database.acquire() as connection:
            await connection.execute(CAPTURE, list(payments))
            answers = await self._answers(connection, payments)
        # A capture that did not take is a no: the promise cannot be redeemed any more.
        refused = Answer(verdict=Verdict.DECLINED, reason="the money could not be captured")
        return [refused if answer.verdict is Verdict.AUTHORISED else answer for answer in answers]

    async def _answers(self, connection: asyncpg.Connection, payments: Sequence[UUID]) -> list[Answer]:
        found = {row["payment"]: row for row in await connection.fetch(SHOW, list(payments))}
        late = [p for p, row in found.items() if row["state"] == "pending" and row["settles_at"] <= self._clock()]
        if late:
            await connection.execute(
                """update payment.sandbox_charges set state = 'authorised'
                   where payment = any($1::uuid[]) and state = 'pending'""",
                late,
            )
            return await self._answers(connection, payments)
        return [_answer(found[payment]) if payment in found else UNKNOWN for payment in payments]

    def _notice(self, payment: UUID, kind: str) -> bytes:
        return msgspec.json.encode(_Told(id=f"note_{uuid4().hex}", account=ACCOUNT, payment=payment, kind=kind))

    def _later(self, seconds: float, bodies: Sequence[bytes]) -> None:
        task = asyncio.create_task(self._tell(seconds, bodies))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _tell(self, seconds: float, bodies: Sequence[bytes]) -> None:
        await asyncio.sleep(seconds)
        if self.send is not None:
            send = self.send
            await asyncio.gather(*(send(body, self.signed(body)) for body in bodies), return_exceptions=True)

    def signed(self, body: bytes) -> dict[str, str]:
        """The headers of a webhook with this body, sent now."""
        return {SIGNATURE: sign(self._secret, body, self._clock())}


UNKNOWN = Answer(verdict=Verdict.UNKNOWN, reason="the provider knows of no such payment")


class _Told(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    account: str
    payment: UUID
    kind: str


def _answer(row: asyncpg.Record) -> Answer:
    return Answer(
        verdict=Verdict(row["state"]),
        amount=row["amount"],
        currency=row["currency"],
        reference=f"sandbox-{row['payment'].hex}",
        reason="the card was declined" if row["state"] == "declined" else "",
        action="confirm" if row["state"] == "action" else "",
    )
