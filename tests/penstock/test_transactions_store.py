"""The transaction scripts on a real store: what comes late, twice, or from a coordinator that lost its slot."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

import respline
from penstock import topic_config
from penstock.metrics import Metrics
from penstock.store.keys import Keys, PartitionKeys
from penstock.store.log import LOAD_ATTEMPTS, Append, Log, Read
from penstock.store.offsets import Offset, Position
from penstock.store.scripts import Call, Scripts
from penstock.store.topics import Topic, id_text
from penstock.store.transactions import Stored, TransactionStore, Unwritten
from penstock.store.txn_keys import TxnKeys
from penstock.transactions import Partition, Producer, State, Transaction, completed, ended, fenced, with_partitions
from penstock.waiters import Waiters
from penstock.wire import batch
from tests.penstock.batches import batch_of
from tests.penstock.conftest import StoreProcess

PID, NOW, QUIET = 7, 1_700_000_000_000, ("", 1)
TOPIC_ID = bytes(range(16))
PLACE = Partition("t", id_text(TOPIC_ID), 0)


class Bench:
    """One partition, one group and one transactional id in a keyspace of their own."""

    def __init__(self, store: respline.Store, keyspace: str) -> None:
        self.store = store
        self.scripts = Scripts(store, in_transactions=False)
        self.txn_keys = TxnKeys(keyspace)
        self.keys = Keys(keyspace)
        self.partition: PartitionKeys = self.keys.partition(PLACE.topic, PLACE.number)
        self.transactions = TransactionStore(store, self.scripts, self.keys, self.txn_keys, None)

    async def append(self, epoch: int, sequence: int) -> int:
        data = batch_of(b"v", producer_id=PID, epoch=epoch, sequence=sequence, transactional=True)
        p = self.partition
        args = (PLACE.topic_id, data, 1, NOW, PID, epoch, sequence, 1, NOW, "", "")
        reply = await self.scripts.run(Call("append", (p.log, p.m, p.pid, p.open, p.txn, p.tidx), args))
        return int(reply[0])

    async def mark(self, transaction: Transaction) -> list[Partition]:
        return [partition async for partition in self.transactions.mark(transaction, 1, QUIET, NOW)]

    async def entries(self) -> list[batch.Batch]:
        return [batch.header(fields[1]) for _, fields in await self.store.call("XRANGE", self.partition.log, "-", "+")]


@pytest.fixture
def bench(valkey: StoreProcess, topic: str) -> object:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Bench]:
        store = await respline.open_store(valkey.url, name="test", timeout=30)
        bench = Bench(store, topic)
        try:
            await bench.scripts.run(Call("partition_create", bench.partition, (PLACE.topic_id,)))
            for name in ("x", "y"):
                await store.call("HSET", bench.txn_keys.transaction(name).lease, "epoch", 1)
            await store.call("HSET", bench.txn_keys.group("g").lease, "epoch", 1)
            yield bench
        finally:
            await store.aclose()

    return opened


def opened(number: int, *, epoch: int = 0) -> Transaction:
    return Transaction(PID, epoch, State.ONGOING, 60_000, NOW, number=number, partitions=(PLACE,), groups=("g",))


def decided(transaction: Transaction, *, commit: bool) -> Transaction:
    outcome = ended(transaction, Producer(PID, transaction.epoch), commit, NOW)
    assert isinstance(outcome, Transaction)
    return outcome


async def test_a_marker_is_written_once_however_often_it_is_sent(bench) -> None:
    async with bench() as b:
        first = opened(1)
        assert await b.transactions.enrol(first, [PLACE], NOW) == [ErrorCode.none]
        assert await b.append(0, 0) == 0
        outcome = decided(first, commit=False)
        assert await b.mark(outcome) == [PLACE]
        assert await b.mark(outcome) == []
        assert [head.control for head in await b.entries()] == [False, True]
        assert await b.store.call("ZRANGE", b.partition.abt, 0, -1) == [b"7 0 1"]
        assert await b.store.call("HGET", b.partition.m, "leo") == b"2"


async def test_a_late_marker_does_not_end_the_next_transaction(bench) -> None:
    async with bench() as b:
        await b.transactions.enrol(opened(1), [PLACE], NOW)
        assert await b.append(0, 0) == 0
        await b.mark(decided(opened(1), commit=True))
        await b.transactions.enrol(opened(2), [PLACE], NOW)
        assert await b.append(0, 1) == 0
        assert await b.mark(decided(opened(1), commit=True)) == []
        assert await b.store.call("ZSCORE", b.partition.open, PID) is not None
        assert await b.append(0, 2) == 0, "the second transaction goes on"


async def test_a_late_enrolment_does_not_open_what_has_ended(bench) -> None:
    async with bench() as b:
        await b.mark(decided(opened(1), commit=True))
        assert await b.transactions.enrol(opened(1), [PLACE], NOW) == [ErrorCode.invalid_txn_state]
        assert await b.append(0, 0) == ErrorCode.invalid_txn_state
        await b.transactions.enrol(opened(3), [PLACE], NOW)
        assert await b.transactions.enrol(opened(2), [PLACE], NOW) == [ErrorCode.invalid_txn_state]
        assert await b.append(0, 0) == 0


async def test_a_marker_with_a_new_epoch_shuts_the_old_instance_out(bench) -> None:
    async with bench() as b:
        await b.transactions.enrol(opened(1), [PLACE], NOW)
        assert await b.append(0, 0) == 0
        assert await b.mark(fenced(opened(1), NOW)) == [PLACE]
        assert await b.append(0, 1) == ErrorCode.invalid_producer_epoch
        await b.transactions.enrol(opened(2, epoch=2), [PLACE], NOW)
        assert await b.append(2, 0) == 0


async def test_a_deleted_topic_does_not_hold_up_the_end(bench) -> None:
    async with bench() as b:
        await b.transactions.enrol(opened(1), [PLACE], NOW)
        assert await b.append(0, 0) == 0
        await b.scripts.run(Call("partition_delete", b.partition, (PLACE.topic_id,)))
        assert await b.mark(decided(opened(1), commit=True)) == []
        await b.scripts.run(Call("partition_create", b.partition, ("another-topic-id",)))
        assert await b.mark(decided(opened(1), commit=True)) == []
        assert await b.entries() == [], "the new topic of this name is not part of it"


async def test_a_record_is_replaced_only_by_who_saw_it_and_holds_the_slot(bench) -> None:
    async with bench() as b:
        record = opened(1)
        stored = await b.transactions.write("x", None, record, 1, NOW)
        assert isinstance(stored, Stored)
        assert await b.transactions.write("x", None, record, 1, NOW) is Unwritten.RACED
        assert await b.transactions.write("x", stored, decided(record, commit=True), 0, NOW) is Unwritten.FENCED
        prepared = await b.transactions.write("x", stored, decided(record, commit=True), 1, NOW)
        assert isinstance(prepared, Stored)
        assert await b.transactions.write("x", stored, decided(record, commit=False), 1, NOW) is Unwritten.RACED
        assert [one.transaction.state for one in await b.transactions.load(["x"])] == [State.PREPARE_COMMIT]
        done = await b.transactions.write("x", prepared, completed(prepared.transaction, NOW), 1, NOW + 5)
        slot = int(b.txn_keys.transaction("x").ids.partition("{c")[2].partition("}")[0])
        assert await b.transactions.due([slot], NOW + 4) == []
        assert await b.transactions.due([slot], NOW + 5) == ["x"]
        await b.transactions.forget("x", prepared, 1)
        assert await b.transactions.names([slot]) == ["x"], "it changed since"
        await b.transactions.forget("x", done, 1)
        assert await b.transactions.names([slot]) == []
        assert await b.transactions.load(["x"]) == [None]


async def test_a_record_nobody_can_read_is_left_alone_and_does_not_disturb_others(bench) -> None:
    async with bench() as b:
        key = b.txn_keys.transaction("x").record
        await b.store.call("SET", key, "not ours")
        await b.transactions.write("y", None, opened(1), 1, NOW)
        found = await b.transactions.load(["x", "y"])
        assert [one and one.transaction.state for one in found] == [None, State.ONGOING]
        assert await b.transactions.write("x", None, opened(1), 1, NOW) is Unwritten.RACED
        assert await b.store.call("GET", key) == b"not ours"


async def test_offsets_wait_move_and_drop_once(bench) -> None:
    async with bench() as b:
        me, position = Producer(PID, 0), Position("t", 0)
        keep = {position: Offset(41, -1, NOW, "topic-id", "with spaces : and colons")}
        txn, keys = b.transactions, b.txn_keys.group("g")
        assert await txn.keep_offsets("g", me, keep, 1) is ErrorCode.invalid_txn_state
        assert await txn.enrol_group(opened(1), "g", NOW) is ErrorCode.none
        assert await txn.keep_offsets("g", me, keep, 0) is ErrorCode.not_coordinator
        assert await txn.keep_offsets("g", Producer(PID, -1), keep, 1) is ErrorCode.invalid_producer_epoch
        assert await txn.keep_offsets("g", me, keep, 1) is ErrorCode.none
        assert await txn.waiting(["g", "other"]) == [{position}, set()]
        await txn.end_groups(decided(opened(1), commit=True), NOW)
        assert await txn.waiting(["g"]) == [set()]
        moved = await b.store.call("HGET", keys.offsets, "t:0")
        assert moved == f"41 -1 {NOW} topic-id with spaces : and colons".encode()
        assert await txn.keep_offsets("g", me, keep, 1) is ErrorCode.invalid_txn_state, "too late"
        assert await txn.enrol_group(opened(1), "g", NOW) is ErrorCode.invalid_txn_state
        await txn.enrol_group(opened(2), "g", NOW)
        await txn.keep_offsets("g", me, {position: Offset(99, -1, NOW, "topic-id", "")}, 1)
        await txn.end_groups(decided(opened(1), commit=True), NOW)
        assert await txn.waiting(["g"]) == [{position}], "a late end of the first leaves the second alone"
        await txn.end_groups(decided(opened(2), commit=False), NOW)
        assert await b.store.call("HGET", keys.offsets, "t:0") == moved


async def test_silent_producers_are_forgotten_but_not_open_ones(bench) -> None:
    async with bench() as b:
        await b.transactions.enrol(opened(1), [PLACE], NOW)
        p = b.partition
        expire = Call("producers_expire", (p.pid, p.open, p.txn), (NOW + 1, 100))
        await b.scripts.run(expire)
        assert await b.append(0, 0) == 0
        await b.scripts.run(expire)
        assert len(await b.mark(decided(opened(1), commit=True))) == 1
        assert await b.store.call("HLEN", p.txn) == 1
        await b.scripts.run(expire)
        assert await b.store.call("HLEN", p.txn) == 0
        assert await b.store.call("HLEN", p.pid) == 0


async def test_an_abort_that_another_broker_wrote_is_not_missed(bench) -> None:
    """No word of it reached us; our own append shows that the log is longer than we thought."""
    async with bench() as b:
        topic = Topic(PLACE.topic, TOPIC_ID, 1, {}, "{}", topic_config.settings({}))
        log = Log(b.store, b.scripts, b.keys, Waiters(), Metrics(), 1)
        [view] = await log.views([(topic, 0)])
        assert not view.aborts
        await b.transactions.enrol(opened(1), [PLACE], NOW)
        assert await b.append(0, 0) == 0
        await b.mark(decided(opened(1), commit=False))
        plain = batch_of(b"plain")
        [appended] = await log.append([Append(topic, 0, plain, batch.header(plain))], now_ms=NOW)
        assert appended.base_offset == 2
        [view] = await log.views([(topic, 0)])
        assert (view.lso, view.aborts) == (3, True)
        assert await log.aborted([Read(topic, 0, 0, 1000, 3)]) == [[(PID, 0)]]


async def test_what_was_outdated_at_every_attempt_is_not_remembered(bench) -> None:
    """Another broker appends while each reply is on its way, and then falls silent."""
    async with bench() as b:
        topic = Topic(PLACE.topic, TOPIC_ID, 1, {}, "{}", topic_config.settings({}))
        await b.transactions.enrol(opened(1), [PLACE], NOW)
        appended = 0

        class Crossed:
            async def call_many(self, calls: Sequence[tuple[str, ...]]) -> list[Any]:
                nonlocal appended
                replies = await b.store.call_many(calls)
                if appended < LOAD_ATTEMPTS:
                    await b.append(0, appended)
                    appended += 1
                    log.touched(topic, 0)
                return replies

        log = Log(cast("Any", Crossed()), b.scripts, b.keys, Waiters(), Metrics(), 1)
        [view] = await log.views([(topic, 0)])
        assert (appended, view.leo) == (LOAD_ATTEMPTS, LOAD_ATTEMPTS - 1), "as the last attempt saw it"
        [view] = await log.views([(topic, 0)])
        assert view.leo == LOAD_ATTEMPTS


def test_a_transaction_grows_only_by_what_is_new() -> None:
    known = opened(1)
    assert with_partitions(known, Producer(PID, 0), (PLACE,), NOW) is known
