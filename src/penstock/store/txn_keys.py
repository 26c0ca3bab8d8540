"""The keys of transactions. They share the hash tag of a coordinator slot: of the transactional id's slot for the
record, of the group's slot for offsets that wait for a commit.

    P:{c<slot>}:txns           set     transactional ids of this slot
    P:{c<slot>}:txn:<id>       string  the record, JSON (see transactions.Transaction)
    P:{c<slot>}:txn-due        zset    transactional id, by when somebody has to look at it (ms)

    P:{c<slot>}:gtxn:<group>   hash    producer id -> "<transaction number> <ms> <epoch | ended>"
    P:{c<slot>}:pend:<group>   hash    `<producer id>:<topic>:<partition>` -> as in P:{c<slot>}:off:<group>

A partition keeps the like under its own tag, in P:{t:p}:txn:
    <producer id>    -> epoch; there only while the partition is part of that producer's transaction
    <producer id>:n  -> "<transaction number> <ms>" of the last transaction begun or ended here
"""

from typing import NamedTuple

from penstock.store.group_keys import slot_of


class TransactionKeys(NamedTuple):
    lease: str
    ids: str
    due: str
    record: str


class PendingKeys(NamedTuple):
    lease: str
    groups: str
    offsets: str
    producers: str
    pending: str


class TxnKeys:
    def __init__(self, keyspace: str) -> None:
        self._keyspace = keyspace

    def ids(self, slot: int) -> str:
        return f"{self._stem(slot)}txns"

    def due(self, slot: int) -> str:
        return f"{self._stem(slot)}txn-due"

    def transaction(self, name: str) -> TransactionKeys:
        stem = self._stem(slot_of(name))
        return TransactionKeys(f"{stem}lease", f"{stem}txns", f"{stem}txn-due", f"{stem}txn:{name}")

    def group(self, name: str) -> PendingKeys:
        stem = self._stem(slot_of(name))
        return PendingKeys(
            f"{stem}lease", f"{stem}groups", f"{stem}off:{name}", f"{stem}gtxn:{name}", f"{stem}pend:{name}"
        )

    def _stem(self, slot: int) -> str:
        return f"{self._keyspace}:{{c{slot}}}:"
