"""The live brokers over one store, by leases in the store, and who leads what.

Correctness sits in the scripts, so any broker may serve any partition; the leader that Metadata names only decides
whose memory is warm. A broker that dies is gone from Metadata one lease later.
"""

import hashlib
import uuid
from dataclasses import dataclass
from typing import Any, cast

from penstock.config import Address, BadConfig
from penstock.store.keys import Keys
from penstock.store.scripts import Call, Scripts

LEASE_MS = 10_000
BEAT_S = 3.0


@dataclass(frozen=True, slots=True, order=True)
class Node:
    id: int
    host: str
    port: int


class Nodes:
    def __init__(self, scripts: Scripts, keys: Keys, node_id: int, address: Address) -> None:
        self._scripts = scripts
        self._keys = keys
        self.me = Node(node_id, address.host, address.port)
        self.live: list[Node] = [self.me]
        self.epoch = 0  # moves when the list changes
        self._run = uuid.uuid4().hex

    @property
    def alone(self) -> bool:
        return len(self.live) == 1

    def move_to(self, address: Address) -> None:
        """The port is known only after listening, when the system chose it."""
        self.me = Node(self.me.id, address.host, address.port)
        self.live = [self.me]

    async def beat(self) -> None:
        """Renew our lease and learn who else is there."""
        reply = await self._beat(LEASE_MS)
        if reply[0] == 0:
            raise BadConfig(f"another running broker has node id {self.me.id}")
        found = sorted(_node(node_id, text) for node_id, text in zip(reply[1::2], reply[2::2], strict=True))
        if found != self.live:
            self.live = found
            self.epoch += 1

    async def leave(self) -> None:
        await self._beat(0)

    def leader(self, topic: str, partition: int) -> Node:
        """Rendezvous hashing: when a broker leaves, only what it led moves."""
        return self._chosen(f"{topic}:{partition}")

    def coordinator(self, slot: int) -> Node:
        """The broker a coordinator slot belongs to; see `coordination`."""
        return self._chosen(f"coordinator/{slot}")

    def _chosen(self, key: str) -> Node:
        if len(self.live) == 1:
            return self.live[0]
        return max(self.live, key=lambda node: hashlib.blake2b(f"{node.id} {key}".encode(), digest_size=8).digest())

    async def _beat(self, lease_ms: int) -> list[Any]:
        args = (self.me.id, self.me.host, self.me.port, lease_ms, self._run)
        return cast(list[Any], await self._scripts.run(Call("node_beat", (self._keys.nodes,), args)))


def _node(node_id: bytes, text: bytes) -> Node:
    host, port, _, _ = text.decode().split(" ")
    return Node(int(node_id), host, int(port))
