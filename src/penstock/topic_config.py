"""The configs a topic may have: their types, defaults and what they mean here.

Pure. CreateTopics, AlterConfigs and DescribeConfigs share this table. Configs that only make sense for Kafka's
files are accepted and reported, because tools copy whole sets of them; `effect` says which ones act.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

DAY_MS = 24 * 3600 * 1000
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class Kind(IntEnum):
    """The type numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Layout(StrEnum):
    BATCHES = "batches"  # dense offsets, one stream entry a record batch
    ENTRIES = "entries"  # open layout: one stream entry a record, readable and writable with plain XREAD and XADD


@dataclass(frozen=True, slots=True)
class Known:
    kind: Kind
    default: str
    low: float = -1
    high: float = LONG_MAX
    words: tuple[str, ...] = ()
    fixed: bool = False  # chosen when the topic is made
    effect: bool = False


CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
KNOWN: dict[str, Known] = {
    "cleanup.policy": Known(Kind.LIST, "delete", words=("delete", "compact"), effect=True),
    "compression.type": Known(Kind.STRING, "producer", words=CODECS),
    "compression.gzip.level": Known(Kind.INT, "-1", -1, 9),
    "compression.lz4.level": Known(Kind.INT, "9", 1, 17),
    "compression.zstd.level": Known(Kind.INT, "3", -131072, 22),
    "delete.retention.ms": Known(Kind.LONG, str(DAY_MS), 0, effect=True),
    "file.delete.delay.ms": Known(Kind.LONG, "60000", 0),
    "flush.messages": Known(Kind.LONG, str(LONG_MAX), 1),
    "flush.ms": Known(Kind.LONG, str(LONG_MAX), 0),
    "follower.replication.throttled.replicas": Known(Kind.LIST, ""),
    "index.interval.bytes": Known(Kind.INT, "4096", 0, INT_MAX),
    "leader.replication.throttled.replicas": Known(Kind.LIST, ""),
    "local.retention.bytes": Known(Kind.LONG, "-2", -2),
    "local.retention.ms": Known(Kind.LONG, "-2", -2),
    "max.compaction.lag.ms": Known(Kind.LONG, str(LONG_MAX), 1),
    "max.message.bytes": Known(Kind.INT, "1048588", 0, INT_MAX, effect=True),
    "message.downconversion.enable": Known(Kind.BOOLEAN, "true"),
    "message.format.version": Known(Kind.STRING, "3.0-IV1"),
    "message.timestamp.after.max.ms": Known(Kind.LONG, str(LONG_MAX), 0, effect=True),
    "message.timestamp.before.max.ms": Known(Kind.LONG, str(LONG_MAX), 0, effect=True),
    "message.timestamp.difference.max.ms": Known(Kind.LONG, str(LONG_MAX), 0, effect=True),
    "message.timestamp.type": Known(Kind.STRING, "CreateTime", words=("CreateTime", "LogAppendTime"), effect=True),
    "min.cleanable.dirty.ratio": Known(Kind.DOUBLE, "0.5", 0, 1, effect=True),
    "min.compaction.lag.ms": Known(Kind.LONG, "0", 0, effect=True),
    "min.insync.replicas": Known(Kind.INT, "1", 1, INT_MAX),
    "preallocate": Known(Kind.BOOLEAN, "false"),
    "remote.storage.enable": Known(Kind.BOOLEAN, "false"),
    "retention.bytes": Known(Kind.LONG, "-1", -1, effect=True),
    "retention.ms": Known(Kind.LONG, str(7 * DAY_MS), -1, effect=True),
    "segment.bytes": Known(Kind.INT, "1073741824", 14, INT_MAX),
    "segment.index.bytes": Known(Kind.INT, "10485760", 4, INT_MAX),
    "segment.jitter.ms": Known(Kind.LONG, "0", 0),
    "segment.ms": Known(Kind.LONG, str(7 * DAY_MS), 1),
    "unclean.leader.election.enable": Known(Kind.BOOLEAN, "false"),
    "penstock.layout": Known(Kind.STRING, Layout.BATCHES, words=tuple(Layout), fixed=True, effect=True),
    # 12 bits is the most that keeps (milliseconds << bits) below 2^53 until 2039, where scripts count exactly.
    "penstock.offset.sequence.bits": Known(Kind.INT, "10", 0, 12, fixed=True, effect=True),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The configs that act, parsed once per topic."""

    max_message_bytes: int
    log_append_time: bool
    compacted: bool
    deleted: bool
    retention_ms: int
    retention_bytes: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    min_dirty_ratio: float
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    open_layout: bool
    sequence_bits: int


def refusal(configs: dict[str, str | None]) -> str | None:
    """Why these configs cannot be a topic's, or None."""
    for name, value in configs.items():
        known = KNOWN.get(name)
        if known is None:
            return f"Unknown topic config name: {name}"
        reason = None if value is None else _value_refusal(known, value)
        if reason:
            return f"Invalid value {value} for configuration {name}: {reason}"
    if configs.get("penstock.layout") == Layout.ENTRIES and "compact" in (configs.get("cleanup.policy") or ""):
        return "penstock.layout=entries cannot be combined with cleanup.policy=compact"
    return None


def settings(configs: dict[str, str]) -> Settings:
    def text(name: str) -> str:
        return configs.get(name, KNOWN[name].default)

    difference = int(text("message.timestamp.difference.max.ms"))
    policies = text("cleanup.policy").split(",")
    return Settings(
        max_message_bytes=int(text("max.message.bytes")),
        log_append_time=text("message.timestamp.type") == "LogAppendTime",
        compacted="compact" in policies,
        deleted="delete" in policies,
        retention_ms=int(text("retention.ms")),
        retention_bytes=int(text("retention.bytes")),
        delete_retention_ms=int(text("delete.retention.ms")),
        min_compaction_lag_ms=int(text("min.compaction.lag.ms")),
        min_dirty_ratio=float(text("min.cleanable.dirty.ratio")),
        timestamp_before_max_ms=min(difference, int(text("message.timestamp.before.max.ms"))),
        timestamp_after_max_ms=min(difference, int(text("message.timestamp.after.max.ms"))),
        open_layout=text("penstock.layout") == Layout.ENTRIES,
        sequence_bits=int(text("penstock.offset.sequence.bits")),
    )


def _value_refusal(known: Known, value: str) -> str | None:
    if known.kind is Kind.BOOLEAN:
        return None if value.lower() in ("true", "false") else "Expected value to be either true or false"
    if known.words:
        words = value.split(",") if known.kind is Kind.LIST else [value]
        return None if all(word.strip() in known.words for word in words) else f"Must be of {', '.join(known.words)}"
    if known.kind in (Kind.STRING, Kind.LIST):
        return None
    try:
        number = float(value) if known.kind is Kind.DOUBLE else int(value)
    except ValueError:
        return "Not a number"
    return None if known.low <= number <= known.high else f"Value must be from {known.low:.0f} to {known.high:.0f}"
