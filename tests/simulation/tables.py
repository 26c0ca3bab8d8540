"""PostgreSQL in memory, as far as the product needs it: rows with versions and locks, READ COMMITTED, constraints.

A statement of the product is found by its text and done by a stand-in of ours (`statements_*`). What makes it a
database is here: a row that a transaction has changed is seen by others only after the commit, whoever wants to change
it waits, and looks again at what it has become. `test_conformance` holds it against a real server.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

Values = dict[str, Any]
Test = Callable[[Values], bool]


class Row:
    """`now` is what everybody sees, `next` what `owner` has made of it. None is a row that is not there.

    `sharers` want it to stay as it is.
    """

    __slots__ = ("next", "now", "owner", "sharers")

    def __init__(self) -> None:
        self.now: Values | None = None
        self.next: Values | None = None
        self.owner: Transaction | None = None
        self.sharers: dict[Transaction, None] | None = None


class Waits(Exception):
    """The statement has to wait for this transaction, and goes on after it."""

    def __init__(self, other: "Transaction") -> None:
        self.other = other


class Table:
    def __init__(self, name: str, key: tuple[str, ...], defaults: Values, check: Test, unique: Callable[..., Any]):
        self.name, self.key, self.defaults, self.check, self.unique = name, key, defaults, check, unique
        self.rows: dict[Hashable, Row] = {}
        # Told of every change of a row as it is committed.
        self.watch: Callable[[Values | None, Values | None], None] | None = None

    def committed(self) -> list[Values]:
        return [row.now for row in self.rows.values() if row.now is not None]

    def put(self, values: Values) -> None:
        """As it was before the history began."""
        row = self.rows[self._key(values)] = Row()
        row.now = {**self.defaults, **values}

    def _key(self, values: Values) -> Hashable:
        return tuple(values[name] for name in self.key)


class Transaction:
    def __init__(self, database: "Tables") -> None:
        self._database = database
        self._touched: list[tuple[Table, Hashable, Row]] = []
        self._shared: list[Row] = []
        self.ended: asyncio.Future[None] | None = None
        self.waits_for: Transaction | None = None
        # What one statement has read when it began: it keeps that while it waits for rows.
        self.read: dict[str, Any] = {}

    def see(self, row: Row) -> Values | None:
        return row.next if row.owner is self else row.now

    def all(self, table: str) -> Iterator[Values]:
        for row in self._database[table].rows.values():
            values = row.next if row.owner is self else row.now
            if values is not None:
                yield values

    def get(self, table: str, *key: Hashable) -> Values | None:
        row = self._database[table].rows.get(key)
        return None if row is None else self.see(row)

    def lock(self, table: str, keys: Iterable[Hashable], test: Test, *, skip_locked: bool = False) -> list[Values]:
        """Rows that pass the test now and pass it still when they are ours; what this returns may be changed."""
        home = self._database[table]
        name = f"lock:{table}"
        if name not in self.read:
            found = [(key, home.rows[key]) for key in keys if key in home.rows]
            self.read[name] = [(k, r) for k, r in found if (seen := self.see(r)) is not None and test(seen)]
        ours = []
        for key, row in self.read[name]:
            if row.owner is not self:
                if row.owner is not None:
                    if skip_locked:
                        continue
                    raise Waits(row.owner)
                for sharer in row.sharers or ():
                    if sharer is not self:
                        raise Waits(sharer)
                row.owner, row.next = self, dict(row.now) if row.now is not None else None
                self._touched.append((home, key, row))
            if row.next is not None and test(row.next):
                ours.append(row.next)
        return ours

    def share(self, table: str, keys: Iterable[Hashable]) -> list[Values]:
        """Rows as they are when nobody is changing them any more, and as they stay until this transaction ends."""
        home = self._database[table]
        rows = [home.rows[key] for key in keys if key in home.rows]
        for row in rows:
            if row.owner not in (None, self):
                raise Waits(row.owner)
            if row.sharers is None:
                row.sharers = {}
            if self not in row.sharers:
                row.sharers[self] = None
                self._shared.append(row)
        return [values for row in rows if (values := self.see(row)) is not None]

    def scan(self, table: str, test: Test, *, order: Any = None, limit: int | None = None, skip_locked: bool = False):
        """`lock` for a statement that looks through the whole table."""
        home = self._database[table]
        keys: list[Hashable] = [key for key, row in home.rows.items() if (v := self.see(row)) is not None and test(v)]
        if order is not None:
            keys.sort(key=lambda key: order(self.see(home.rows[key]) or {}))
        if skip_locked:
            keys = [key for key in keys if home.rows[key].owner in (None, self)]
        return self.lock(table, keys[:limit], test, skip_locked=skip_locked)

    def insert(self, table: str, values: Values, *, or_nothing: bool = False) -> Values | None:
        """The new row; None if a unique constraint is in the way and `or_nothing` allows that."""
        home = self._database[table]
        full = {**home.defaults, **values}
        key = home._key(full)
        for other_key, other in home.rows.items():
            against = other.next if other.owner is not None else other.now
            if against is None or not (other_key == key or home.unique(against, full)):
                continue
            if other.owner not in (None, self):
                raise Waits(other.owner)
            if or_nothing:
                return None
            raise asyncpg.UniqueViolationError(f"duplicate key in {table}")
        self._check(home, full)
        row = home.rows.setdefault(key, Row())
        if row.owner is not self:
            row.owner = self
            self._touched.append((home, key, row))
        row.next = full
        return full

    def update(self, table: str, row: Values, **changes: Any) -> Values:
        home = self._database[table]
        changed = {**row, **changes}
        self._check(home, changed)
        if home.unique is not nothing_else:
            key = home._key(changed)
            for other_key, other in home.rows.items():
                against = other.next if other.owner is not None else other.now
                if other_key != key and against is not None and home.unique(against, changed):
                    if other.owner not in (None, self):
                        raise Waits(other.owner)
                    raise asyncpg.UniqueViolationError(f"duplicate key in {table}")
        row.update(changes)
        return row

    def delete(self, table: str, rows: Iterable[Values]) -> None:
        home = self._database[table]
        for values in rows:
            home.rows[home._key(values)].next = None

    def end(self, *, commit: bool) -> None:
        for home, key, row in self._touched:
            if row.owner is not self:
                continue
            if commit:
                if home.watch is not None:
                    home.watch(row.now, row.next)
                row.now = row.next
            row.owner = row.next = None
            if row.now is None:
                del home.rows[key]
        self._touched.clear()
        for row in self._shared:
            assert row.sharers is not None
            row.sharers.pop(self, None)
        self._shared.clear()
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(None)

    def _check(self, home: Table, row: Values) -> None:
        if not home.check(row):
            raise asyncpg.CheckViolationError(f"{home.name} refuses {row}")


def nothing_else(_one: Values, _other: Values) -> bool:
    """There is no unique constraint but the primary key."""
    return False


class Tables(dict[str, Table]):
    """One database. `stand_ins` do the product's statements, found by a piece of text that only one of them has."""

    def __init__(self) -> None:
        super().__init__()
        self.serial = 0

    def add(
        self, name: str, *key: str, check: Test = lambda _: True, unique: Any = nothing_else, **defaults: Any
    ) -> None:
        self[name] = Table(name, key, defaults, check, unique)

    def next_id(self) -> int:
        self.serial += 1
        return self.serial


StandIn = Callable[..., Any]
STAND_INS: dict[str, StandIn] = {}
_found: dict[str, StandIn] = {}


def stands_for(*pieces: str) -> Callable[[StandIn], StandIn]:
    """Marks the stand-in of the statement that has this piece of text, however it is wrapped."""

    def mark(stand_in: StandIn) -> StandIn:
        STAND_INS.update({" ".join(piece.split()): stand_in for piece in pieces})
        return stand_in

    return mark


def replace_stand_in(old: str, other: StandIn) -> None:
    """Another one for the statement with this piece of text: for defects that are put in on purpose."""
    STAND_INS[" ".join(old.split())] = other
    _found.clear()


def stand_in_of(statement: str) -> StandIn:
    found = _found.get(statement)
    if found is None:
        text = " ".join(statement.split())
        fitting = {STAND_INS[piece] for piece in STAND_INS if piece in text}
        if len(fitting) != 1:
            raise LookupError(f"{len(fitting)} stand-ins for this statement: {text}")
        found = _found[statement] = fitting.pop()
    return found


class Record(dict[str, Any]):
    """A row of an answer: like asyncpg's, it is read by name, and iterates over its values."""

    def __iter__(self) -> Any:
        return iter(self.values())


class Connection:
    """What the product is given instead of asyncpg's. `line` says how statements travel and whether they arrive."""

    def __init__(self, tables: Tables, line: Any) -> None:
        self._tables = tables
        self._line = line
        self._transaction: Transaction | None = None

    async def fetch(self, statement: str, *args: Any) -> list[Values]:
        stand_in = stand_in_of(statement)
        await self._line.travel()
        alone = self._transaction is None
        transaction = self._transaction or self._line.begin(self._tables)
        try:
            rows = await self._do(transaction, stand_in, args)
        except BaseException:
            if alone:
                transaction.end(commit=False)
            raise
        if alone:
            self._line.commit(transaction)
        return [Record(row) for row in rows or ()]

    async def _do(self, transaction: Transaction, stand_in: StandIn, args: tuple[Any, ...]) -> Any:
        transaction.read = {}
        while True:
            try:
                return stand_in(transaction, *args)
            except Waits as waits:
                await self._wait(transaction, waits.other)

    async def _wait(self, transaction: Transaction, other: Transaction) -> None:
        self._line.note("waited for a row")
        transaction.waits_for = other
        seen = other
        while seen.waits_for is not None:
            seen = seen.waits_for
            if seen is transaction:
                transaction.waits_for = None
                raise asyncpg.DeadlockDetectedError("deadlock detected")
        if other.ended is None:
            other.ended = asyncio.get_running_loop().create_future()
        try:
            await asyncio.shield(other.ended)
        finally:
            transaction.waits_for = None

    async def fetchrow(self, statement: str, *args: Any) -> Values | None:
        rows = await self.fetch(statement, *args)
        return rows[0] if rows else None

    async def fetchval(self, statement: str, *args: Any) -> Any:
        rows = await self.fetch(statement, *args)
        return next(iter(rows[0].values())) if rows else None

    async def execute(self, statement: str, *args: Any, timeout: float | None = None) -> str:
        await self.fetch(statement, *args)
        return ""

    async def executemany(self, statement: str, many: Iterable[tuple[Any, ...]]) -> None:
        for args in many:
            await self.fetch(statement, *args)

    @asynccontextmanager
    async def transaction(self, **_options: Any):
        if self._transaction is not None:
            # A block inside a block is a savepoint. The product never catches what an inner block raises and goes on.
            yield
            return
        self._transaction = self._line.begin(self._tables)
        try:
            yield
            await self._line.travel()
        except BaseException:
            self._transaction.end(commit=False)
            raise
        else:
            self._line.commit(self._transaction)
        finally:
            self._transaction = None


class Pool:
    """asyncpg's pool, without a limit."""

    def __init__(self, tables: Tables, line: Any) -> None:
        self.tables = tables
        self._line = line

    @asynccontextmanager
    async def acquire(self):
        yield Connection(self.tables, self._line)

    async def fetch(self, statement: str, *args: Any) -> list[Values]:
        return await Connection(self.tables, self._line).fetch(statement, *args)

    async def fetchval(self, statement: str, *args: Any) -> Any:
        return await Connection(self.tables, self._line).fetchval(statement, *args)

    async def execute(self, statement: str, *args: Any) -> str:
        return await Connection(self.tables, self._line).execute(statement, *args)
