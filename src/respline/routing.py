"""Which slot of a cluster a command belongs to. Pure: no connection, no map.

slot = CRC16(tag or key) mod 16384, where the tag is what stands between the first { and the next }, if not empty
"""

from binascii import crc_hqx
from collections.abc import Iterable
from dataclasses import dataclass

from respline.command import Argument, Command, verb
from respline.errors import NotSent

SLOTS = 16384

# Position of the key where it is not the first argument.
_KEY_AT = dict.fromkeys(("OBJECT", "XINFO", "XGROUP", "MEMORY", "BITOP"), 2)
# Position of the number of keys; the first key follows it.
_KEY_COUNT_AT = {
    **dict.fromkeys(("EVAL", "EVALSHA", "FCALL", "EVAL_RO", "EVALSHA_RO", "FCALL_RO", "BLMPOP", "BZMPOP"), 2),
    **dict.fromkeys(("ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD", "SINTERCARD", "LMPOP", "ZMPOP"), 1),
}
_KEY_AFTER_STREAMS = frozenset(("XREAD", "XREADGROUP"))
_NO_KEY = frozenset(
    ("PING", "ECHO", "TIME", "INFO", "CLIENT", "CLUSTER", "COMMAND", "SCRIPT", "FUNCTION", "ACL", "LASTSAVE", "LOLWUT")
)
_EVERY_NODE = frozenset(
    (("SCRIPT", "LOAD"), ("SCRIPT", "FLUSH"), ("FUNCTION", "LOAD"), ("FUNCTION", "DELETE"), ("FUNCTION", "FLUSH"))
)
# These concern one node or its part of the keys; sent to a node of our choice they would do what nobody asked for.
_PER_NODE = frozenset(
    ("KEYS", "SCAN", "DBSIZE", "RANDOMKEY", "FLUSHALL", "FLUSHDB", "SWAPDB", "CONFIG", "DEBUG", "SHUTDOWN", "SAVE")
) | {"BGSAVE", "BGREWRITEAOF", "ROLE", "SLOWLOG", "LATENCY", "MODULE", "WAIT", "WAITAOF", "REPLICAOF", "FAILOVER"}


@dataclass(frozen=True, slots=True)
class Anywhere:
    """A command without key: to one node, or to all."""

    every_node: bool


def key_slot(key: Argument) -> int:
    raw = key if isinstance(key, bytes) else str(key).encode()
    start = raw.find(b"{")
    if start >= 0:
        end = raw.find(b"}", start + 1)
        if end > start + 1:
            raw = raw[start + 1 : end]
    return crc_hqx(raw, 0) % SLOTS


def route(command: Command) -> int | Anywhere:
    """The slot of the command's first key. Raises NotSent if it has none where one is needed."""
    name = verb(command[0]) if command else ""
    try:
        if name in _KEY_COUNT_AT:
            at = _KEY_COUNT_AT[name]
            return key_slot(command[at + 1]) if int(command[at]) else Anywhere(every_node=False)
        if name in _KEY_AFTER_STREAMS:
            return key_slot(command[_after_streams(command)])
        if name in _NO_KEY:
            return Anywhere(every_node=len(command) > 1 and (name, verb(command[1])) in _EVERY_NODE)
        if name in _PER_NODE:
            raise NotSent(f"{name} concerns a single node: ask each line of Cluster.nodes")
        return key_slot(command[_KEY_AT.get(name, 1)])
    except (IndexError, ValueError):
        raise NotSent(f"{name or 'an empty command'} has no key where one was expected, so it has no node") from None


def common_slot(commands: Iterable[Command]) -> int:
    """The one slot that all commands with a key share. Raises NotSent if there are two or none."""
    slots = {target for target in map(route, commands) if isinstance(target, int)}
    if len(slots) != 1:
        raise NotSent(f"a transaction needs keys of exactly one slot, these have {len(slots)}: use a {{hash tag}}")
    return slots.pop()


def _after_streams(command: Command) -> int:
    for position, argument in enumerate(command):
        if position and verb(argument) == "STREAMS":
            return position + 1
    raise IndexError("no STREAMS")
