"""Every key of the broker, in one place. P is the keyspace, `penstock` unless the operator says otherwise.

Braces are hash tags: the keys one script touches share a tag, so they share a slot of a cluster.

    the catalogue
    {P}:topics               set     topic names
    {P}:topic:<name>         hash    id, name, partitions, configs (JSON), state (creating | ready)
    {P}:topic-ids            hash    topic id -> name
    {P}:deleting             hash    topic id -> "<partitions> <name>" of topics whose partitions still go
    {P}:version              string  counts the changes of the above
    {P}:cluster-id           string  made once
    {P}:nodes                hash    node id -> "<host> <port> <expires ms> <run>"
    {P}:pidseq               string  next producer id, handed out in blocks
    P:appends                channel "<node id> <partition> <topic>", while other brokers may have readers waiting

    a partition (tag <topic>:<partition>)
    P:{t:p}:log              stream  the records; dense layout: `<last offset>-<bytes so far>` b <record batch>
    P:{t:p}:m                hash    where the log begins and ends, see below
    P:{t:p}:pid              hash    producer id -> "<epoch> <last ms> <first>:<last>:<base> ...", the last five
    P:{t:p}:open             zset    producer id of an open transaction, by its first offset
    P:{t:p}:txn              hash    producer id -> epoch, of transactions this partition is part of (see txn_keys)
    P:{t:p}:abt              zset    aborted transactions "<pid> <first> <last>", by last offset
    P:{t:p}:tidx             zset    "<base offset>" by the greatest timestamp up to it, one about every 64 KB
    P:{t:p}:new              stream  a compacted log on its way to become `log`
    P:{t:p}:moved            zset    open layout: ids that do not say their offset, by offset (see entry_offsets.lua)

    fields of m
    id, leo, log_start       the topic's id; the next offset; the first one that may be read
    bytes, trimmed           bytes ever appended; how many of them were before log_start
    max_ts, max_ts_at        greatest timestamp, and base offset of its batch
    tidx_bytes               `bytes` at the last point of tidx
    compacting, compacted_bytes    the rewrite under way; `bytes` at the last one
    seen, run, entries       open layout: last id with an offset; entries since an anchor in `moved`; entries ever
"""

from functools import lru_cache
from typing import NamedTuple


class PartitionKeys(NamedTuple):
    log: str
    m: str
    pid: str
    open: str
    txn: str
    abt: str
    tidx: str
    moved: str
    new: str


class Keys:
    def __init__(self, keyspace: str) -> None:
        tagged = "{" + keyspace + "}"
        self.topics = f"{tagged}:topics"
        self.topic_ids = f"{tagged}:topic-ids"
        self.deleting = f"{tagged}:deleting"
        self.version = f"{tagged}:version"
        self.cluster_id = f"{tagged}:cluster-id"
        self.nodes = f"{tagged}:nodes"
        self.producer_ids = f"{tagged}:pidseq"
        self.appends = f"{keyspace}:appends"
        self._topic = f"{tagged}:topic:"
        self._keyspace = keyspace
        # Nine thousand partitions times seven keys would be 8 MB of strings; the busy ones are enough.
        self.partition = lru_cache(maxsize=4096)(self._partition)

    def topic(self, name: str) -> str:
        return self._topic + name

    def _partition(self, topic: str, partition: int) -> PartitionKeys:
        stem = f"{self._keyspace}:{{{topic}:{partition}}}:"
        return PartitionKeys(*(stem + part for part in PartitionKeys._fields))
