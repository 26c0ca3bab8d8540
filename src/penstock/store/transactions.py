"""Transactions in the store: records by compare-and-set, enrolments and markers of partitions, offsets that wait.

Used by `transaction_coordinator`. A record is written only as the successor of what the caller saw and under the epoch
of the coordinator's lease. What is done to partitions and groups carries the transaction's number, so it may be
repeated and may come late. Lists in, lists out; chunks bound what one round trip carries.
"""

from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import structlog
from kio.schema.errors import ErrorCode

import respline
from penstock.crash_points import crash_point
from penstock.store.durability import Durability
from penstock.store.keys import Keys
from penstock.store.offsets import Offset, Position, offset_field, offset_position, offset_text
from penstock.store.scripts import Call, Scripts, Store
from penstock.store.txn_keys import TxnKeys
from penstock.transactions import Partition, Producer, Transaction
from penstock.wire.markers import marker

log = structlog.get_logger("penstock.transactions")
CHUNK = 64
FORGET_AT_ONCE = 1_000
ENDED_PRODUCER_MS = 24 * 3600 * 1000
WRITTEN = MARKED = 1
NO_SUCH_PARTITION = 3
RECORD = msgspec.json.Decoder(Transaction)


class Unwritten(Enum):
    """Why a record cannot be relied on to be written."""

    FENCED = 0  # another broker coordinates the id
    RACED = -1  # the record is not what the caller saw
    UNSAFE = 2  # it is there, but the copies or the disk the operator asked for did not confirm it in time


class Stored(NamedTuple):
    """A record and the very bytes it was read as."""

    transaction: Transaction
    text: bytes


class TransactionStore:
    def __init__(
        self, store: Store, scripts: Scripts, keys: Keys, txn_keys: TxnKeys, durability: Durability | None
    ) -> None:
        self._store = store
        self._scripts = scripts
        self._keys = keys
        self._txn_keys = txn_keys
        self._durability = durability

    async def load(self, names: Sequence[str]) -> list[Stored | None]:
        found: list[Stored | None] = []
        for at in range(0, len(names), CHUNK):
            chunk = names[at : at + CHUNK]
            replies = await self._store.call_many([("GET", self._txn_keys.transaction(name).record) for name in chunk])
            found += [_stored(name, text) for name, text in zip(chunk, _sound(replies), strict=True)]
        return found

    async def write(
        self, name: str, seen: Stored | None, new: Transaction, lease_epoch: int, due_ms: int
    ) -> Stored | Unwritten:
        """Replace the record the caller saw."""
        text = msgspec.json.encode(new)
        args = (lease_epoch, name, seen.text if seen else b"", text, due_ms)
        scripts = self._durability.scripts if self._durability else self._scripts
        reply = await scripts.run(Call("txn_write", self._txn_keys.transaction(name), args))
        if reply != WRITTEN:
            return Unwritten(reply)
        if self._durability and not await self._durability.confirmed():
            return Unwritten.UNSAFE
        return Stored(new, text)

    async def forget(self, name: str, seen: Stored, lease_epoch: int) -> None:
        """Remove the record if it is still what the caller saw."""
        args = (lease_epoch, name, seen.text, b"", 0)
        await self._scripts.run(Call("txn_write", self._txn_keys.transaction(name), args))

    async def names(self, slots: Sequence[int]) -> list[str]:
        replies = await self._store.call_many([("SMEMBERS", self._txn_keys.ids(slot)) for slot in slots])
        return sorted(name.decode() for names in _sound(replies) for name in names)

    async def due(self, slots: Sequence[int], now_ms: int) -> list[str]:
        """Some of those that somebody has to look at by now."""
        limits = ("-inf", now_ms, "LIMIT", 0, CHUNK)
        replies = await self._store.call_many([("ZRANGEBYSCORE", self._txn_keys.due(s), *limits) for s in slots])
        return [name.decode() for names in _sound(replies) for name in names]

    async def enrol(self, transaction: Transaction, partitions: Sequence[Partition], now_ms: int) -> list[ErrorCode]:
        """Let the transaction write to these partitions."""
        args = (transaction.producer_id, transaction.epoch, transaction.number, now_ms)
        codes: list[ErrorCode] = []
        for at in range(0, len(partitions), CHUNK):
            calls = []
            for partition in partitions[at : at + CHUNK]:
                keys = self._keys.partition(partition.topic, partition.number)
                calls.append(Call("txn_enrol", (keys.m, keys.txn), (partition.topic_id, *args)))
            codes += [ENROLLED[reply] for reply in _sound(await self._scripts.run_many(calls))]
        return codes

    async def enrol_group(self, transaction: Transaction, group: str, now_ms: int) -> ErrorCode:
        args = (transaction.producer_id, transaction.epoch, transaction.number, now_ms)
        return ENROLLED[
            await self._scripts.run(Call("txn_group_enrol", (self._txn_keys.group(group).producers,), args))
        ]

    async def mark(
        self, transaction: Transaction, lease_epoch: int, announce: tuple[str, int], now_ms: int
    ) -> AsyncIterator[Partition]:
        """Write the markers of a prepared transaction; give the partitions whose log got one."""
        who = (transaction.producer_id, transaction.epoch)
        control = marker(*who, transaction.commits, lease_epoch, now_ms)
        channel, node_id = announce
        args = (*who, transaction.number, int(transaction.commits), control)
        for at in range(0, len(transaction.partitions), CHUNK):
            chunk = transaction.partitions[at : at + CHUNK]
            calls = []
            for topic, topic_id, number in chunk:
                keys = self._keys.partition(topic, number)
                say = (now_ms, channel, f"{node_id} {number} {topic}")
                log = (keys.log, keys.m, keys.pid, keys.open, keys.txn, keys.abt)
                calls.append(Call("txn_mark", log, (topic_id, *args, *say)))
            replies = _sound(await self._scripts.run_many(calls))
            for partition, reply in zip(chunk, replies, strict=True):
                if reply == MARKED:
                    yield partition
            crash_point("after_some_markers")

    async def end_groups(self, transaction: Transaction, now_ms: int) -> None:
        """Move the waiting offsets of a prepared transaction to their groups, or drop them."""
        end = (transaction.producer_id, transaction.number, int(transaction.commits), now_ms)
        forget = (FORGET_AT_ONCE, now_ms - ENDED_PRODUCER_MS)
        for at in range(0, len(transaction.groups), CHUNK):
            calls = []
            for group in transaction.groups[at : at + CHUNK]:
                keys = self._txn_keys.group(group)
                places = (keys.groups, keys.offsets, keys.producers, keys.pending)
                calls.append(Call("txn_group_end", places, (group, *end, *forget)))
            _sound(await self._scripts.run_many(calls))

    async def keep_offsets(
        self, group: str, producer: Producer, offsets: dict[Position, Offset], lease_epoch: int
    ) -> ErrorCode:
        """Offsets that become the group's when the transaction commits. `lease_epoch` is of the group's slot."""
        keys = self._txn_keys.group(group)
        pairs = [text for position, offset in offsets.items() for text in (offset_field(position), offset_text(offset))]
        args: tuple[str | int, ...] = (lease_epoch, producer.id, producer.epoch, *pairs)
        return KEPT[await self._scripts.run(Call("txn_offsets", (keys.lease, keys.producers, keys.pending), args))]

    async def waiting(self, groups: Sequence[str]) -> list[set[Position]]:
        """The partitions of each group whose offsets depend on a transaction that has not ended."""
        replies = await self._store.call_many([("HKEYS", self._txn_keys.group(group).pending) for group in groups])
        return [{offset_position(field.partition(b":")[2]) for field in fields} for fields in _sound(replies)]


ENROLLED = {1: ErrorCode.none, 0: ErrorCode.invalid_txn_state, NO_SUCH_PARTITION: ErrorCode.unknown_topic_or_partition}
KEPT = {
    1: ErrorCode.none,
    0: ErrorCode.not_coordinator,
    47: ErrorCode.invalid_producer_epoch,
    48: ErrorCode.invalid_txn_state,
}


def _stored(name: str, text: bytes | None) -> Stored | None:
    try:
        return None if text is None else Stored(RECORD.decode(text), text)
    except msgspec.DecodeError as error:
        # Not ours to repair: it cannot be replaced without being seen, and the other transactions go on.
        log.error("the record of a transactional id cannot be read", transactional_id=name, error=str(error))
        return None


def _sound(replies: list[Any]) -> list[Any]:
    """The replies, or the first error among them raised."""
    for reply in replies:
        if isinstance(reply, respline.ServerError):
            raise reply
    return replies
