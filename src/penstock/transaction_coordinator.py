"""The transactions this broker coordinates: gives the rules of `transactions` a clock and the store.

Called by `api/transactions`, `api/producers` and the background sweep. Nothing is kept in memory: a record is read, the
rule decides, and the successor is written only if the record is still the same, so requests that cross each other and
coordinators that come and go are all sorted out in the store. The outcome of a transaction is stored before the first
marker is written; after that anybody who coordinates the id can only finish it in the same way.
"""

from collections.abc import Callable, Sequence

import structlog
from kio.schema.errors import ErrorCode

import respline
from penstock import transactions
from penstock.crash_points import crash_point
from penstock.group_members import Claim, heartbeat
from penstock.groups import Groups, Held
from penstock.store.log import Log
from penstock.store.offsets import Offset, Position
from penstock.store.producer_ids import ProducerIds
from penstock.store.topics import Topics
from penstock.store.transactions import Stored, TransactionStore, Unwritten
from penstock.transactions import PREPARED, Partition, Producer, State, Transaction

log = structlog.get_logger("penstock.transactions")
ATTEMPTS = 10
# A prepared transaction that is not finished by then has lost the request that was finishing it.
PATIENCE_MS = 1_000
Rule = Callable[[Transaction | None], Transaction | ErrorCode]


class TransactionCoordinator:
    def __init__(
        self,
        groups: Groups,
        store: TransactionStore,
        producer_ids: ProducerIds,
        topics: Topics,
        logs: Log,
        node_id: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._groups = groups  # groups and transactional ids share the coordinator slots
        self._store = store
        self._producer_ids = producer_ids
        self._topics = topics
        self._logs = logs
        self._node_id = node_id
        self._now_ms = now_ms

    async def init_producer(self, name: str, timeout_ms: int, expected: Producer) -> Producer | ErrorCode:
        """Fence the instance before, abort what it left open, and give the new one its id and epoch."""
        if code := transactions.init_refusal(timeout_ms, expected):
            return code
        held = await self._groups.coordinated(name)
        if isinstance(held, ErrorCode):
            return held
        fresh_id = await self._producer_ids.next()

        def rule(known: Transaction | None) -> Transaction | ErrorCode:
            return transactions.initialised(known, timeout_ms, expected, fresh_id, self._now_ms())

        for _ in range(ATTEMPTS):
            stored = await self._changed(held, name, rule)
            if isinstance(stored, ErrorCode):
                return stored
            if stored.transaction.state is State.EMPTY:
                return Producer(stored.transaction.producer_id, stored.transaction.epoch)
            crash_point("after_fence")
            await self._finish(held, name, stored)
        return ErrorCode.concurrent_transactions

    async def add_partitions(self, name: str, producer: Producer, partitions: Sequence[Partition]) -> list[ErrorCode]:
        """One code for each partition; they become part of the transaction together or not at all."""

        def rule(known: Transaction | None) -> Transaction | ErrorCode:
            return transactions.with_partitions(known, producer, tuple(partitions), self._now_ms())

        stored = await self._changed(await self._groups.coordinated(name), name, rule)
        if isinstance(stored, ErrorCode):
            return [stored] * len(partitions)
        crash_point("after_begin")
        codes = await self._store.enrol(stored.transaction, partitions, self._now_ms())
        crash_point("after_enrol")
        return codes

    async def add_group(self, name: str, producer: Producer, group: str) -> ErrorCode:
        def rule(known: Transaction | None) -> Transaction | ErrorCode:
            return transactions.with_group(known, producer, group, self._now_ms())

        stored = await self._changed(await self._groups.coordinated(name), name, rule)
        if isinstance(stored, ErrorCode):
            return stored
        return await self._store.enrol_group(stored.transaction, group, self._now_ms())

    async def keep_offsets(
        self, group: str, claim: Claim, producer: Producer, offsets: dict[Position, Offset]
    ) -> ErrorCode:
        """Asked of the coordinator of the group, not of the transaction."""
        held = await self._groups.coordinated(group)
        if isinstance(held, ErrorCode):
            return held
        if code := self._stranger(held, group, claim):
            return code
        if not offsets:
            return ErrorCode.none
        code = await self._store.keep_offsets(group, producer, offsets, held.epoch)
        if code is ErrorCode.not_coordinator:
            self._groups.lost(held)
        elif code is ErrorCode.none:
            crash_point("after_pending")
            self._groups.committed(held, group)
        return code

    async def end(self, name: str, producer: Producer, commit: bool) -> ErrorCode:
        """Decide the outcome and carry it out. Success means decided: what is left undone is done by the sweep."""

        def rule(known: Transaction | None) -> Transaction | ErrorCode:
            return transactions.ended(known, producer, commit, self._now_ms())

        held = await self._groups.coordinated(name)
        stored = await self._changed(held, name, rule)
        if isinstance(held, ErrorCode) or isinstance(stored, ErrorCode):
            return stored if isinstance(stored, ErrorCode) else ErrorCode.not_coordinator
        if stored.transaction.state in PREPARED:
            crash_point("after_prepare")
            try:
                await self._finish(held, name, stored)
            except respline.ResplineError as error:
                log.warning("a decided transaction is not finished", transactional_id=name, error=str(error))
            crash_point("after_complete")
        return ErrorCode.none

    async def waiting_offsets(self, groups: Sequence[str]) -> list[set[Position]]:
        return await self._store.waiting(groups)

    async def described(self, names: Sequence[str]) -> list[Transaction | ErrorCode]:
        found: list[Transaction | ErrorCode] = []
        for name, stored in zip(names, await self._store.load(names), strict=True):
            held = await self._groups.coordinated(name)
            missing = held if isinstance(held, ErrorCode) else ErrorCode.transactional_id_not_found
            found.append(stored.transaction if stored and isinstance(held, Held) else missing)
        return found

    async def listed(self) -> list[tuple[str, Transaction]]:
        """Every transactional id of the slots we hold."""
        names = await self._store.names([held.slot for held in self._groups.in_memory()])
        rows = zip(names, await self._store.load(names), strict=True)
        return [(name, stored.transaction) for name, stored in rows if stored]

    async def sweep(self) -> None:
        """Abort what is too old, finish what a crash left prepared, forget ids nobody has used for a week."""
        slots = [held.slot for held in self._groups.in_memory()]
        if not slots:
            return
        names = await self._store.due(slots, self._now_ms())
        for name, stored in zip(names, await self._store.load(names), strict=True):
            held = await self._groups.coordinated(name)
            if stored and isinstance(held, Held):
                await self._look_at(held, name, stored)

    async def _look_at(self, held: Held, name: str, stored: Stored) -> None:
        now_ms = self._now_ms()
        if transactions.due_ms(stored.transaction, PATIENCE_MS) > now_ms:
            return
        if stored.transaction.state is State.ONGOING:
            log.info("a transaction timed out", transactional_id=name, producer_id=stored.transaction.producer_id)
            aborted = await self._written(held, name, stored, transactions.fenced(stored.transaction, now_ms))
            if isinstance(aborted, Stored):
                await self._finish(held, name, aborted)
        elif stored.transaction.state in PREPARED:
            await self._finish(held, name, stored)
        else:
            await self._store.forget(name, stored, held.epoch)

    async def _changed(self, held: Held | ErrorCode, name: str, rule: Rule) -> Stored | ErrorCode:
        """Apply a rule to the record; it is asked again when somebody else was faster."""
        if isinstance(held, ErrorCode):
            return held
        for _ in range(ATTEMPTS):
            [seen] = await self._store.load([name])
            new = rule(seen.transaction if seen else None)
            if isinstance(new, ErrorCode):
                return new
            if seen and new is seen.transaction:
                return seen
            stored = await self._written(held, name, seen, new)
            if stored is not None:
                return stored
        return ErrorCode.concurrent_transactions

    async def _written(self, held: Held, name: str, seen: Stored | None, new: Transaction) -> Stored | ErrorCode | None:
        """None if the record is not what the caller saw."""
        written = await self._store.write(name, seen, new, held.epoch, transactions.due_ms(new, PATIENCE_MS))
        match written:
            case Unwritten.RACED:
                return None
            case Unwritten.UNSAFE:
                return ErrorCode.coordinator_not_available
            case Unwritten.FENCED:
                self._groups.lost(held)
                return ErrorCode.not_coordinator
            case _:
                return written

    async def _finish(self, held: Held, name: str, stored: Stored) -> None:
        """Carry out what a prepared record has decided. Every step may be repeated, here or by another broker."""
        known = stored.transaction
        announce = (self._logs.announce_on, self._node_id)
        async for topic_name, topic_id, number in self._store.mark(known, held.epoch, announce, self._now_ms()):
            topic = self._topics.by_name.get(topic_name)
            if topic and topic.id_text == topic_id:
                self._logs.touched(topic, number)
        crash_point("after_markers")
        await self._store.end_groups(known, self._now_ms())
        crash_point("after_offsets")
        await self._written(held, name, stored, transactions.completed(known, self._now_ms()))

    def _stranger(self, held: Held, group: str, claim: Claim) -> ErrorCode:
        """Old clients do not say which member they are; those that do must be one, of this generation."""
        if claim.generation < 0 and not claim.member_id and claim.instance_id is None:
            return ErrorCode.none
        known = held.groups.get(group)
        if known is None:
            return ErrorCode.illegal_generation
        code = heartbeat(known, claim, self._groups.clock_ms())
        return ErrorCode.none if code is ErrorCode.rebalance_in_progress else code
