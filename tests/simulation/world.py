"""One history's world: its clock, its chance, its servers and the lines to them, on which anything may get lost.

Time is virtual: the loop jumps to the next moment at which something happens. Chance comes from one seeded generator
and decides how long everything travels, so it decides who is first: the scheduler is the delays.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import asyncpg

from aisle.errors import StoreOutcomeUnknown, StoreScriptFailed, StoreUnavailable
from aisle.scripts import Script
from respline import ServerError
from tests.simulation.hot_store import HotStore
from tests.simulation.statements_booking import add_booking_tables
from tests.simulation.statements_payment import add_payment_tables
from tests.simulation.statements_ticketing import add_ticketing_tables
from tests.simulation.tables import Pool, Tables, Transaction

BEGINNING = datetime(2026, 11, 15, 20, 0, tzinfo=UTC)
LOST = 0.004  # how often a call, or the answer to it, gets lost while the world is not calm
LONG = 0.004  # how often something takes seconds

process_of: ContextVar[Any] = ContextVar("process_of", default=None)


class Killed(BaseException):
    """What ends the tasks of a process that was killed. Nobody may catch it and go on."""


class _NoSelector:
    """Nothing is ever ready: the loop would wait for its next timer, so that moment is now."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits for somebody: nothing will ever happen again")
        self._loop.virtual += timeout
        return []

    def close(self) -> None: ...


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual = 0.0
        super().__init__(_NoSelector(self))  # type: ignore[arg-type]
        self.set_task_factory(_task_of_process)
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        return self.virtual

    def _make_self_pipe(self) -> None: ...

    def _close_self_pipe(self) -> None: ...

    def _write_to_self(self) -> None: ...


def _task_of_process(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """A task belongs to the process that started it, and dies with it."""
    task = asyncio.Task(coroutine, loop=loop, **options)
    process = process_of.get()
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda done: process.tasks.pop(done, None))
    return task


class World:
    def __init__(self, seed: int, script_of: Callable[[Script], Script] = lambda script: script) -> None:
        self.seed = seed
        # The product's scripts, or what a defect has made of them.
        self.script_of = script_of
        self.chance = random.Random(seed)
        self.loop = VirtualLoop()
        self.calm = False
        # Kinds of trouble that are left out, to see whether a violation needs them. Chance is drawn all the same.
        self.without: frozenset[str] = frozenset()
        self.sometimes: Counter[str] = Counter()
        self.trace: list[str] = []
        self.violations: list[str] = []
        # The store goes by its own clock: fast, slow, or right.
        self.skew = self.chance.choice((0.0, 0.0, 0.0, -3.0, 3.0, -600.0, 600.0))
        self.hot = HotStore(lambda: BEGINNING.timestamp() + self.loop.virtual + self.skew)
        self.run_id = "run-1"
        self.tables = Tables()
        add_booking_tables(self.tables)
        add_ticketing_tables(self.tables)
        add_payment_tables(self.tables)

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=self.loop.virtual)

    def note(self, what: str) -> None:
        self.sometimes[what] += 1

    def tell(self, text: str) -> None:
        self.trace.append(f"{self.loop.virtual:9.3f}  {text}")

    async def travel(self) -> None:
        r = self.chance.random()
        if r < 0.3:
            return
        if r > 1 - LONG and not self.calm and "pauses" not in self.without:
            self.note("something took seconds")
            await asyncio.sleep(self.chance.uniform(1, 12))
        else:
            await asyncio.sleep(r * r * 0.02)

    def is_lost(self) -> bool:
        return not self.calm and self.chance.random() < LOST and "losses" not in self.without


class DatabaseLine:
    """The connection of one process to PostgreSQL."""

    def __init__(self, world: World, process: Any) -> None:
        self._world, self._process = world, process

    def note(self, what: str) -> None:
        self._world.note(what)

    async def travel(self) -> None:
        self._process.require_alive()
        await self._world.travel()
        self._process.require_alive()
        if self._world.is_lost():
            self._world.note("a database connection broke")
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

    def begin(self, tables: Tables) -> Transaction:
        transaction = Transaction(tables)
        self._process.transactions[transaction] = None
        return transaction

    def commit(self, transaction: Transaction) -> None:
        self._process.transactions.pop(transaction, None)
        transaction.end(commit=True)
        if self._world.is_lost():
            self._world.note("the answer to a commit got lost")
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")


class StoreLine:
    """`aisle.store.Store` of one process, on the simulated server."""

    prefix = ""

    def __init__(self, world: World, process: Any) -> None:
        self._world, self._process = world, process

    @property
    def nodes(self) -> list[Any]:
        """A server that was replaced has another run id, and every connection to it is a new one."""
        run = self._world.run_id
        count = SimpleNamespace(reconnects=int(run.partition("-")[2]))
        return [SimpleNamespace(counters=count, server_info={"run_id": run})]

    async def call(self, *command: Any) -> Any:
        await self._arrive()
        reply = self._world.hot.command(*command)
        await self._answer()
        return reply

    async def call_many(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        await self._arrive()
        replies = [self._world.hot.command(*command) for command in commands]
        await self._answer()
        return replies

    async def call_on(self, _node: Any, *command: Any) -> Any:
        return await self.call(*command)

    async def run(self, script: Script, keys: Sequence[Any], args: Sequence[Any]) -> Any:
        [reply] = await self.run_many(script, [(keys, args)])
        if isinstance(reply, StoreScriptFailed):
            raise reply
        return reply

    async def run_many(self, script: Script, calls: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> list[Any]:
        await self._arrive()
        replies = [self._run(script, keys, args) for keys, args in calls]
        await self._answer()
        return replies

    def _run(self, script: Script, keys: Sequence[Any], args: Sequence[Any]) -> Any:
        try:
            return self._world.hot.run(self._world.script_of(script), keys, args)
        except ServerError as error:
            if error.code == "DRIFT":
                self._world.violations.append(f"{script.name}: {error}")
            return StoreScriptFailed(script.name, error.code, str(error))

    async def _arrive(self) -> None:
        self._process.require_alive()
        await self._world.travel()
        self._process.require_alive()
        if self._world.is_lost():
            self._world.note("a store call did not arrive")
            if self._world.chance.random() < 0.5:
                raise StoreUnavailable("not sent")
            raise StoreOutcomeUnknown("no answer")

    async def _answer(self) -> None:
        if self._world.is_lost():
            self._world.note("the answer of the store got lost")
            raise StoreOutcomeUnknown("no answer")


def pool_of(world: World, process: Any) -> Pool:
    return Pool(world.tables, DatabaseLine(world, process))
