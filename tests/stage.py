"""A whole product for tests that look from outside: database, store keys and log of its own, `aisle serve` in front.

One stage a module, several events on it. People on it talk HTTP; what they caused is then looked at in PostgreSQL and
in the store. A stage can lose its process, its log or its store, and get them back.
"""

import asyncio
import itertools
import os
import re
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg
import msgspec

from aisle.accounts.account import Role
from aisle.accounts.tokens import Kind, Signer, keys_from_setting
from aisle.booking.pay import Payer
from aisle.booking.refund import refund as give_back
from aisle.config import Config
from aisle.embedded.server import free_port
from aisle.embedded.supervisor import Program, Supervisor
from aisle.errors import Problem
from aisle.metrics import Metrics
from aisle.migrate import migrate
from aisle.payment.payment import PaymentState
from aisle.store import Store, open_store
from aisle.ticket_facts import verify_against_tickets
from tests import children
from tests.apache_kafka import answers, apache_kafka
from tests.conftest import Servers
from tests.invariants import assert_event_consistent, unsettled
from tests.payment.till import till_on
from tests.people import Person, expect, new_key
from tests.running import PATIENCE_SECONDS, as_environment, clean_environment, status_of, stop, wait_until

ALL_ROLES = "api,booking,reservation,ticketing"

Value = TypeVar("Value")
_numbers = itertools.count()


class Stage:
    def __init__(self, config: Config, folder: Path, log: Program | None) -> None:
        self.config = config
        self.log = log
        self.address = f"http://{config.host}:{config.port}"
        self.output = folder / "serve.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.people = ExitStack()
        self._signer = Signer(keys_from_setting(config.secret_key))

    def start(self, roles: str = ALL_ROLES, *, crash_at: str = "") -> None:
        with self.output.open("ab") as output:
            self.process = children.start(
                [sys.executable, "-m", "aisle", "serve", "--roles", roles],
                env=clean_environment({**as_environment(self.config), **({"CRASH_AT": crash_at} if crash_at else {})}),
                stdout=output,
                stderr=output,
            )
        wait_until(lambda: status_of(f"{self.address}/livez") == 200, self.said(), self.process)

    def stop(self) -> None:
        if self.process is not None:
            stop(self.process)

    def wait_for_death(self) -> int:
        assert self.process is not None
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the process lives on\n{self.said()}") from None

    def said(self) -> str:
        return f"{self.address} answers; it said:\n{self.output.read_text()[-3000:]}"

    @contextmanager
    def person(self, role: str) -> Iterator[Person]:
        """Somebody who has registered over HTTP and has a token."""
        with Person(self.address) as person:
            person.register(role)
            yield person

    async def tokens(self, count: int, role: Role = Role.BUYER) -> list[str]:
        """Tokens of so many new accounts, written behind the API's back: a password check costs 140 ms of a core."""
        now = datetime.now(UTC)
        expires_at = now + timedelta(days=1)
        issued = [self._signer.issue(Kind.BEARER, int(expires_at.timestamp() * 1000)) for _ in range(count)]
        ids = [uuid4() for _ in range(count)]
        accounts = [(id, f"{id.hex}@example.com", role.value, "$argon2id$none", now) for id in ids]
        tokens = [
            (uuid4(), id, "test", one.reference.digest, now, expires_at) for id, one in zip(ids, issued, strict=True)
        ]
        connection = await asyncpg.connect(self.config.database_url)
        try:
            await connection.copy_records_to_table("accounts", schema_name="accounts", records=accounts)
            await connection.copy_records_to_table("tokens", schema_name="accounts", records=tokens)
        finally:
            await connection.close()
        return [one.text for one in issued]

    @asynccontextmanager
    async def behind(self) -> AsyncIterator[tuple[asyncpg.Pool, Store]]:
        """PostgreSQL and the store as they are, past the product."""
        async with (
            asyncpg.create_pool(self.config.database_url, min_size=1, max_size=20) as database,
            open_store(self.config, Metrics()) as store,
        ):
            yield database, store

    def look(self, see: Callable[[asyncpg.Pool, Store], Awaitable[Value]]) -> Value:
        """Run `see` behind the product, for tests that are not async themselves."""

        async def run() -> Value:
            async with self.behind() as (database, store):
                return await see(database, store)

        return asyncio.run(run())

    def fetch(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        async def run() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(self.config.database_url)
            try:
                return list(await connection.fetch(sql, *arguments))
            finally:
                await connection.close()

        return asyncio.run(run())

    def settle(self, event: int) -> None:
        """Wait until everything on its way has arrived, then hold the event against the invariants."""
        self.look(lambda database, store: settle(database, store, [event]))

    def staff(self, role: Role = Role.DOOR) -> Person:
        """Somebody nobody can register as, written behind the API's back."""
        person = self.people.enter_context(Person(self.address))
        [person.token] = asyncio.run(self.tokens(1, role))
        person.id = expect(200, person.get("/me"))["id"]
        return person

    def paid(self, booking: UUID | str) -> None:
        """The booking's money has come."""
        self.look(partial(paid, booking=UUID(str(booking))))

    def refund(self, booking: UUID | str) -> bool:
        """The buyer wants the money back; false if somebody has entered with one of the tickets."""
        return self.look(partial(refund, booking=UUID(str(booking))))

    def overdue(self, booking: UUID | str) -> None:
        """The payment window of a booking closes now."""
        self.fetch("update booking.bookings set deadline = now() where id = $1", UUID(str(booking)))


async def paid(database: asyncpg.Pool, store: Store, *, booking: UUID) -> None:
    """Paid for as over HTTP, without the buyer's token."""
    buyer = await database.fetchval("select buyer from booking.bookings where id = $1", booking)
    payer = Payer(till_on(database))
    payment = await payer.pay(booking, buyer, method="card_ok", key=new_key())
    # Where a process was killed a moment ago the tickets take longer than a buyer waits; the resolver goes on.
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while payment.state is not PaymentState.CAPTURED:
        assert asyncio.get_running_loop().time() < deadline, payment
        await asyncio.sleep(0.05)
        payment = await payer.reread(payment)


async def refund(database: asyncpg.Pool, store: Store, *, booking: UUID) -> bool:
    try:
        await give_back(till_on(database), booking, seats=None, why="refunded", key=new_key())
    except Problem as refusal:
        if refusal.code != "already_in":
            raise
        return False
    return True


async def settle(database: asyncpg.Pool, store: Store, events: Sequence[int]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while found := await unsettled(database, store, events):
        assert asyncio.get_running_loop().time() < deadline, f"never settled: {found}"
        await asyncio.sleep(0.05)
    for event in events:
        await assert_event_consistent(database, store, event)


async def require_no_drift(database: asyncpg.Pool, store: Store, *, patience_s: float = PATIENCE_SECONDS) -> None:
    """What `aisle verify` says of all events there are, once what is on its way has arrived."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while not (report := await verify_against_tickets(database, store)).clean:
        assert asyncio.get_running_loop().time() < deadline, "drift: " + "\n".join(map(str, report.findings))
        await asyncio.sleep(0.1)


@contextmanager
def prepared_stage(
    servers: Servers, folder: Path, *, kind: str = "penstock", store_url: str = "", **settings: Any
) -> Iterator[Stage]:
    """Everything but the process, which the test starts, arms and kills as it likes."""
    name = f"stage_{os.getpid()}_{next(_numbers)}_{secrets.token_hex(3)}"
    with ExitStack() as stack:
        database_url = stack.enter_context(_database(servers.database_url, name))
        kafka, program = stack.enter_context(_log(kind, folder / "log", servers.store_url, name))
        config = Config(
            database_url=database_url, store_url=store_url or servers.store_url, store_prefix=f"{name}:"[-32:],
            kafka=kafka, port=free_port(), secret_key=secrets.token_hex(32), logins_per_address=1_000_000,
            registrations_per_address=1_000_000,
        )  # fmt: skip
        config = msgspec.structs.replace(config, **settings)
        asyncio.run(migrate(config))
        stage = Stage(config, folder, program)
        stack.callback(stage.stop)
        stack.enter_context(stage.people)
        yield stage


@contextmanager
def running_stage(servers: Servers, folder: Path, **options: Any) -> Iterator[Stage]:
    """A stage with its process. When its module is over, store and tickets have to agree on every event of it."""
    with prepared_stage(servers, folder, **options) as stage:
        stage.start()
        yield stage
        stage.look(require_no_drift)
        require_clean_log(stage.output.read_text(errors="replace"))


# An e-mail address, the text of a session or token (`accounts/tokens.py`), a password's hash, a key of Stripe.
NEVER_LOGGED = re.compile(
    r"[\w.+-]+@example\.(?:com|org)|\b[st]\.[0-9a-f]{8}\.[\w-]{32}\.[\w-]{43}|\$argon2id\$|\bsk_(?:live|test)_\w+"
)
CARD_LIKE = re.compile(r"(?<![\w.-])[3-6](?:[ -]?\d){13,15}(?![\w.-])")


def require_clean_log(text: str) -> None:
    """Whatever a module did with its stage: nothing of a person and no secret is in the log of it."""
    found = NEVER_LOGGED.search(text)
    assert found is None, f"in the log: {text[max(0, found.start() - 200) : found.end()]}"
    for number in CARD_LIKE.findall(text):
        assert not _is_card(re.sub(r"\D", "", number)), f"in the log: {number}"


def _is_card(digits: str) -> bool:
    """Luhn's sum, as on every card."""
    doubled = [int(d) * (2 if place % 2 else 1) for place, d in enumerate(reversed(digits))]
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


@contextmanager
def _database(url: str, name: str) -> Iterator[str]:
    async def execute(statement: str) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(statement)
        await connection.close()

    asyncio.run(execute(f'create database "{name}"'))
    try:
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
    finally:
        asyncio.run(execute(f'drop database "{name}" with (force)'))


@contextmanager
def _log(kind: str, folder: Path, store_url: str, keyspace: str) -> Iterator[tuple[str, Program | None]]:
    if kind == "kafka":
        with apache_kafka(folder) as address:
            yield address, None
        return
    address = f"127.0.0.1:{free_port()}"
    # Nobody else will join these groups: waiting for more members would only make every start three seconds longer.
    command = [sys.executable, "-m", "penstock", "serve", "--listen", address, "--keyspace", keyspace]
    command += ["--group-initial-delay", "0"]
    with Supervisor(folder, log=lambda line: None) as supervisor:
        env = {"PENSTOCK_STORE": store_url}
        yield address, supervisor.start_program("penstock", command, env, ready=lambda: answers(address))
