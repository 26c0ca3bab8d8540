"""Reads the map of a cluster: which address serves which slots. Pure: parses the replies of both commands that tell it.

    CLUSTER SLOTS   [[first, last, [host, port, id, ...], replica...], ...]
    CLUSTER SHARDS  [{slots: [first, last, ...], nodes: [{endpoint, ip, port, tls-port, role, ...}, ...]}, ...]
                    with RESP2 each map is a flat list of names and values

Redis and Valkey know both, Kvrocks and old servers only the first. Replicas are left out: masters are read.
"""

from dataclasses import dataclass
from typing import Any

from respline.command import Reply

HostPort = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SlotRange:
    first: int
    last: int
    node: HostPort


def from_slots(reply: Reply, asked: str) -> list[SlotRange]:
    """`asked` is the host that answered: a node that does not know its own name leaves it empty."""
    return [
        SlotRange(int(first), int(last), (_host(master[0], asked), int(master[1]))) for first, last, master, *_ in reply
    ]


def from_shards(reply: Reply, asked: str, tls: bool) -> list[SlotRange]:
    ranges: list[SlotRange] = []
    for shard in map(_mapping, reply):
        slots = [int(slot) for slot in shard[b"slots"]]
        masters = [node for node in map(_mapping, shard[b"nodes"]) if node.get(b"role") == b"master"]
        if not slots or not masters:
            continue
        # During a failover both the old and the new master may be listed.
        master = next((node for node in masters if node.get(b"health") == b"online"), masters[0])
        port = master.get(b"tls-port") if tls else master.get(b"port")
        if port is None:
            continue
        node = (_host(master.get(b"endpoint") or master.get(b"ip"), asked), int(port))
        ranges += [SlotRange(first, last, node) for first, last in zip(slots[::2], slots[1::2], strict=True)]
    return ranges


def _mapping(value: Any) -> dict[bytes, Any]:
    return value if isinstance(value, dict) else dict(zip(value[::2], value[1::2], strict=True))


def _host(name: bytes | None, asked: str) -> str:
    return name.decode() if name and name != b"?" else asked
