"""What acks=all waits for beyond the append: copies on replicas of the store, or its disk.

WAIT and WAITAOF speak of the writes of their own connection and block it, so durable appends have a line to themselves.
"""

from dataclasses import dataclass

from penstock.store.scripts import Scripts, Store


@dataclass(frozen=True, slots=True)
class Durability:
    line: Store
    scripts: Scripts
    replicas: int
    fsync: bool
    timeout_ms: int

    async def confirmed(self) -> bool:
        """True once every append made on our line before this call is as safe as asked for."""
        if not self.fsync:
            reached = await self.line.call("WAIT", self.replicas, self.timeout_ms)
            return int(reached) >= self.replicas
        local, replicas = await self.line.call("WAITAOF", 1, self.replicas, self.timeout_ms)
        return int(local) >= 1 and int(replicas) >= self.replicas
